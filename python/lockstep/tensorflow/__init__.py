"""Lockstep for TensorFlow: collectives on tensors, as operators that work eagerly and in a tf.function.

    import lockstep, lockstep.tensorflow as lt
    lockstep.init()
    lt.broadcast_variables(model.trainable_variables, root=0)
    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(images, training=True))
        gradients = lt.all_reduce_gradients(tape.gradient(loss, model.trainable_variables))
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return lt.all_reduce(loss, "avg")

    lockstep run -n 4 python train.py

Who calls   every rank of the group, in the same order. A tf.function keeps the order in which the program wrote them. A program with
            Horovod's calls, which are matched by name, takes lockstep.horovod.tensorflow.
Tensors     on the CPU; TensorFlow copies those of a GPU. Every dtype but strings, float8 and smaller ones. A result takes the input's
            memory where nothing else reads that.
Gradients   are those of the sum of all ranks' losses. all_reduce has them for sum and avg.
Blocks      a thread of TensorFlow until all ranks have called.
XLA         tf.function(jit_compile=True) refuses the operators; model.compile(jit_compile=False).
Raises      tf.errors.InvalidArgumentError for the caller's mistake, FailedPreconditionError if ranks made different calls or there is no
            job, UnavailableError if a rank died, DeadlineExceededError and AbortedError. The text names rank, group, operation and what
            to do.
"""
from __future__ import annotations

from typing import Optional, Sequence

import tensorflow as tf

from .._group import Group, world
from .._library import OPS
from . import _gradients  # noqa: F401: registers them
from ._operators import as_written as _as_written
from ._operators import operators as _operators

__all__ = ["all_gather", "all_reduce", "all_reduce_coalesced", "all_reduce_gradients", "all_to_all", "broadcast", "broadcast_variables",
           "reduce_scatter"]


def _op(op: str) -> int:
    if op not in OPS:
        raise ValueError(f"there is no operator {op!r}; there are {', '.join(OPS)}")
    return OPS[op]


def _shaped(result: tf.Tensor, shape) -> tf.Tensor:
    """What is known of the shape before the operator runs."""
    result.set_shape(shape)
    return result


def all_reduce(tensor, op: str = "sum", *, group: Group = world) -> tf.Tensor:
    """The combination of all ranks' tensors, on every rank. op: sum, avg, product, min, max, band, bor, bxor."""
    return _operators.lockstep_all_reduce([tensor], group.handle, op=_op(op))[0]


def all_reduce_coalesced(tensors: Sequence, op: str = "sum", *, group: Group = world) -> list[tf.Tensor]:
    """all_reduce of several tensors through one operation for each dtype."""
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    results: list[Optional[tf.Tensor]] = [None] * len(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        made = _operators.lockstep_all_reduce([tensors[place] for place in places], group.handle, op=_op(op))
        for place, one in zip(places, made):
            results[place] = one
    return results


def all_reduce_gradients(gradients: Sequence, op: str = "avg", *, group: Group = world) -> list:
    """What tape.gradient() gave, combined over the ranks. None stays None; an IndexedSlices becomes a dense tensor."""
    there = [place for place, gradient in enumerate(gradients) if gradient is not None]
    results = list(gradients)
    for place, made in zip(there, all_reduce_coalesced([gradients[place] for place in there], op, group=group)):
        results[place] = made
    return results


def broadcast(tensor, root: int, *, group: Group = world) -> tf.Tensor:
    """The root's tensor, on every rank."""
    return _operators.lockstep_broadcast(tensor, group.handle, root=root)


def broadcast_variables(variables: Sequence, root: int = 0, *, group: Group = world) -> None:
    """Every variable becomes the root's."""
    for variable in variables:
        variable.assign(broadcast(variable, root, group=group))


def all_gather(tensor, *, group: Group = world) -> tf.Tensor:
    """Every rank's tensor, on every rank: shape (size, *tensor.shape)."""
    tensor = tf.convert_to_tensor(tensor)
    result = _operators.lockstep_all_gather(tensor, group.handle)
    return _shaped(result, tf.TensorShape([group.size]).concatenate(tensor.shape))


def reduce_scatter(tensor, op: str = "sum", *, group: Group = world) -> tf.Tensor:
    """The combination of all ranks' tensor[rank]: shape tensor.shape[1:]."""
    tensor = tf.convert_to_tensor(tensor)
    return _shaped(_operators.lockstep_reduce_scatter(tensor, group.handle, op=_op(op)), tensor.shape[1:])


def all_to_all(tensor, *, group: Group = world) -> tf.Tensor:
    """tensor[r] goes to rank r; result[r] comes from rank r."""
    return _operators.lockstep_all_to_all(tensor, group.handle)


for _name in __all__:
    _as_written(globals()[_name])
