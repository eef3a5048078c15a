"""The parts of bench/tensor_parallel.cpp in Python, with tensor parallelism by hand: torch.distributed's all_reduce over
Gloo forward (behind the row-parallel product) and backward (of the input's gradient).

    lockstep run -n 2 .deps/venv/bin/python bench/peers/tensor_parallel.py mlp|attention|block ROUNDS

Prints the same object.
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BATCH, SEQUENCE, WIDTH, HEADS, STEPS = 4, 256, 1024, 16, 4


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        return x

    @staticmethod
    def backward(_context, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.mark_dirty(x)
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_context, gradient):
        return gradient


class Part(nn.Module):
    """Of one rank among `ranks`; of one alone, nothing is exchanged."""

    def __init__(self, ranks):
        super().__init__()
        self.ranks = ranks
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH // ranks), nn.Linear(WIDTH // ranks, WIDTH, bias=ranks == 1)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH // ranks), nn.Linear(4 * WIDTH // ranks, WIDTH, bias=ranks == 1)
        self.bias = nn.ParameterList() if ranks == 1 else nn.ParameterList([torch.zeros(WIDTH), torch.zeros(WIDTH)])

    def enter(self, x):
        return x if self.ranks == 1 else Copy.apply(x)

    def leave(self, x, which):
        return x if self.ranks == 1 else Reduce.apply(x) + self.bias[which]

    def attention(self, x):
        heads = HEADS // self.ranks
        q, k, v = self.qkv(self.enter(x)).view(BATCH, SEQUENCE, 3, heads, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind()
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.leave(self.proj(y.transpose(1, 2).reshape(BATCH, SEQUENCE, -1)), 0)

    def mlp(self, x):
        return self.leave(self.fc2(F.gelu(self.fc1(self.enter(x)), approximate="tanh")), 1)

    def block(self, x):
        y = x + self.attention(self.ln_1(x))
        return y + self.mlp(self.ln_2(y))


def time_steps(part, what, data, slope):
    start = time.perf_counter()
    for _ in range(STEPS):
        part.zero_grad(set_to_none=True)
        x = data.detach().requires_grad_(True)
        getattr(part, what)(x).backward(slope)
    return (time.perf_counter() - start) / STEPS * 1e3


def main():
    what, rounds = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    alone, together = Part(1), Part(dist.get_world_size())
    data = torch.randn(BATCH, SEQUENCE, WIDTH)
    slope = torch.randn_like(data)
    of_one, of_all = [], []
    for number in range(-2, rounds):
        one = time_steps(alone, what, data, slope) if dist.get_rank() == 0 else 0
        dist.barrier()
        both = time_steps(together, what, data, slope)
        dist.barrier()
        if number >= 0:
            of_one.append(one)
            of_all.append(both)
    if dist.get_rank() == 0:
        print(json.dumps({"part": what, "ranks": dist.get_world_size(), "peer": "torch by hand, Gloo",
                          "one_process_ms": round(statistics.median(of_one), 1),
                          "tensor_parallel_ms": round(statistics.median(of_all), 1),
                          "ratio": round(statistics.median(a / b for a, b in zip(of_all, of_one)), 3)}))
    dist.destroy_process_group()


main()
