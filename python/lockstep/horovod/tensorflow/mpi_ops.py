"""Horovod's verbs on TensorFlow's tensors. Each is differentiable, eager or in a tf.function."""
from __future__ import annotations

from typing import Optional, Sequence

import tensorflow as tf

from .._basics import Adasum, Average, Max, Min, ProcessSet, Product, Sum, choose_op, global_process_set, size_of
from .._objects import barrier, join
from . import _operations as operations
from .compression import Compression

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allreduce", "alltoall", "barrier", "broadcast", "broadcast_",
           "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "join", "reducescatter"]


def _sparse_allreduce(tensor: tf.IndexedSlices, name: Optional[str], op: int, factor: float, compression, process_set) -> tf.IndexedSlices:
    """All ranks' rows, one behind the other."""
    if op not in (Average, Sum):
        raise ValueError("tf.IndexedSlices have Average and Sum alone; tf.convert_to_tensor() makes them dense")
    small, context = compression.compress(tensor.values)
    values = allgather(small, name=name and f"{name}.values", process_set=process_set)
    indices = allgather(tensor.indices, name=name and f"{name}.indices", process_set=process_set)
    values = compression.decompress(values, context)
    factor /= size_of(process_set) if op == Average else 1
    if factor != 1:
        values = values * tf.cast(factor, values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=tensor.dense_shape)


def allreduce(tensor, average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "", compression=Compression.none,
              op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False):
    """The reduction of all ranks' tensors, by default their average. Of tf.IndexedSlices, all ranks' rows. The gradient is reduced the
    same way. The devices are accepted, and it runs on the CPU."""
    op = choose_op(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        return _sparse_allreduce(tensor, name, op, prescale_factor * postscale_factor, compression, process_set)
    small, context = compression.compress(tf.convert_to_tensor(tensor))
    made = operations.allreduce_tensors([small], name, op, prescale_factor, postscale_factor, process_set, False)[0]
    return compression.decompress(made, context)


def grouped_allreduce(tensors: Sequence, average: Optional[bool] = None, device_dense: str = "", device_sparse: str = "",
                      compression=Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      name: Optional[str] = None, process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False) -> list:
    """allreduce of tensors that run together or not at all. tf.IndexedSlices among them are gathered one by one."""
    op = choose_op(op, average)
    results = [allreduce(tensor, compression=compression, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor,
                         name=name and f"{name}.{place}", process_set=process_set) if isinstance(tensor, tf.IndexedSlices) else None
               for place, tensor in enumerate(tensors)]
    dense = [place for place, made in enumerate(results) if made is None]
    if not dense and results:
        return results
    pairs = [compression.compress(tensor) for tensor in operations.tensors_of([tensors[place] for place in dense])]
    made = operations.allreduce_tensors([small for small, _ in pairs], name, op, prescale_factor, postscale_factor, process_set, True)
    for place, one, (_, context) in zip(dense, made, pairs):
        results[place] = compression.decompress(one, context)
    return results


def allgather(tensor, name: Optional[str] = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set):
    """All ranks' tensors along the first dimension, in which they may differ. Of the gradient, the average of this rank's rows, as in
    Horovod."""
    return operations.allgather_tensors([tensor], name, process_set, False)[0]


def grouped_allgather(tensors: Sequence, name: Optional[str] = None, ignore_name_scope: bool = False,
                      process_set: ProcessSet = global_process_set) -> list:
    return operations.allgather_tensors(tensors, name, process_set, True)


def broadcast(tensor, root_rank: int, name: Optional[str] = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set):
    """The root's tensor, on every rank. The root's gradient is the average of all, the others' is zero, as in Horovod."""
    return operations.broadcast_tensors([tensor], root_rank, name, process_set, False)[0]


def broadcast_(variables: Sequence, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list:
    """The variables become the root's, through one operation. Returns them."""
    variables = list(variables)
    if variables:
        for variable, value in zip(variables, operations.broadcast_tensors(variables, root_rank, name, process_set, True)):
            variable.assign(value)
    return variables


def alltoall(tensor, splits=None, name: Optional[str] = None, ignore_name_scope: bool = False,
             process_set: ProcessSet = global_process_set):
    """splits[r] rows go to rank r; without splits, equal parts. With splits the result is (tensor, received splits)."""
    output, received = operations.alltoall_tensor(tensor, splits, name, process_set)
    return output if splits is None else (output, tf.cast(received, tf.int32))


def reducescatter(tensor, device_dense: str = "", compression=Compression.none, op: int = Average, name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                  ignore_name_scope: bool = False):
    """This rank's part of the reduction; lower ranks get one row more where the first dimension is uneven. The gradient is gathered, and
    multiplied by the set's size for a Sum, as in Horovod."""
    small, context = compression.compress(tf.convert_to_tensor(tensor))
    made = operations.reducescatter_tensors([small], name, op, prescale_factor, postscale_factor, process_set, False)[0]
    return compression.decompress(made, context)


def grouped_reducescatter(tensors: Sequence, device_dense: str = "", compression=Compression.none, op: int = Average,
                          name: Optional[str] = None, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0, ignore_name_scope: bool = False) -> list:
    pairs = [compression.compress(tensor) for tensor in operations.tensors_of(tensors)]
    made = operations.reducescatter_tensors([small for small, _ in pairs], name, op, prescale_factor, postscale_factor, process_set, True)
    return [compression.decompress(one, context) for one, (_, context) in zip(made, pairs)]
