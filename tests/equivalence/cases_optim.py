"""Optimisers, clipping, accumulation and schedules on top of DDP. Where Python has no such optimiser, it is written out here from
its paper."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from equivalence import BATCH, Case

SMALL = 0.0005  # MiB: several buckets for a model of a few hundred numbers


class _Regression(Case):
    ddp = {"bucket_cap_mb": SMALL}

    def model(self):
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

    def data(self):
        x = torch.randn(10, BATCH, 6)
        return {"x": x, "y": torch.sin(x @ torch.randn(6, 3))}

    def loss(self, model, share):
        return nn.functional.mse_loss(model(share["x"]), share["y"])


class adamw(_Regression):
    """AdamW with amsgrad, two parameter groups."""

    def optimizer(self, models):
        weights = [p for p in models["model"].parameters() if p.dim() > 1]
        others = [p for p in models["model"].parameters() if p.dim() <= 1]
        return torch.optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                 lr=0.01, amsgrad=True)


class zero_redundancy(_Regression):
    """AdamW, which several processes share out by ZeroRedundancyOptimizer."""

    def optimizer(self, models):
        parameters = list(models["model"].parameters())
        if not dist.is_initialized():
            return torch.optim.AdamW(parameters, lr=0.01)
        return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=0.01)


class sgd(_Regression):
    """SGD with nesterov and weight decay; the rates of a cosine with linear warm-up, set before each step."""

    def optimizer(self, models):
        return torch.optim.SGD(models["model"].parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)

    def train(self, place):
        models = self.models()
        place.load(models)
        wrapped = place.wrap(models["model"], **self.ddp)
        optimizer = self.optimizer(models)
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 10)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 90)
        scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [10])
        for place.step in range(self.steps):
            optimizer.zero_grad()
            losses = place.backward(wrapped, self.loss)
            place.record_gradients(models)
            optimizer.step()
            scheduler.step()
            place.record_loss(losses)
        place.record_state(models)


class _LARS(torch.optim.Optimizer):
    """You, Gitman and Ginsburg (2017), Algorithm 1; parameters of at most one dimension by plain momentum, without decay."""

    def __init__(self, params, lr, eta, weight_decay, momentum=0.9):
        super().__init__(params, {"lr": lr, "eta": eta, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                g, local, decay = w.grad, 1.0, 0.0
                if w.dim() > 1:
                    decay = group["weight_decay"]
                    local = group["eta"] * w.norm() / (g.norm() + decay * w.norm())
                v = self.state[w].setdefault("v", torch.zeros_like(w))
                v.mul_(group["momentum"]).add_(group["lr"] * local * (g + decay * w))
                w.sub_(v)


class lars(_Regression):
    def optimizer(self, models):
        return _LARS(models["model"].parameters(), lr=0.1, eta=0.05, weight_decay=0.01)


class _LAMB(torch.optim.Optimizer):
    """You et al. (2019), Algorithm 2, with phi the identity; parameters of at most one dimension without decay and ratio."""

    def __init__(self, params, lr, weight_decay, betas=(0.9, 0.999), eps=1e-6):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for x in group["params"]:
                state = self.state[x]
                if not state:
                    state.update(t=0, m=torch.zeros_like(x), v=torch.zeros_like(x))
                state["t"] += 1
                state["m"] = beta1 * state["m"] + (1 - beta1) * x.grad
                state["v"] = beta2 * state["v"] + (1 - beta2) * x.grad ** 2
                m, v = state["m"] / (1 - beta1 ** state["t"]), state["v"] / (1 - beta2 ** state["t"])
                update, ratio = m / (v.sqrt() + group["eps"]), 1.0
                if x.dim() > 1:
                    update = update + group["weight_decay"] * x
                    ratio = x.norm() / update.norm()
                x.sub_(group["lr"] * ratio * update)


class lamb(_Regression):
    def optimizer(self, models):
        return _LAMB(models["model"].parameters(), lr=0.02, weight_decay=0.05)


class clip_norm(_Regression):
    """Clipping by the global norm, which bites in most steps."""

    def after_backward(self, model):
        nn.utils.clip_grad_norm_(model.parameters(), 0.2)


class clip_value(_Regression):
    """Clipping by value."""

    def after_backward(self, model):
        nn.utils.clip_grad_value_(model.parameters(), 0.02)


class accumulate_means(_Regression):
    """Two micro-batches of equal size per step, with their mean losses, then clipping."""
    micros = 2

    def loss(self, model, share):
        return super().loss(model, share) / self.micros

    def after_backward(self, model):
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)


class accumulate_tokens(_Regression):
    """Two micro-batches of unequal numbers of tokens, also from rank to rank: every token of a step counts the same."""
    micros = 2

    def data(self):
        mask = (torch.rand(10, BATCH) < torch.rand(10, BATCH)).double()
        return super().data() | {"mask": mask, "total": mask.sum(1, keepdim=True).expand(10, BATCH)}

    def loss(self, model, share):
        ranks = BATCH // (self.micros * len(share["x"]))  # DDP divides by them
        squares = ((model(share["x"]) - share["y"]) ** 2).mean(1)
        return (squares * share["mask"]).sum() * (ranks / share["total"][0])
