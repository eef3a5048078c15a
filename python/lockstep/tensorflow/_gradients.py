"""The gradients of our operators: of the sum of all ranks' losses, as if the job were one program."""
from __future__ import annotations

import tensorflow as tf

from .._group import Group
from .._library import OPS
from ._operators import operators

_SUM, _AVG = OPS["sum"], OPS["avg"]


def _group(operator) -> int:
    return operator.get_attr("group")


def _linear(operator) -> int:
    op = operator.get_attr("op")
    if op not in (_SUM, _AVG):
        names = {number: name for name, number in OPS.items()}
        raise LookupError(f"{operator.type} has a gradient for sum and avg, not for {names[op]}")
    return op


@tf.RegisterGradient("LockstepAllReduce")
def _all_reduce(operator, *gradients):
    return operators.lockstep_all_reduce(list(gradients), _group(operator), op=_linear(operator))


@tf.RegisterGradient("LockstepBroadcast")
def _broadcast(operator, gradient):
    total = operators.lockstep_all_reduce([gradient], _group(operator), op=_SUM)[0]
    group = Group(_group(operator))
    is_root = group.ranks[group.rank] == operator.get_attr("root")
    return total if is_root else tf.zeros_like(total)


@tf.RegisterGradient("LockstepAllGather")
def _all_gather(operator, gradient):
    result = operators.lockstep_reduce_scatter(gradient, _group(operator), op=_SUM)
    result.set_shape(operator.inputs[0].shape)
    return result


@tf.RegisterGradient("LockstepReduceScatter")
def _reduce_scatter(operator, gradient):
    op = _linear(operator)
    result = operators.lockstep_all_gather(gradient, _group(operator))
    result.set_shape(operator.inputs[0].shape)
    return result if op == _SUM else result / Group(_group(operator)).size


@tf.RegisterGradient("LockstepAllToAll")
def _all_to_all(operator, gradient):
    return operators.lockstep_all_to_all(gradient, _group(operator))
