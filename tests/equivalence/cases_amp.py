"""Mixed precision and activation checkpointing under DistributedDataParallel."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from equivalence import BATCH, Case

SMALL = 0.0005  # MiB: several buckets for a model of a few hundred numbers


def regression():
    x = torch.randn(10, BATCH, 6)
    return {"x": x, "y": torch.tanh(x @ torch.randn(6, 3))}


class _Mixed(Case):
    """float32 alone: autocast leaves float64 as it is."""
    dtypes = (torch.float32,)
    ddp = {"bucket_cap_mb": SMALL}

    def model(self):
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))

    def data(self):
        return regression()


class amp_bf16(_Mixed):
    """bfloat16 autocast, no scaling. Not with 3 ranks: one process divides each rank's loss by their number before backward, and
    dividing by 3 is not exact in bfloat16."""
    ranks = (1, 2, 4)

    def loss(self, model, share):
        with torch.autocast("cpu", torch.bfloat16):
            return nn.functional.mse_loss(model(share["x"]), share["y"])


class amp_bf16_three(amp_bf16):
    """With 3 ranks: to the precision of bfloat16, after 100 steps and relative to gradients that are small by then."""
    ranks = (3,)
    compare_with = ("one process",)
    allowed = 5e-2


class amp_fp16_scaler(_Mixed):
    """float16 autocast and GradScaler, of which one rank alone overflows in some steps: all skip them. Not with 3 ranks, as above."""
    ranks = (1, 2, 4)

    def train(self, place):
        models = self.models()
        place.load(models)
        wrapped = place.wrap(models["model"], **self.ddp)
        optimizer = self.optimizer(models)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=7)
        scales = []

        def loss_of(model, share):
            with torch.autocast("cpu", torch.float16):
                loss = nn.functional.mse_loss(model(share["x"]), share["y"])
            losses.append(loss.item())
            overflows = share.step % 20 in (3, 4, 12) and share.rank == place.ranks - 1
            return scaler.scale(loss) * (float("inf") if overflows else 1.0)

        for place.step in range(self.steps):
            optimizer.zero_grad()
            losses = []
            place.backward(wrapped, loss_of)
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(models["model"].parameters(), 1.0)
            place.record_gradients(models)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            place.record_loss(losses)
        place.record_state(models)
        place.record["scales"] = torch.tensor(scales, dtype=torch.float64)


class checkpoint_dropout(Case):
    """Two checkpointed blocks with dropout, one inside the other, and random numbers of each rank's own."""
    ddp = {"bucket_cap_mb": SMALL}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            block = lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2))
            self.stem, self.first, self.second, self.out = nn.Linear(6, 8), block(), block(), nn.Linear(8, 3)

        def outer(self, x):
            return checkpoint(self.second, torch.tanh(self.first(x)), use_reentrant=False)

        def forward(self, x):
            return self.out(checkpoint(self.outer, self.stem(x), use_reentrant=False))

    def model(self):
        return self.Net()

    def data(self):
        return regression()

    def loss(self, model, share):
        torch.manual_seed(1000 * share.step + share.rank)
        return nn.functional.mse_loss(model(share["x"]), share["y"])
