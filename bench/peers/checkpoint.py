"""The peers of bench/checkpoint.cpp, two ranks under torchrun. The word says which: "raw" writes the bytes of a half
each into a file and reads them; "safetensors" saves a half each and loads both; "dcp" is torch.distributed.checkpoint, with
its asynchronous save; "torch_save" is torch.save of a half each."""
import functools
import json
import os
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

TENSORS, SIDE, ROUNDS = 24, 2048, 5
word = sys.argv[1]
folder = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else f"peer-{word}")
torch.set_num_threads(1)
dist.init_process_group("gloo")
background = dist.new_group(backend="gloo")  # of async_save's thread: barriers of this thread come between its calls otherwise
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
state = {f"t{i}": torch.randn(SIDE, SIDE) for i in range(TENSORS)}
half = {name: tensor for i, (name, tensor) in enumerate(state.items()) if i % ranks == rank}


def seconds_of(act):
    dist.barrier()
    start = time.perf_counter()
    act()
    dist.barrier()
    return time.perf_counter() - start


def synced(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def raw_save(path, sync):
    with open(f"{path}/{rank}", "wb", buffering=0) as file:
        for tensor in half.values():
            file.write(tensor.numpy())
        if sync:
            os.fsync(file.fileno())


def raw_load(path):
    for r in range(ranks):
        with open(f"{path}/{r}", "rb", buffering=0) as file:
            for i in range(r, TENSORS, ranks):
                file.readinto(state[f"t{i}"].numpy())


def safetensors_save(path, sync):
    save_file(half, f"{path}/{rank}")
    if sync:
        synced(f"{path}/{rank}")


def safetensors_load(path):
    for r in range(ranks):
        for name, tensor in load_file(f"{path}/{r}").items():
            state[name].copy_(tensor)


def torch_save(path, sync):
    torch.save(half, f"{path}/{rank}")
    if sync:
        synced(f"{path}/{rank}")


def torch_load(path):
    for r in range(ranks):
        for name, tensor in torch.load(f"{path}/{r}", weights_only=True, mmap=True).items():
            state[name].copy_(tensor)


def dcp_save(path, sync):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, sync_files=sync, single_file_per_rank=True))


def dcp_load(path):
    dcp.load(state, checkpoint_id=path)


save, load = {"raw": (raw_save, raw_load), "safetensors": (safetensors_save, safetensors_load),
              "torch_save": (torch_save, torch_load), "dcp": (dcp_save, dcp_load)}[word]
times = {"save": [], "save_no_fsync": [], "load": [], "blocked": [], "async_done": []}
step = 0


def fresh():
    """A new folder; the one before goes, as with keep_last = 1. Not timed."""
    global step
    step += 1
    path = f"{folder}/{step}"
    if rank == 0:
        shutil.rmtree(folder if step == 1 else f"{folder}/{step - 1}", ignore_errors=True)
        os.makedirs(path)
    dist.barrier()
    return path


for _ in range(ROUNDS):
    path = fresh()
    times["save"].append(seconds_of(functools.partial(save, path, True)))
    times["load"].append(seconds_of(functools.partial(load, path)))
    times["save_no_fsync"].append(seconds_of(functools.partial(save, fresh(), False)))
    if word == "dcp":
        path, futures = fresh(), []
        start = time.perf_counter()
        times["blocked"].append(seconds_of(lambda: futures.append(dcp.async_save(
            state, storage_writer=dcp.FileSystemWriter(path, sync_files=True), process_group=background))))
        futures[0].result()
        dist.barrier()
        times["async_done"].append(time.perf_counter() - start)
if rank == 0:
    print(json.dumps({name: round(statistics.median(values), 4) for name, values in times.items() if values}))
    shutil.rmtree(folder, ignore_errors=True)
dist.destroy_process_group()
