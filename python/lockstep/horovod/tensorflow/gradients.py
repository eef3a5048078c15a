"""Gradients, reduced over all ranks: for tapes and for optimizers."""
from __future__ import annotations

from typing import Optional, Sequence

import tensorflow as tf

from ...tensorflow._operators import as_written
from .._basics import Average, ProcessSet, Sum, global_process_set, process_set_id, size_of
from . import _operations as operations
from .compression import Compression
from .mpi_ops import allreduce


def _label(number: int, source) -> str:
    return f"{number}.{getattr(source, 'path', None) or getattr(source, 'name', '')}".replace("\n", " ")


class GradientReduction:
    """reduced() takes gradients and the variables that they are of. In a graph each gradient is reduced as soon as it is there; eagerly, all
    together. Gradients that are None stay so, and must be None on every rank."""

    def __init__(self, label: str, *, compression=Compression.none, sparse_as_dense: bool = False, op: int = Average,
                 gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups=None, process_set: ProcessSet = global_process_set,
                 scale_local_gradients: bool = True) -> None:
        if gradient_predivide_factor != 1.0 and op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if isinstance(groups, int):
            num_groups, groups = groups, None
        if num_groups < 0:
            raise ValueError("groups must be a non-negative integer or a list of lists of tf.Variable.")
        self.label, self.compression, self.sparse_as_dense, self.op = label, compression, sparse_as_dense, op
        self.predivide, self.num_groups, self.groups, self.process_set = gradient_predivide_factor, num_groups, groups, process_set
        self.scale_local_gradients = scale_local_gradients
        self.local: list = []  # variables of this rank alone

    def is_local(self, source) -> bool:
        return any(source is one for one in self.local)

    def factors(self) -> tuple[int, float, float]:
        """Operator, and the factors before and after."""
        if self.predivide == 1.0:
            return self.op, 1.0, 1.0
        return Sum, 1.0 / self.predivide, self.predivide / size_of(self.process_set)

    @as_written
    def reduced(self, gradients: Sequence, sources: Sequence) -> list:
        size = size_of(self.process_set)
        if size == 1:
            return list(gradients)
        results, dense = list(gradients), []
        label = operations.unique(self.label)
        for place, (gradient, source) in enumerate(zip(gradients, sources)):
            if gradient is None:
                continue
            if self.is_local(source):
                results[place] = _scaled(gradient, 1.0 / size) if self.scale_local_gradients and self.op == Average else gradient
            elif isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
                op, before, after = self.factors()
                results[place] = allreduce(gradient, compression=self.compression, op=op, prescale_factor=before, postscale_factor=after,
                                           name=f"{label}.{_label(place, source)}", process_set=self.process_set)
            else:
                dense.append(place)
        for group in self.groups_of(dense, sources):
            # Backward ends with the first variable's gradient, so that one does not wait for others that might still come.
            is_awaited = tf.executing_eagerly() or dense[0] in group
            self.reduce([f"{label}.{_label(place, sources[place])}" for place in group], group, results, is_awaited)
        return results

    def groups_of(self, places: list[int], sources: Sequence) -> list[list[int]]:
        """Which gradients run together."""
        if self.groups is not None:
            lists = [[place for place in places if any(sources[place] is one for one in group)] for group in self.groups]
            taken = {place for group in lists for place in group}
            return [group for group in lists if group] + [[place] for place in places if place not in taken]
        if self.num_groups > 0:
            count = min(self.num_groups, len(places))
            bounds = [len(places) * number // count for number in range(count + 1)] if count else []
            return [places[start:end] for start, end in zip(bounds, bounds[1:])]
        if tf.executing_eagerly():
            return [places] if places else []
        return [[place] for place in places]

    def reduce(self, names: list[str], group: list[int], results: list, is_awaited: bool) -> None:
        op, before, after = self.factors()
        pairs = [self.compression.compress(tf.convert_to_tensor(results[place])) for place in group]
        made = operations.allreduce_named([small for small, _ in pairs], [f"allreduce.{name}" for name in names], op, before, after,
                                          process_set_id(self.process_set), is_awaited)
        for place, one, (_, context) in zip(group, made, pairs):
            results[place] = self.compression.decompress(one, context)


def _scaled(gradient, factor: float):
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * tf.cast(factor, gradient.values.dtype), gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


class _DistributedTape:
    """The methods that a distributed tape has instead of those of its class."""

    def gradient(self, target, sources, output_gradients=None, unconnected_gradients=tf.UnconnectedGradients.NONE):
        gradients = super(self._distributed_class, self).gradient(target, sources, output_gradients, unconnected_gradients)
        reduced = self._reduction.reduced(tf.nest.flatten(gradients), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(sources, reduced)

    def register_local_source(self, source) -> None:
        """The source is of this rank alone: its gradient is not reduced, but scaled by 1/size unless scale_local_gradients is False."""
        self._reduction.local.append(source)


def DistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression=Compression.none,
                            sparse_as_dense: bool = False, op: int = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                            groups: Optional[object] = None, process_set: ProcessSet = global_process_set,
                            scale_local_gradients: bool = True):
    """A tape of the same class and with the same records, whose gradient() gives gradients reduced over all ranks.

    sparse_as_dense: tf.IndexedSlices become dense before. gradient_predivide_factor f: 1/f before the sum, f/size after it. groups: lists of
    variables, or a number of equal parts, that are reduced together.
    """
    reduction = GradientReduction("DistributedGradientTape", compression=compression, sparse_as_dense=sparse_as_dense, op=op,
                                  gradient_predivide_factor=gradient_predivide_factor, num_groups=num_groups, groups=groups,
                                  process_set=process_set, scale_local_gradients=scale_local_gradients)
    methods = {name: value for name, value in vars(_DistributedTape).items() if not name.startswith("__")}
    made_class = type(type(gradtape).__name__, (type(gradtape),), methods)
    made = object.__new__(made_class)
    made.__dict__.update(gradtape.__dict__)
    made._distributed_class = made_class
    made._reduction = reduction
    return made


def PartialDistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression=Compression.none,
                                   sparse_as_dense: bool = False, op: int = Average, gradient_predivide_factor: float = 1.0,
                                   num_groups: int = 0, groups: Optional[object] = None, process_set: ProcessSet = global_process_set,
                                   local_layers=None, scale_local_gradients: bool = True):
    """DistributedGradientTape for a model some of whose layers are of this rank alone."""
    made = DistributedGradientTape(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
                                   num_groups, groups, process_set, scale_local_gradients)
    layers = [] if local_layers is None else local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    for layer in layers:
        for variable in layer.trainable_variables:
            made.register_local_source(variable)
    return made
