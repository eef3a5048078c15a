"""Our operators that are matched by name, with Horovod's names and TensorFlow's gradients."""
from __future__ import annotations

import re
from typing import Optional, Sequence

import tensorflow as tf

from ...tensorflow._operators import operators
from .._basics import Average, ProcessSet, Sum, process_set_id, size_of
from .._basics import rank as _rank

_TRACE_NUMBER = re.compile(r"_\d+$")  # TensorFlow counts the functions that a process has traced


def _function_graph():
    """That of the tf.function: branches and loops have graphs of their own inside of it, whose names differ from rank to rank."""
    graph = tf.compat.v1.get_default_graph()
    while type(graph).__name__ != "FuncGraph" and getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def unique(label: str) -> str:
    """A name that no other operation of the tf.function has. It is the same on every rank that traces the same function, however often. Eager
    operations follow one another, so they may share names."""
    if tf.executing_eagerly():
        return label
    graph = _function_graph()
    function = _TRACE_NUMBER.sub("", getattr(graph, "name", "graph"))
    return f"{label}.{function}.{graph.unique_name('hvd.' + label.replace('/', '.'))}"


def _names(verb: str, name: Optional[str], count: int, is_group: bool) -> str:
    """One a line. Eager operations without a name are numbered, because a program's calls have an order; a graph's have none."""
    if name is None:
        if tf.executing_eagerly():
            return ""
        name = unique(verb)
    base = f"{verb}.{name}"
    return "\n".join(f"{base}.{number}" for number in range(count)) if is_group else base


def _kept(results: list[tf.Tensor]) -> list[tf.Tensor]:
    """Runs also if the function uses none of the results, because other ranks may use theirs."""
    if not tf.executing_eagerly():
        operators.lockstep_keep(list(results))
    return list(results)


def tensors_of(values: Sequence) -> list[tf.Tensor]:
    made = [tf.convert_to_tensor(value) for value in values]
    if not made:
        raise ValueError("a group of tensors has at least one")
    return made


def allreduce_named(tensors: list[tf.Tensor], names: Sequence[str], op: int, prescale: float, postscale: float, number: int,
                    is_awaited: bool = True) -> list[tf.Tensor]:
    """The reductions of tensors that have these names; more than one run together or not at all."""
    return _kept(operators.lockstep_named_allreduce(tensors, "\n".join(names), process_set=number, op=op, prescale=repr(float(prescale)),
                                                    postscale=repr(float(postscale)), is_awaited=int(is_awaited)))


def allreduce_tensors(tensors, name, op, prescale, postscale, process_set: ProcessSet, is_group: bool) -> list[tf.Tensor]:
    tensors = tensors_of(tensors)
    names = _names("allreduce", name, len(tensors), is_group)
    return allreduce_named(tensors, names.split("\n") if names else [], op, prescale, postscale, process_set_id(process_set))


def _without_rows(results: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The ranks decide how many rows there are."""
    for result, tensor in zip(results, tensors):
        if tensor.shape.rank:
            result.set_shape(tf.TensorShape([None]).concatenate(tensor.shape[1:]))
    return _kept(results)


def allgather_tensors(tensors, name, process_set: ProcessSet, is_group: bool) -> list[tf.Tensor]:
    tensors = tensors_of(tensors)
    made = operators.lockstep_named_allgather(tensors, _names("allgather", name, len(tensors), is_group),
                                              process_set=process_set_id(process_set), is_awaited=1)
    return _without_rows(made, tensors)


def reducescatter_tensors(tensors, name, op, prescale, postscale, process_set: ProcessSet, is_group: bool) -> list[tf.Tensor]:
    tensors = tensors_of(tensors)
    made = operators.lockstep_named_reducescatter(tensors, _names("reducescatter", name, len(tensors), is_group), op=op,
                                                  prescale=repr(float(prescale)), postscale=repr(float(postscale)),
                                                  process_set=process_set_id(process_set), is_awaited=1)
    return _without_rows(made, tensors)


def broadcast_tensors(tensors, root_rank: int, name, process_set: ProcessSet, is_group: bool) -> list[tf.Tensor]:
    tensors = tensors_of(tensors)
    return _kept(operators.lockstep_named_broadcast(tensors, _names("broadcast", name, len(tensors), is_group), root=root_rank,
                                                    process_set=process_set_id(process_set), is_awaited=1))


def alltoall_tensor(tensor, splits, name, process_set: ProcessSet) -> tuple[tf.Tensor, tf.Tensor]:
    """The tensor, and how many rows came from each rank."""
    tensor = tf.convert_to_tensor(tensor)
    splits = tf.zeros([0], tf.int64) if splits is None else tf.convert_to_tensor(splits)
    if not splits.dtype.is_integer:
        raise ValueError("splits must be integers")
    output, received = operators.lockstep_named_alltoall(tensor, tf.cast(splits, tf.int64), _names("alltoall", name, 1, False),
                                                         process_set=process_set_id(process_set), is_awaited=1)
    _without_rows([output], [tensor])
    received.set_shape([size_of(process_set)])
    return output, received


# ---------------------------------------------------------------- gradients: Horovod's

class _Set:
    """The process set of an operator, which knows its number alone."""

    def __init__(self, operator) -> None:
        self.process_set_id = operator.get_attr("process_set")


def _text(value) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _factors(operator) -> tuple[float, float]:
    return float(_text(operator.get_attr("prescale"))), float(_text(operator.get_attr("postscale")))


@tf.RegisterGradient("LockstepNamedAllreduce")
def _allreduce_gradient(operator, *gradients):
    prescale, postscale = _factors(operator)
    return allreduce_tensors(gradients, None, operator.get_attr("op"), prescale, postscale, _Set(operator), len(gradients) > 1)


def _averaged(operator, gradients) -> list[tf.Tensor]:
    return allreduce_tensors(gradients, None, Average, 1.0, 1.0, _Set(operator), len(gradients) > 1)


@tf.RegisterGradient("LockstepNamedAllgather")
def _allgather_gradient(operator, *gradients):
    """This rank's rows of the average."""
    process_set = _Set(operator)
    rows = tf.stack([tf.shape(tensor)[0] for tensor in operator.inputs])
    everyone = allgather_tensors([tf.expand_dims(rows, 0)], None, process_set, False)[0]
    place = _place_in(process_set)
    first = tf.reduce_sum(everyone[:place], 0)
    made = []
    for number, averaged in enumerate(_averaged(operator, gradients)):
        own = averaged[first[number]:first[number] + rows[number]]
        own.set_shape(operator.inputs[number].shape)
        made.append(own)
    return made


@tf.RegisterGradient("LockstepNamedBroadcast")
def _broadcast_gradient(operator, *gradients):
    averaged = _averaged(operator, gradients)
    return averaged if _rank() == operator.get_attr("root") else [tf.zeros_like(one) for one in averaged]


@tf.RegisterGradient("LockstepNamedAlltoall")
def _alltoall_gradient(operator, gradient, _received):
    made, _back = alltoall_tensor(gradient, operator.outputs[1], None, _Set(operator))
    made.set_shape(operator.inputs[0].shape)
    return made, None


@tf.RegisterGradient("LockstepNamedReducescatter")
def _reducescatter_gradient(operator, *gradients):
    process_set, (prescale, postscale) = _Set(operator), _factors(operator)
    factor = prescale * postscale * (size_of(process_set) if operator.get_attr("op") == Sum else 1)
    made = allgather_tensors(gradients, None, process_set, len(gradients) > 1)
    return [one * tf.cast(factor, one.dtype) for one in made]


def _place_in(process_set) -> int:
    from .. import _core
    return _core.numbers(_core.named.process_set, 2, process_set.process_set_id)[0]
