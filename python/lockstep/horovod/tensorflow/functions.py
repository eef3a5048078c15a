"""Giving every rank one rank's variables."""
from __future__ import annotations

from typing import Callable, Optional, Sequence

import tensorflow as tf

from .._basics import ProcessSet, global_process_set
from .._objects import broadcast_object
from . import _operations as operations
from .mpi_ops import broadcast_


def broadcast_variables(variables: Sequence, root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False) -> list:
    """The root's values, in tf.Variables or Keras variables, eager or in a tf.function. Every rank gives the same list."""
    return broadcast_(variables, root_rank, operations.unique("broadcast_variables"), process_set)


def broadcast_global_variables(root_rank: int) -> None:
    """For graphs of TensorFlow 1: an operation that broadcasts all global variables."""
    if tf.executing_eagerly():
        raise RuntimeError("hvd.broadcast_global_variables() does not support eager execution. Please use "
                           "`hvd.broadcast_variables(<model/optimizer variables>)` instead.")
    variables = tf.compat.v1.global_variables()
    values = operations.broadcast_tensors(variables, root_rank, "broadcast_global_variables", global_process_set, True)
    return tf.group(*(tf.compat.v1.assign(variable, value) for variable, value in zip(variables, values)))


def broadcast_object_fn(root_rank: int = 0, session=None, name: Optional[str] = None,
                        process_set: ProcessSet = global_process_set) -> Callable:
    """A function of one object, which gives the root's."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)
