"""The peer of bench/gpu_step.cpp: the same steps in Python, over torch's NCCL.

    lockstep run -n 1 --no-affinity python bench/peers/gpu_step.py MODE small|medium STEPS

MODE  alone          no group
      ddp            DistributedDataParallel with gradient_as_bucket_view=True
      zero           ZeroRedundancyOptimizer with it
      fsdp2          fully_shard of each block, which reshards after forward
      fsdp2_offload  the same with CPUOffloadPolicy: parameters, gradients and state lie in the host's memory
AdamW is the fused one, on the GPU and on the host.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import train_step  # noqa: E402

BATCH, TOKENS, VOCABULARY, GROUP = 8, 512, 50257, 5
SIZES = {"small": (768, 12, 12), "medium": (1024, 24, 16)}


def main():
    mode, size, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.manual_seed(1)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    if mode != "alone":
        dist.init_process_group("nccl", device_id=device)
    train_step.TOKENS, train_step.VOCABULARY = TOKENS, VOCABULARY
    model = train_step.GPT2(*SIZES[size])
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    model = model.to(device)
    if mode.startswith("fsdp2"):
        policy = {"offload_policy": CPUOffloadPolicy() if mode.endswith("offload") else OffloadPolicy()}
        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh, **policy)
        fully_shard(model, mesh=mesh, **policy)
    elif mode != "alone":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    if mode == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4, weight_decay=1e-2, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-2, fused=True)
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS + 1)).to(device)

    def backward():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:].reshape(-1))
        loss.backward()
        return loss

    def step():
        loss = backward()
        optimizer.step()
        return loss

    times = []
    for i in range(-1, steps // GROUP):
        start = time.perf_counter()
        for _ in range(GROUP):
            loss = step()
        torch.cuda.synchronize()
        if i >= 0:
            times.append(1e3 * (time.perf_counter() - start) / GROUP)
    backward()
    torch.cuda.synchronize()
    start = time.perf_counter()
    optimizer.step()
    torch.cuda.synchronize()
    of_step = 1e3 * (time.perf_counter() - start)
    print('{"ms": %.2f, "least_ms": %.2f, "optimizer_ms": %.2f, "gpu_mib": %.0f, "loss": %.3f}'
          % (statistics.median(times), min(times), of_step, torch.cuda.max_memory_allocated() / 2**20, loss.item()))
    if mode != "alone":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
