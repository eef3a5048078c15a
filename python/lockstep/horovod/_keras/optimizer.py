"""A Keras optimizer whose gradients are reduced over all ranks before they are applied."""
from __future__ import annotations

import tensorflow as tf

from ..tensorflow.gradients import GradientReduction


class _Variables(list):
    """Programs written for Keras 2 call optimizer.variables(); Keras 3 has a list."""

    def __call__(self) -> _Variables:
        return self


class _Passes:
    """Adds the gradients of several passes on this rank. Eager or in a graph."""

    def __init__(self, passes: int, averages: bool) -> None:
        self.passes, self.averages = passes, averages
        self.sums: list = []
        self.count = None

    def make(self, variables) -> None:
        with tf.init_scope():
            self.sums = [tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False) for variable in variables]
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def add(self, gradients) -> None:
        for place, gradient in enumerate(gradients):
            if gradient is not None:
                self.sums[place].assign_add(tf.convert_to_tensor(gradient))
        self.count.assign_add(1)

    def take(self, gradients) -> list:
        """What has been added. Gradients that are None stay so."""
        taken = [None if gradient is None else tf.identity(one) for gradient, one in zip(gradients, self.sums)]
        with tf.control_dependencies([one for one in taken if one is not None]):
            for one in self.sums:
                one.assign(tf.zeros_like(one))
        if not self.averages:
            return taken
        return [None if one is None else one / tf.cast(self.passes, one.dtype) for one in taken]


class _Distributed:
    """The methods that a distributed optimizer has instead of those of its class."""

    @property
    def variables(self) -> _Variables:
        return _Variables(super(self._distributed_class, self).variables)

    def apply(self, grads, trainable_variables=None):
        gradients = list(grads)
        if not gradients:
            return
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if self._hvd_passes.passes == 1:
            self._apply_reduced(gradients, variables)
            return
        if not self.built:  # inside of a condition no variables can be made
            self.build(variables)
        if self._hvd_passes.count is None:
            self._hvd_passes.make(variables)
        self._hvd_passes.add(gradients)
        tf.cond(self._hvd_passes.count % self._hvd_passes.passes == 0,
                lambda: self._apply_reduced(self._hvd_passes.take(gradients), variables), lambda: None)

    def _apply_reduced(self, gradients, variables) -> None:
        super(self._distributed_class, self).apply(self._hvd_reduction.reduced(gradients, variables), variables)

    def register_local_var(self, var) -> None:
        """The variable is of this rank alone: its gradient is not reduced."""
        self._hvd_reduction.local.append(var)


def distributed(optimizer, *, backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False, **options):
    """An optimizer of a class with the same name, and with the same state. `options` are GradientReduction's."""
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    base = type(optimizer)
    methods = {name: value for name, value in vars(_Distributed).items() if not name.startswith("__")}
    made_class = type(base.__name__, (base,), {"__module__": base.__module__, **methods})
    made = object.__new__(made_class)
    made.__dict__.update(optimizer.__dict__)
    # Not by assignment: Keras tracks what is assigned.
    made.__dict__.update(_distributed_class=made_class, _hvd_passes=_Passes(backward_passes_per_step, average_aggregated_gradients),
                         _hvd_reduction=GradientReduction(f"Distributed{base.__name__}", **options))
    return made
