"""Communication hooks: as Python's of the same name over Gloo; powerSGD also as one process that compresses the mean gradient."""
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from cases_ddp import mse, regression
from equivalence import Case, Gloo

_ONE_BUCKET = {"bucket_cap_mb": 25}  # random numbers are drawn per bucket


class _Hooked(Case):
    """`hook` is what Python's DDP registers, `state` makes its state."""
    ddp = _ONE_BUCKET
    hook = state = None

    def model(self):
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))

    def data(self):
        return regression()

    loss = staticmethod(mse)

    def train(self, place):
        models = self.models()
        place.load(models)
        model = place.wrap(models["model"], **self.ddp)
        alone = not isinstance(place, Gloo)
        compress = self.alone(models["model"], place.dtype) if alone else lambda step: None
        if not alone:
            model.register_comm_hook(self.state(), self.hook)
        optimizer = self.optimizer(models)
        for place.step in range(self.steps):
            optimizer.zero_grad()
            losses = place.backward(model, self.loss)
            compress(place.step)
            place.record_gradients(models)
            optimizer.step()
            place.record_loss(losses)
        place.record_state(models)


class fp16_compress(_Hooked):
    """One process has no gradients of single ranks to round, so only Gloo is the model. With two ranks its division before the
    sum and ours after it give the same bits, except of numbers too small for float16 when halved: as in practice the loss is
    scaled up, by 1024."""
    ranks = (2,)
    scale = 1024

    def loss(self, model, share):
        return self.scale * mse(model, share)

    def optimizer(self, models):
        return torch.optim.SGD(models["model"].parameters(), lr=0.05 / self.scale, momentum=0.9)

    compare_with = ("gloo",)
    hook = staticmethod(default_hooks.fp16_compress_hook)
    state = staticmethod(lambda: None)


def _bf16_compress(state, bucket):  # DDP refuses Python's own on the CPU, by its name
    return default_hooks.bf16_compress_hook(state, bucket)


class bf16_compress(fp16_compress):
    """The same with bfloat16."""
    hook = staticmethod(_bf16_compress)


class powerSGD(_Hooked):
    """Rank 1, after two plain steps, with error feedback and warm start. What the ranks send is linear in what they contribute,
    so compressing the mean is the same. Between directions of nearly equal weight roundings decide: they grow by a factor of
    1e8 in 100 steps, so float32 says nothing and float64 is compared to a part in 100,000."""
    rank = 1
    dtypes, allowed = (torch.float64,), 1e-5
    hook = staticmethod(powerSGD_hook.powerSGD_hook)

    def state(self):
        return powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=self.rank, start_powerSGD_iter=2)

    def alone(self, model, dtype):
        """The algorithm of the paper, on the gradients of one process."""
        import numpy
        matrices = [p for p in reversed(list(model.parameters()))
                    if p.dim() > 1 and 2 * self.rank * (len(p) + p[0].numel()) < p.numel()]
        errors, qs = [torch.zeros_like(p) for p in matrices], []

        def orthogonal(matrix):
            q, r = torch.linalg.qr(matrix)
            return q * torch.sign(torch.diagonal(r)) if self.rank <= 2 else q  # Gram-Schmidt keeps directions

        def compress(step):
            if step < 2:
                return
            if not qs:
                torch.manual_seed(numpy.random.RandomState(0).randint(1_000_000_000))
                qs.extend(torch.randn(p[0].numel(), self.rank, dtype=dtype) for p in matrices)
            for i, p in enumerate(matrices):
                mean = p.grad + errors[i]
                left = orthogonal(mean @ orthogonal(qs[i]))
                qs[i] = mean.t() @ left
                p.grad = left @ qs[i].t()
                errors[i] = mean - p.grad

        return compress


class powerSGD_rank3(powerSGD):
    """Rank 3: Python and we orthogonalise by QR then. Less is left out, so roundings grow less."""
    rank = 3
    allowed = 1e-10
