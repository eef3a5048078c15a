"""The peer of bench/pipeline_step.cpp: torch.distributed.pipelining over Gloo, with the same models.

    lockstep run -n 2 python bench/peers/pipeline_step.py mlp|gpt MICRO_BATCHES ROUNDS [SCHEDULE] [lockstep]

Prints the same JSON objects, of the schedules whose name begins so. `lockstep` takes the backend lockstep
(python/lockstep/torch) instead of Gloo.
"""
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "testing"))
import gloo_peer  # noqa: E402


class Block(nn.Module):
    """A block of GPT-2: layer norm, causal attention, layer norm, gelu."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(width, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp_proj(nn.functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


def layers_of(model):
    torch.manual_seed(1)
    if model == "mlp":
        return [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(16)], torch.randn(256, 1024)
    return [Block(384, 6) for _ in range(8)], torch.randn(16, 128, 384)


def part(layers, index, parts):
    size = len(layers) // parts
    return nn.Sequential(*layers[index * size:(index + 1) * size])


def run_halves(net, batch, micro_batches):
    dist.barrier()
    start = time.perf_counter()
    for piece in batch.chunk(micro_batches):
        output = net(piece.detach().requires_grad_())
        output.backward(torch.ones_like(output))
    dist.barrier()
    return 1e3 * (time.perf_counter() - start)


def make_schedules(layers, micro_batches, rank, size):
    def stage(index, count):
        return PipelineStage(part(layers, index, count), index, count, torch.device("cpu"))

    loss = nn.functional.mse_loss
    return {
        "gpipe": (ScheduleGPipe(stage(rank, size), micro_batches, loss_fn=loss), rank == size - 1),
        "1f1b": (Schedule1F1B(stage(rank, size), micro_batches, loss_fn=loss), rank == size - 1),
        "1f1b x2": (ScheduleInterleaved1F1B([stage(rank, 2 * size), stage(size + rank, 2 * size)], micro_batches, loss_fn=loss),
                    rank == size - 1),
        "zb-v": (ScheduleZBVZeroBubble([stage(rank, 2 * size), stage(2 * size - 1 - rank, 2 * size)], micro_batches, loss_fn=loss),
                 rank == 0),
    }


def main(model, micro_batches, rounds, beginning, backend):
    torch.set_num_threads(1)
    if backend == "lockstep":
        import lockstep.torch  # noqa: F401
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    layers, batch = layers_of(model)
    half = part(layers, rank, size)
    schedules = {name: schedule for name, schedule in make_schedules(layers, micro_batches, rank, size).items()
                 if name.startswith(beginning)}
    halves, times, ratios = [], {name: [] for name in schedules}, {name: [] for name in schedules}
    for number in range(-3, rounds):
        alone = run_halves(half, batch, micro_batches)
        for name, (schedule, has_loss) in schedules.items():
            dist.barrier()
            start = time.perf_counter()
            inputs = [batch] if rank == 0 else []
            schedule.step(*inputs, **({"target": batch, "losses": []} if has_loss else {}))
            ms = 1e3 * (time.perf_counter() - start)
            if number >= 0:
                times[name].append(ms)
                ratios[name].append(ms / alone)
        if number >= 0:
            halves.append(alone)
    common = {"model": model, "micro_batches": micro_batches}
    print(json.dumps({**common, "schedule": "halves", "ms": round(statistics.median(halves), 2)}), flush=True)
    for name in schedules:
        print(json.dumps({**common, "schedule": name, "ms": round(statistics.median(times[name]), 2),
                          "times_halves": round(statistics.median(ratios[name]), 3)}), flush=True)
    dist.barrier()
    gloo_peer.leave()


if __name__ == "__main__":
    words = [word for word in sys.argv[4:] if word != "lockstep"]
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), words[0] if words else "", "lockstep" if "lockstep" in sys.argv[4:] else "gloo")
