"""The peer of bench/mnist_step.cpp: the same steps in Python, with DistributedDataParallel over Gloo or alone.

    lockstep run -n 2 python bench/peers/mnist_step.py ddp STEPS
"""
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

BATCH, BATCHES = 64, 16


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        return self.fc2(self.relu(self.fc1(x.view(-1, 64 * 7 * 7))))


def main():
    mode, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = SimpleCNN()
    if mode == "ddp":
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = [torch.randn(BATCH, 1, 28, 28) for _ in range(BATCHES)]
    target = [torch.randint(10, (BATCH,)) for _ in range(BATCHES)]
    loss_fn = nn.CrossEntropyLoss()
    warm_up = steps // 5
    for step in range(warm_up + steps):
        if step == warm_up:
            if mode == "ddp":
                dist.barrier()
            start, cpu_start = time.monotonic(), time.process_time()
        optimizer.zero_grad()
        loss_fn(model(data[step % BATCHES]), target[step % BATCHES]).backward()
        optimizer.step()
    seconds, cpu_seconds = time.monotonic() - start, time.process_time() - cpu_start
    print('{"images_per_second": %.2f, "cpu_ms_per_step": %.3f}' % (BATCH * steps / seconds, 1e3 * cpu_seconds / steps),
          flush=True)
    if mode == "ddp":
        dist.destroy_process_group()


main()
