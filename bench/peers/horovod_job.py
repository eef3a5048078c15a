"""A rank of a program that is written for Horovod, over Horovod or over Lockstep.

    horovodrun -np 2 python bench/peers/horovod_job.py horovod calls
    lockstep run -n 2 python bench/peers/horovod_job.py lockstep program IMAGES EPOCHS BATCH_SIZE

calls     allreduce_async of 1,000 tensors of 4 KiB by name, then synchronize of each: milliseconds of all of them. And one allreduce of
          4 bytes, one call behind the other: microseconds.
program   examples/python/horovod_torch.py as it is, on random images in a folder of its own: samples per second of all ranks, without the
          first epoch. Horovod takes the place of lockstep.horovod.torch in its import line, and neither broadcasts the optimizer's state.
pinned    as the last word: this rank and its threads on a core of their own.

Rank 0 prints one JSON object, which has a digest of all results (calls) or the program's own lines (program).
"""
import hashlib
import importlib
import json
import os
import pathlib
import random
import runpy
import statistics
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = 1 + 3 * 32 * 32
TENSORS, ROUNDS, SMALL = 1000, 15, 300


def calls(hvd, torch):
    hvd.init()
    given = [torch.arange(1024) * 0.37 + number + hvd.rank() for number in range(TENSORS)]
    many, one, digest = [], [], None
    for _ in range(ROUNDS):
        hvd.barrier()
        began = time.perf_counter()
        handles = [hvd.allreduce_async(x, name=f"tensor.{number}", op=hvd.Sum) for number, x in enumerate(given)]
        results = [hvd.synchronize(handle) for handle in handles]
        many.append(1e3 * (time.perf_counter() - began))
        found = hashlib.sha256(b"".join(x.numpy().tobytes() for x in results)).hexdigest()
        assert digest in (None, found), "two rounds gave different bits"
        digest = found
    x = torch.ones(1)
    for _ in range(SMALL):
        began = time.perf_counter()
        hvd.allreduce(x, name="one", op=hvd.Sum)
        one.append(1e6 * (time.perf_counter() - began))
    if hvd.rank() == 0:
        print(json.dumps({"1000_x_4KiB_ms": statistics.median(many[3:]), "4B_us": statistics.median(one[50:]), "results": digest}), flush=True)
    hvd.barrier()
    hvd.shutdown()


def write_images(folder, count):
    numbers = random.Random(1)
    pathlib.Path(folder, "data_batch_1.bin").write_bytes(
        b"".join(bytes([number % 10]) + numbers.randbytes(RECORD - 1) for number in range(count)))


def program(hvd, images, epochs, batch_size):
    lines, ends = [], []

    def keep(line):  # what the program prints at the end of each epoch, on rank 0
        lines.append(line)
        ends.append(time.perf_counter())

    # Horovod makes a step of a fresh optimizer with gradients of zero, which decays the weights; Lockstep broadcasts what is there: nothing.
    hvd.broadcast_optimizer_state = lambda optimizer, root_rank: None
    if "lockstep" not in sys.modules:  # Horovod, under the name that the program imports
        for name in ("lockstep", "lockstep.horovod"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["lockstep"].horovod, sys.modules["lockstep.horovod"].torch = sys.modules["lockstep.horovod"], hvd
        sys.modules["lockstep.horovod.torch"] = hvd
    with tempfile.TemporaryDirectory() as folder:
        write_images(folder, images)
        os.chdir(folder)
        example = ROOT / "examples/python/horovod_torch.py"
        sys.path.insert(0, str(example.parent))
        sys.argv = [str(example), "--data", folder, "--epochs", str(epochs), "--batch-size", str(batch_size), "--workers", "0"]
        runpy.run_path(str(example), {"print": keep}, "__main__")
        os.chdir("/")
    if lines:
        print(json.dumps({"samples/s": images * (epochs - 1) / (ends[-1] - ends[0]), "results": lines}), flush=True)
    hvd.shutdown()


def main():
    words = sys.argv[1:]
    if words[-1] == "pinned":
        words.pop()
        rank = int(os.environ.get("HOROVOD_LOCAL_RANK") or os.environ["LOCAL_RANK"])
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})  # before any library starts a thread
    import torch
    torch.set_num_threads(1)
    hvd = importlib.import_module("horovod.torch" if words[0] == "horovod" else "lockstep.horovod.torch")
    if words[1] == "calls":
        calls(hvd, torch)
    else:
        program(hvd, *map(int, words[2:]))


main()
