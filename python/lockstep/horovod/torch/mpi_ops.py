"""Horovod's verbs: NAME is blocking and differentiable, NAME_ is in place, NAME_async gives a handle for poll() and synchronize()."""
from __future__ import annotations

from typing import Optional, Sequence

import torch

from .._basics import Adasum, Average, Max, Min, ProcessSet, Product, Sum, choose_op, global_process_set, size_of
from .._basics import rank as _rank
from .._objects import barrier, join
from . import _operations as operations
from ._operations import poll, synchronize
from .compression import Compression

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async",
           "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_",
           "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
           "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "join", "poll", "reducescatter",
           "reducescatter_async", "sparse_allreduce_async", "synchronize"]


# ---------------------------------------------------------------- allreduce

def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Starts the reduction into a new tensor."""
    return operations.allreduce_tensor(tensor, None, name, choose_op(op, average), prescale_factor, postscale_factor, process_set)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Starts the reduction in place."""
    return operations.allreduce_tensor(tensor, tensor, name, choose_op(op, average), prescale_factor, postscale_factor, process_set)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(context, options, is_group, *tensors):
        context.options, context.is_group = options, is_group
        name, op, prescale, postscale, process_set = options
        if is_group:
            outputs = [operations.new_like(tensor) for tensor in tensors]
            return tuple(synchronize(operations.allreduce_tensors(tensors, outputs, name, op, prescale, postscale, process_set)))
        return (synchronize(operations.allreduce_tensor(tensors[0], None, name, op, prescale, postscale, process_set)),)

    @staticmethod
    def backward(context, *gradients):
        _name, op, prescale, postscale, process_set = context.options
        return (None, None, *_Allreduce.apply((None, op, prescale, postscale, process_set), context.is_group, *gradients))


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0,
              process_set=global_process_set):
    """The reduction of all ranks' tensors, by default their average. The gradient is reduced the same way."""
    small, context = compression.compress(tensor)
    options = (name, choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return compression.decompress(_Allreduce.apply(options, False, small)[0], context)


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """Starts reductions that run together or not at all. The handle's result is a list."""
    return operations.allreduce_tensors(tensors, [operations.new_like(tensor) for tensor in tensors], name, choose_op(op, average), prescale_factor,
                                        postscale_factor, process_set)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    return operations.allreduce_tensors(tensors, tensors, name, choose_op(op, average), prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0, postscale_factor=1.0,
                      process_set=global_process_set):
    small, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    options = (name, choose_op(op, average), prescale_factor, postscale_factor, process_set)
    return [compression.decompress(one, context) for one, context in zip(_Allreduce.apply(options, True, *small), contexts)]


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Starts the reduction of a sparse tensor: all ranks' indices and values are gathered. The handle's result is coalesced."""
    if op not in (Average, Sum):
        raise ValueError("a sparse tensor has Average and Sum alone")
    tensor = tensor.coalesce()
    parts = [operations.allgather_tensors([tensor.indices().t().contiguous()], f"{name}.indices", process_set, False),
             operations.allgather_tensors([tensor.values()], f"{name}.values", process_set, False)]
    ranks = size_of(process_set)

    def finish(gathered):
        indices, values = gathered
        if op == Average:
            values = values / ranks
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
    return operations.combined(parts, finish)


# ---------------------------------------------------------------- allgather

def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts the concatenation of all ranks' tensors along the first dimension, in which they may differ."""
    return operations.allgather_tensors([tensor], name, process_set, False)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    return operations.allgather_tensors(tensors, name, process_set, True)


def _own_slice(gradient: torch.Tensor, rows: int, process_set: ProcessSet) -> torch.Tensor:
    """This rank's rows of a tensor of all ranks' rows."""
    everyone = synchronize(allgather_async(torch.tensor([rows]), None, process_set)).tolist()
    place = process_set.rank() if process_set.process_set_id else _rank()
    return gradient.narrow(0, sum(everyone[:place]), rows)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(context, name, process_set, is_group, *tensors):
        context.process_set, context.rows = process_set, [tensor.shape[0] for tensor in tensors if tensor.dim()]
        made = synchronize(operations.allgather_tensors(tensors, name, process_set, is_group))
        return tuple(made) if is_group else (made,)

    @staticmethod
    def backward(context, *gradients):
        averaged = [synchronize(allreduce_async(one, op=Average, process_set=context.process_set)) for one in gradients]
        return (None, None, None, *(_own_slice(one, rows, context.process_set) for one, rows in zip(averaged, context.rows)))


def allgather(tensor, name=None, process_set=global_process_set):
    """All ranks' tensors, one behind the other. Of the gradient, the average of this rank's rows, as in Horovod."""
    return _Allgather.apply(name, process_set, False, tensor)[0]


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    return list(_Allgather.apply(name, process_set, True, *tensors))


# ---------------------------------------------------------------- broadcast

def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts copying the root's tensor into a new one. The root is a rank of the job."""
    return operations.broadcast_tensor(tensor, operations.new_like(tensor), root_rank, name, process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    return operations.broadcast_tensor(tensor, tensor, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(context, tensor, root_rank, name, process_set):
        context.root_rank, context.process_set = root_rank, process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(context, gradient):
        averaged = synchronize(allreduce_async(gradient, op=Average, process_set=context.process_set))
        return (averaged if _rank() == context.root_rank else torch.zeros_like(averaged)), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor, on every rank. The root's gradient is the average of all, the others' is zero, as in Horovod."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


# ---------------------------------------------------------------- alltoall, reducescatter

def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Starts sending splits[r] rows to rank r; without splits, equal parts. The result is (tensor, received splits) if splits are given."""
    return operations.alltoall_tensor(tensor, splits, name, process_set)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(context, tensor, splits, name, process_set):
        context.process_set = process_set
        ranks = size_of(process_set)
        if splits is None and tensor.dim() and tensor.shape[0] % ranks == 0:
            splits = [tensor.shape[0] // ranks] * ranks
        made = synchronize(alltoall_async(tensor, splits, name, process_set))
        output, received = made
        context.received = received
        context.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(context, gradient, _received):
        return synchronize(alltoall_async(gradient, context.received, None, context.process_set))[0], None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Rows for each rank. With splits the result is (tensor, received splits). The gradient goes back the same way."""
    if splits is None and tensor.dim() and tensor.shape[0] % size_of(process_set) != 0:
        return synchronize(alltoall_async(tensor, None, name, process_set))  # which refuses it
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Starts the reduction of which each rank gets a part of the first dimension; lower ranks get one row more if it is uneven."""
    return operations.reducescatter_tensors([tensor], name, op, prescale_factor, postscale_factor, process_set, False)


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    return operations.reducescatter_tensors(tensors, name, op, prescale_factor, postscale_factor, process_set, True)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(context, options, is_group, *tensors):
        name, op, prescale, postscale, process_set = options
        context.options = options
        made = synchronize(operations.reducescatter_tensors(tensors, name, op, prescale, postscale, process_set, is_group))
        return tuple(made) if is_group else (made,)

    @staticmethod
    def backward(context, *gradients):
        _name, op, prescale, postscale, process_set = context.options
        factor = prescale * postscale * (size_of(process_set) if op == Sum else 1)
        return (None, None, *(synchronize(allgather_async(one, None, process_set)) * factor for one in gradients))


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set, prescale_factor=1.0,
                  postscale_factor=1.0):
    """This rank's part of the reduction. The gradient is gathered, and multiplied by the set's size for a Sum, as in Horovod."""
    small, context = compression.compress(tensor)
    options = (name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(_Reducescatter.apply(options, False, small)[0], context)


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: Optional[str] = None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    small, contexts = zip(*(compression.compress(tensor) for tensor in tensors))
    made = _Reducescatter.apply((name, op, prescale_factor, postscale_factor, process_set), True, *small)
    return [compression.decompress(one, context) for one, context in zip(made, contexts)]
