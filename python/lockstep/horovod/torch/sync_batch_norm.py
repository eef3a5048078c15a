"""SyncBatchNorm: batch normalisation over the batches of all ranks together, on the CPU too."""
from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._basics import global_process_set, size
from .mpi_ops import Sum, allgather_async, allreduce_async, synchronize


class SyncBatchNorm(_BatchNorm):
    """Takes the place of BatchNorm1d, 2d and 3d. Batches may differ in size: ranks are weighted by their number of values.

    In eval mode, and for one rank, it is plain batch normalisation.
    """

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input):
        self._check_input_dim(input)
        if not (self.training or self.running_mean is None) or size() == 1:
            return super().forward(input)
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        momentum = self.momentum if self.momentum is not None else 1.0 / float(max(int(self.num_batches_tracked), 1))
        return _SyncBatchNorm.apply(input, self.weight, self.bias, self.running_mean, self.running_var, self.eps, momentum)


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.to(like.dtype).view(1, -1, *([1] * (like.dim() - 2)))


class _SyncBatchNorm(torch.autograd.Function):
    # Counts, means and sums of squared deviations are combined in float64 (Chan et al., 1979).
    @staticmethod
    def forward(context, input, weight, bias, running_mean, running_var, eps, momentum):
        dims = [0, *range(2, input.dim())]
        count = float(input.numel() // max(input.shape[1], 1))
        exact = input.detach().double()
        mean = exact.mean(dims) if count else torch.zeros(input.shape[1], dtype=torch.float64)
        squares = (exact - _per_channel(mean, exact)).square().sum(dims)
        own = torch.cat([torch.tensor([count], dtype=torch.float64), mean, squares]).unsqueeze(0)
        everyone = synchronize(allgather_async(own, None, global_process_set))
        counts, means, squares = everyone[:, :1], everyone[:, 1:1 + input.shape[1]], everyone[:, 1 + input.shape[1]:]
        total = counts.sum()
        if total <= 1:
            raise ValueError("Expected more than 1 value per channel when training")
        mean = (counts * means).sum(0) / total
        squares = (squares + counts * (means - mean).square()).sum(0)
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
        inverse = (squares / total + eps).rsqrt()
        context.save_for_backward(input, weight, mean, inverse)
        context.total = float(total)
        normal = (input - _per_channel(mean, input)) * _per_channel(inverse, input)
        return normal if weight is None else normal * _per_channel(weight, input) + _per_channel(bias, input)

    @staticmethod
    def backward(context, gradient):
        input, weight, mean, inverse = context.saved_tensors
        dims = [0, *range(2, input.dim())]
        centred = input - _per_channel(mean, input)
        sums = torch.stack([gradient.double().sum(dims), (gradient * centred).double().sum(dims)])
        bias_gradient = sums[0].to(input.dtype) if weight is not None else None
        weight_gradient = (sums[1] * inverse).to(input.dtype) if weight is not None else None
        whole = synchronize(allreduce_async(sums, op=Sum)) / context.total
        scale = inverse if weight is None else inverse * weight.double()
        input_gradient = _per_channel(scale, input) * (gradient - _per_channel(whole[0], input)
                                                       - centred * _per_channel(inverse.square() * whole[1], input))
        return input_gradient, weight_gradient, bias_gradient, None, None, None, None
