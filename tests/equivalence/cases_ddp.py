"""What DistributedDataParallel itself promises: each option trains as one process, and as Python's DDP."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from equivalence import BATCH, Case

SMALL = 0.0005  # MiB: several buckets for a model of a few hundred numbers


def regression(batches=10):
    x = torch.randn(batches, BATCH, 6)
    return {"x": x, "y": torch.tanh(x @ torch.randn(6, 3))}


def mse(model, share):
    return nn.functional.mse_loss(model(share["x"]), share["y"])


class plain(Case):
    """A convolutional net with a frozen bias."""
    ddp = {"bucket_cap_mb": SMALL}

    def model(self):
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(96, 3))
        net[0].bias.requires_grad_(False)
        return net

    def data(self):
        x = torch.randn(10, BATCH, 1, 8, 8)
        return {"x": x, "y": torch.tanh(x.flatten(2)[..., :6] @ torch.randn(6, 3))}

    loss = staticmethod(mse)


class tied(Case):
    """Two layers share their weight, which has two names."""
    ddp = {"bucket_cap_mb": SMALL}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(0.4 * torch.randn(6, 6))
            self.same = self.weight
            self.out = nn.Linear(6, 3)

        def forward(self, x):
            return self.out(torch.tanh(torch.tanh(x @ self.weight) @ self.weight.t()))

    def model(self):
        return self.Net()

    def data(self):
        return regression()

    loss = staticmethod(mse)


class buffers(Case):
    """Batch normalisation: every rank starts each step with rank 0's running statistics."""
    ddp = {"bucket_cap_mb": SMALL}

    def model(self):
        return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(),  # a bias would have no gradient but noise
                             nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def data(self):
        return regression()

    loss = staticmethod(mse)


class accumulation(buffers):
    """Two micro-batches per step, the first under no_sync; batch normalisation, whose buffers no_sync leaves alone."""
    micros = 2


class _Branches(nn.Module):
    """Three branches of which each forward takes one, and a fourth that none takes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.branches = nn.ModuleList(nn.Linear(8, 3) for _ in range(4))

    def forward(self, x, branch):
        return self.branches[branch](torch.tanh(self.stem(x)))


class unused(Case):
    """Each rank takes another branch at each step; the last branch stays without gradient for good."""
    ddp = {"bucket_cap_mb": SMALL, "find_unused_parameters": True}

    def model(self):
        return _Branches()

    def data(self):
        return regression()

    def loss(self, model, share):
        return nn.functional.mse_loss(model(share["x"], (share.step + share.rank) % 3), share["y"])


class static_graph(Case):
    """Two checkpointed blocks share their weights; each rank has a branch of its own, one branch is nobody's."""
    ddp = {"bucket_cap_mb": SMALL, "static_graph": True}

    class Net(_Branches):
        def __init__(self):
            super().__init__()
            self.shared = nn.Linear(8, 8)

        def forward(self, x, branch):
            h = torch.tanh(self.stem(x))
            for _ in range(2):
                h = checkpoint(lambda h: torch.tanh(self.shared(h)), h, use_reentrant=True)
            return self.branches[branch](h)

    def model(self):
        return self.Net()

    def data(self):
        return regression()

    def loss(self, model, share):
        return nn.functional.mse_loss(model(share["x"], share.rank % 3), share["y"])


class twice(Case):
    """The model is called twice before one backward."""
    ddp = {"bucket_cap_mb": SMALL}

    def model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def data(self):
        return regression()

    def loss(self, model, share):
        return nn.functional.mse_loss(model(share["x"]) - model(share["x"].flip(1)), share["y"])


class sparse(Case):
    """An embedding with sparse gradients, and dense layers after it."""
    ddp = {"bucket_cap_mb": SMALL}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(40, 6, sparse=True)
            self.out = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

        def forward(self, words):
            return self.out(self.table(words).mean(1))

    def model(self):
        return self.Net()

    def optimizer(self, models):
        return torch.optim.SGD(models["model"].parameters(), lr=0.5)

    def data(self):
        words = torch.randint(0, 40, (10, BATCH, 4))
        return {"words": words, "y": torch.tanh(torch.randn(40, 3)[words].mean(2))}

    def loss(self, model, share):
        return nn.functional.mse_loss(model(share["words"]), share["y"])


class adversaries(Case):
    """Two models; the discriminator runs two backward passes per step and is called with what the generator made."""
    ddp = {"bucket_cap_mb": SMALL}
    falls = False  # one gains what the other loses

    def models(self):
        return {"g": nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)),
                "d": nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))}

    def data(self):
        return {"real": 0.5 + 0.3 * torch.randn(10, BATCH, 4), "noise": torch.randn(10, BATCH, 2)}

    def train(self, place):
        models = self.models()
        place.load(models)
        g, d = (place.wrap(models[name], **self.ddp) for name in "gd")
        steps = {name: torch.optim.SGD(models[name].parameters(), lr=0.05) for name in "gd"}
        softplus = nn.functional.softplus
        for place.step in range(self.steps):
            steps["d"].zero_grad()
            real = place.backward(d, lambda d, share: softplus(-d(share["real"])).mean())
            place.backward(d, lambda d, share: softplus(d(g(share["noise"]).detach())).mean())
            steps["d"].step()
            steps["g"].zero_grad()
            place.backward(g, lambda g, share: softplus(-d(g(share["noise"]))).mean())
            steps["g"].step()
            place.record_loss(real)
        place.record_state(models)


