"""The peer of bench/train_step.cpp: the same steps in Python, with DistributedDataParallel over Gloo.

    lockstep run -n 2 python bench/peers/train_step.py cnn|resnet18|mlp|gpt2 MODE STEPS [bf16] [fused] [adamw] [lockstep]

MODE     ddp
         bucket_view   ddp with gradient_as_bucket_view=True, so that gradients lie in the buckets instead of beside them
         zero          ZeroRedundancyOptimizer with it
         fsdp2         fully_shard of each layer, which reshards after forward
         fsdp2_keep    the same, which keeps parameters until backward
         deepspeed1    DeepSpeed, with that stage of ZeRO, also 2 and 3, and its own loop; adamw only
bf16     forward and loss under autocast
fused    SGD or AdamW with fused=True, one pass over memory
lockstep the backend lockstep (python/lockstep/torch) instead of Gloo
"""
import os
import pathlib
import re
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "testing"))
import gloo_peer  # noqa: E402

BATCHES, TOKENS, VOCABULARY = 16, 128, 256


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


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        parts = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.attention(self.ln_1(x)).split(width, dim=2))
        x = x + self.project(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(n, t, width))
        return x + self.narrow(F.gelu(self.widen(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, width=384, layers=6, heads=6):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = self.tokens(x) + self.positions.weight
        for block in self.blocks:
            y = block(y)
        return F.linear(self.norm(y), self.tokens.weight).flatten(0, 1)


# How to make it, samples a batch, shape of a sample, number of classes.
MODELS = {"cnn": (SimpleCNN, 64, (1, 28, 28), 10), "resnet18": (ResNet18, 64, (3, 32, 32), 10), "mlp": (mlp, 64, (2048,), 10),
          "gpt2": (GPT2, 8, (TOKENS,), VOCABULARY)}


def usage():
    return time.monotonic(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_mib(what):
    rollup = open("/proc/self/smaps_rollup").read()
    return int(re.search(rf"^{what}: *(\d+)", rollup, re.M).group(1)) / 1024


def sharded(model, keeps):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = {ResNet18: lambda: model.stages, GPT2: lambda: model.blocks}.get(type(model), lambda: model)()
    for layer in layers:
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, mesh=mesh, reshard_after_forward=not keeps)
    return fully_shard(model, mesh=mesh, reshard_after_forward=not keeps)


def step_of_torch(model, mode, words):
    """Wraps the model; returns what a step does with a batch."""
    if mode.startswith("fsdp2"):
        model = sharded(model, keeps=mode == "fsdp2_keep")
    else:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=mode != "ddp")
    kind, options = (torch.optim.AdamW, {}) if "adamw" in words else (torch.optim.SGD, {"momentum": 0.9})
    options |= {"lr": 1e-3, "fused": "fused" in words or None}
    optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, **options) if mode == "zero" else kind(model.parameters(), **options)

    def step(x, target):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in words):
            loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()

    return step


def step_of_deepspeed(model, stage, batch):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed  # of scripts/setup --bench
    deepspeed.init_distributed("gloo", verbose=False)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": batch, "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}})

    def step(x, target):
        engine.backward(F.cross_entropy(engine(x), target))
        engine.step()

    return step


def main():
    (make, batch, sample, classes), mode, steps, words = MODELS[sys.argv[1]], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if "lockstep" in words:
        import lockstep.torch  # noqa: F401
    dist.init_process_group("lockstep" if "lockstep" in words else "gloo")
    is_text = make is GPT2
    step = step_of_deepspeed(make(), int(mode[-1]), batch) if mode.startswith("deepspeed") else step_of_torch(make(), mode, words)
    data = [torch.randint(classes, (batch, *sample)) if is_text else torch.randn(batch, *sample) for _ in range(BATCHES)]
    target = [torch.randint(classes, (batch * TOKENS if is_text else batch,)) for _ in range(BATCHES)]
    warm_up = (steps + 4) // 5
    for number in range(warm_up + steps):
        if number == warm_up:
            dist.barrier()
            start = usage()
        step(data[number % BATCHES], target[number % BATCHES])
    seconds, cpu_seconds, faults = (b - a for a, b in zip(start, usage()))
    dist.barrier()  # memory is looked at while all ranks still have theirs
    print('{"samples_per_second": %.2f, "cpu_ms_per_step": %.3f, "faults_per_step": %.1f, "rss_mib": %.1f, "pss_mib": %.1f}'
          % (batch * steps / seconds, 1e3 * cpu_seconds / steps, faults / steps, resident_mib("Rss"), resident_mib("Pss")),
          flush=True)
    dist.barrier()
    gloo_peer.leave()


if __name__ == "__main__":
    main()
