"""Giving every rank one rank's parameters or optimizer state."""
from __future__ import annotations

import io

import torch

from .._basics import global_process_set
from .._basics import rank as _rank
from .._objects import broadcast_object
from .mpi_ops import broadcast_async_, synchronize


def broadcast_parameters(params, root_rank, process_set=global_process_set) -> None:
    """The root's values, in place. params: a state_dict, or (name, tensor) pairs such as named_parameters()."""
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, (list, tuple)) or hasattr(params, "__iter__"):
        pairs = [pair if isinstance(pair, tuple) else (f"broadcast_parameters.{number}", pair) for number, pair in enumerate(params)]
    else:
        raise ValueError(f"invalid params of type {type(params).__name__}: give a state_dict or named_parameters()")
    with torch.no_grad():
        handles = [broadcast_async_(tensor, root_rank, name, process_set) for name, tensor in pairs if isinstance(tensor, torch.Tensor)]
        for handle in handles:
            synchronize(handle)


def broadcast_optimizer_state(optimizer, root_rank, model=None, process_set=global_process_set) -> None:
    """The root's state and options, on every rank. An optimizer that has made no step yet stays as it is: nothing is stepped."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    buffer = io.BytesIO()
    is_root = _rank() == root_rank
    if is_root:
        torch.save(optimizer.state_dict(), buffer)
    sent = broadcast_object(buffer.getvalue() if is_root else None, root_rank, "optimizer_state", process_set)
    if not is_root:
        optimizer.load_state_dict(torch.load(io.BytesIO(sent), weights_only=False))
