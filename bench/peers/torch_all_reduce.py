"""dist.all_reduce of a Python program, one call behind the other: microseconds of a call by size.

    lockstep run -n 2 python bench/peers/torch_all_reduce.py gloo|lockstep BYTES...
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist


def main():
    torch.set_num_threads(1)
    backend, sizes = sys.argv[1], [int(word) for word in sys.argv[2:]]
    if backend == "lockstep":
        import lockstep.torch  # noqa: F401
    dist.init_process_group(backend)
    for size in sizes:
        x, times = torch.ones(size // 4), []
        calls = 2000 if size < 1 << 16 else 60
        for number in range(calls + calls // 5):
            began = time.perf_counter_ns()
            dist.all_reduce(x)
            if number >= calls // 5:
                times.append(time.perf_counter_ns() - began)
        if dist.get_rank() == 0:
            print(json.dumps({"bytes": size, "median_us": statistics.median(times) / 1000}), flush=True)
        dist.barrier()
    dist.destroy_process_group()


main()
