#!/usr/bin/env python3
"""What real torch answers at the corners of all_reduce that Lockstep copies: two processes, Gloo on loopback.

    reduce_corners.py > reduce_corners.txt     dtype op | values of rank 0 | of rank 1 | of the result, or why there is none
    reduce_corners.py --check                  compares with that file, as CTest does

lockstep/comm/collectives/all_reduce_corners_ranks_test.cpp gives Lockstep the same and says where it differs on purpose."""
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "testing"))
import gloo_peer  # noqa: E402

NAN, INF = float("nan"), float("inf")
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
# dtype -> values of rank 0, values of rank 1
INPUTS = {
    "float64": ([1.5, NAN, 2.0, 0.0, INF], [2.0, 1.0, NAN, -0.0, -INF]),
    "float32": ([1.5, NAN, 2.0, 0.0, INF], [2.0, 1.0, NAN, -0.0, -INF]),
    "float16": ([1.5, NAN, 2.0, 2048.0, 60000.0], [2.0, 1.0, NAN, 1.0, 60000.0]),
    "bfloat16": ([1.5, NAN, 2.0, 256.0, 3e38], [2.0, 1.0, NAN, 1.0, 3e38]),
    "int8": ([100, -7, 2], [100, 4, -3]),
    "uint8": ([200, 7, 2], [100, 4, 3]),
    "int16": ([30000, -7, 2], [30000, 4, -3]),
    "uint16": ([60000, 7, 2], [30000, 4, 3]),
    "int32": ([2**31 - 1, -7, 2], [1, 4, -3]),
    "uint32": ([2**32 - 1, 7, 2], [1, 4, 3]),
    "int64": ([2**63 - 1, -7, 2], [1, 4, -3]),
    "uint64": ([2**63, 7, 2], [2**62, 4, 3]),
    "bool": ([False, False, True, True], [False, True, False, True]),
    "complex64": ([1 + 2j, 3 - 1j], [2 + 1j, -1 + 4j]),
    "complex128": ([1 + 2j, 3 - 1j], [2 + 1j, -1 + 4j]),
}


def show(tensor):
    return " ".join(str(value) for value in tensor.tolist())


def answer(rank, name, op, group):
    tensor = torch.tensor(INPUTS[name][rank], dtype=getattr(torch, name))
    try:
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group)
    except (RuntimeError, ValueError, TypeError) as error:
        return "refused: " + str(error).split("\n")[0]
    return show(tensor)


def line(rank, name, op, group):
    inputs = " | ".join(show(torch.tensor(values, dtype=getattr(torch, name))) for values in INPUTS[name])
    return f"{name} {op} | {inputs} | {answer(rank, name, op, group)}"


def run(rank, store_file, results):
    dist.init_process_group("gloo", init_method="file://" + store_file, rank=rank, world_size=2)
    # A group of its own for each, because a refusal may leave a group unusable.
    lines = [line(rank, name, op, dist.new_group()) for name in INPUTS for op in OPS]
    pathlib.Path(f"{results}{rank}").write_text("\n".join(lines), encoding="utf-8")


def main():
    with tempfile.TemporaryDirectory() as folder:
        gloo_peer.spawn(run, (folder + "/store", folder + "/results"), 2)
        both = [pathlib.Path(folder, f"results{rank}").read_text(encoding="utf-8").splitlines() for rank in (0, 1)]
    if both[0] != both[1]:
        sys.exit("the ranks have different results")
    lines = [f"# torch {torch.__version__}, Gloo, two processes"] + both[0]
    if "--check" not in sys.argv:
        print("\n".join(lines))
        return 0
    recorded = pathlib.Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    if recorded[0] != lines[0]:
        print(f"skipped: recorded with {recorded[0][2:]}, this is {lines[0][2:]}")
        return 77
    different = [f"recorded: {a}\nnow:      {b}" for a, b in zip(recorded, lines) if a != b]
    print("\n".join(different) or f"{len(lines) - 1} answers as recorded")
    return 1 if different or len(recorded) != len(lines) else 0


if __name__ == "__main__":
    sys.exit(main())
