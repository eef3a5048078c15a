"""The peer of bench/train_step.cpp: the same steps in Python, with DistributedDataParallel over Gloo.

    lockstep run -n 2 python bench/peers/train_step.py cnn|resnet18|mlp ddp|bucket_view|zero|fsdp2 STEPS [bf16] [fused] [adamw]

bucket_view: gradient_as_bucket_view=True, so that gradients lie in the buckets instead of beside them. zero: ZeroRedundancyOptimizer
with it. fsdp2: fully_shard of each layer, which reshards after forward. bf16: forward and loss under autocast. fused: SGD or AdamW
with fused=True, one pass over memory.
"""
import pathlib
import re
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "testing"))
import gloo_peer  # noqa: E402

BATCH, BATCHES = 64, 16


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = None
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.norm2(self.conv2(torch.relu_(self.norm1(self.conv1(x)))))
        y += x if self.shortcut is None else self.shortcut(x)
        return torch.relu_(y)


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks, channels_in = [], 64
        for channels in (64, 128, 256, 512):
            blocks += [ResidualBlock(channels_in, channels, 1 if channels == 64 else 2),
                       ResidualBlock(channels, channels, 1)]
            channels_in = channels
        self.stages = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        return self.head(self.average(self.stages(self.pool(torch.relu_(self.norm(self.conv(x)))))).flatten(1))


def mlp():
    layers = [layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(2048, 10))


MODELS = {"cnn": (SimpleCNN, (1, 28, 28)), "resnet18": (ResNet18, (3, 32, 32)), "mlp": (mlp, (2048,))}


def usage():
    return time.monotonic(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_mib(what):
    rollup = open("/proc/self/smaps_rollup").read()
    return int(re.search(rf"^{what}: *(\d+)", rollup, re.M).group(1)) / 1024


def sharded(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.stages if isinstance(model, ResNet18) else model:
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    (make, sample), mode, steps = MODELS[sys.argv[1]], sys.argv[2], int(sys.argv[3])
    bf16, fused = "bf16" in sys.argv[4:], "fused" in sys.argv[4:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    model = sharded(make()) if mode == "fsdp2" else nn.parallel.DistributedDataParallel(make(), gradient_as_bucket_view=mode != "ddp")
    kind, options = (torch.optim.AdamW, {}) if "adamw" in sys.argv[4:] else (torch.optim.SGD, {"momentum": 0.9})
    options |= {"lr": 1e-3, "fused": fused or None}
    optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, **options) if mode == "zero" else kind(model.parameters(), **options)
    data = [torch.randn(BATCH, *sample) for _ in range(BATCHES)]
    target = [torch.randint(10, (BATCH,)) for _ in range(BATCHES)]
    loss_fn = nn.CrossEntropyLoss()
    warm_up = (steps + 4) // 5
    for step in range(warm_up + steps):
        if step == warm_up:
            dist.barrier()
            start = usage()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = loss_fn(model(data[step % BATCHES]), target[step % BATCHES])
        loss.backward()
        optimizer.step()
    seconds, cpu_seconds, faults = (b - a for a, b in zip(start, usage()))
    dist.barrier()  # memory is looked at while all ranks still have theirs
    print('{"samples_per_second": %.2f, "cpu_ms_per_step": %.3f, "faults_per_step": %.1f, "rss_mib": %.1f, "pss_mib": %.1f}'
          % (BATCH * steps / seconds, 1e3 * cpu_seconds / steps, faults / steps, resident_mib("Rss"), resident_mib("Pss")),
          flush=True)
    dist.barrier()
    gloo_peer.leave()


main()
