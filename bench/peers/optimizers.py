"""The peer of bench/optimizers.cpp: the same steps by Python's torch.optim, on one thread.

    python bench/peers/optimizers.py loop|foreach|fused STEPS
"""
import statistics
import sys
import time

import torch


def parameters():
    torch.manual_seed(1)
    made = []
    for _ in range(25):
        for shape in ((1000, 1000), (1000,)):
            p = torch.randn(shape)
            p.grad = torch.randn(shape)
            made.append(p)
    return made


def measure(name, steps, make):
    optimizer = make(parameters())
    wall, cpu = [], []
    for s in range(-2, steps):
        start, cpu_start = time.monotonic(), time.process_time()
        optimizer.step()
        if s >= 0:
            cpu.append(1e3 * (time.process_time() - cpu_start))
            wall.append(1e3 * (time.monotonic() - start))
    print(f'{{"optimizer": "{name}", "ms": {statistics.median(wall):.3f}, "cpu_ms": {statistics.median(cpu):.3f}}}')


way, steps = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
how = {"foreach": way == "foreach", "fused": way == "fused"}
measure("SGD", steps, lambda p: torch.optim.SGD(p, 0.01, **how))
measure("SGD, momentum, weight decay", steps, lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=1e-4, **how))
measure("Adam", steps, lambda p: torch.optim.Adam(p, **how))
measure("AdamW", steps, lambda p: torch.optim.AdamW(p, **how))
