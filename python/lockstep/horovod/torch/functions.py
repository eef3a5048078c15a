"""Giving every rank one rank's parameters, optimizer state, or object."""
from __future__ import annotations

import io
import pickle
from typing import Optional

import torch

from ._basics import global_process_set, size_of
from ._basics import rank as _rank
from .mpi_ops import allgather, allgather_async, broadcast_, broadcast_async_, synchronize


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


def _bytes_as_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def broadcast_object(obj, root_rank: int = 0, name: Optional[str] = None, process_set=global_process_set):
    """The root's object, pickled, on every rank. Ranks run what they unpickle, so they must trust each other."""
    base = f"object.{name}" if name else None
    is_root = _rank() == root_rank
    data = _bytes_as_tensor(pickle.dumps(obj)) if is_root else None
    size = torch.tensor([data.numel() if is_root else 0])
    broadcast_(size, root_rank, base and f"{base}.size", process_set)
    if not is_root:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, base and f"{base}.data", process_set)
    return obj if is_root else pickle.loads(data.numpy().tobytes())


def allgather_object(obj, name: Optional[str] = None, process_set=global_process_set) -> list:
    """Every rank's object, pickled, in the order of ranks. Ranks run what they unpickle, so they must trust each other."""
    data = _bytes_as_tensor(pickle.dumps(obj))
    base = f"object.{name}" if name else None
    sizes = allgather(torch.tensor([data.numel()]), base and f"{base}.size", process_set).tolist()
    everything = synchronize(allgather_async(data, base and f"{base}.data", process_set)).numpy().tobytes()
    ends = [sum(sizes[:number + 1]) for number in range(size_of(process_set))]
    return [pickle.loads(everything[end - size:end]) for end, size in zip(ends, sizes)]
