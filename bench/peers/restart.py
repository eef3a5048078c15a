"""A rank of bench/restart.py under torchrun: the loop of tests/launchers/resumed.cpp over Gloo.

    restart.py FOLDER STEPS MICROSECONDS
"""
import os
import pathlib
import sys
import time

BEGAN = time.monotonic_ns()


def main():
    folder, steps, step_time = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) / 1e6
    rank, restarts = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    with open(folder / "starts", "a", encoding="ascii") as starts:
        starts.write(f"{rank} {restarts} {os.getpid()} {BEGAN}\n")
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    count = torch.zeros(1, dtype=torch.int64)
    if rank == 0 and (folder / "count").exists():
        count[0] = int((folder / "count").read_text())
    dist.broadcast(count, 0)
    for step in range(int(count), steps):
        end = time.monotonic() + step_time
        while time.monotonic() < end:
            pass
        dist.all_reduce(torch.ones(1))
        if rank == 0:
            (folder / "count.new").write_text(str(step + 1))
            (folder / "count.new").rename(folder / "count")
            with open(folder / "steps", "a", encoding="ascii") as done:
                done.write(f"{restarts} {time.monotonic_ns()}\n")


if __name__ == "__main__":
    main()
