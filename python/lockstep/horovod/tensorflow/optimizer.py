"""DistributedOptimizer: for optimizers of Keras and of TensorFlow 1."""
from __future__ import annotations

from typing import Optional

import tensorflow as tf

from .._basics import Average, ProcessSet, global_process_set
from .compression import Compression
from .gradients import GradientReduction


class _DistributedV1(tf.compat.v1.train.Optimizer):
    """An optimizer of TensorFlow 1 around another one, whose compute_gradients() reduces."""

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer, name: Optional[str], use_locking: bool, reduction: GradientReduction) -> None:
        super().__init__(use_locking=use_locking, name=name or f"Distributed{type(optimizer).__name__}")
        self._optimizer, self._reduction = optimizer, reduction

    def compute_gradients(self, *arguments, **options):
        pairs = self._optimizer.compute_gradients(*arguments, **options)
        variables = [variable for _, variable in pairs]
        return list(zip(self._reduction.reduced([gradient for gradient, _ in pairs], variables), variables))

    def apply_gradients(self, *arguments, **options):
        return self._optimizer.apply_gradients(*arguments, **options)

    def get_slot(self, *arguments, **options):
        return self._optimizer.get_slot(*arguments, **options)

    def get_slot_names(self, *arguments, **options):
        return self._optimizer.get_slot_names(*arguments, **options)

    def variables(self):
        return self._optimizer.variables()


def DistributedOptimizer(optimizer, name: Optional[str] = None, use_locking: bool = False, device_dense: str = "", device_sparse: str = "",
                         compression=Compression.none, sparse_as_dense: bool = False, backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False, num_groups: int = 0,
                         groups: Optional[object] = None, process_set: ProcessSet = global_process_set,
                         scale_local_gradients: bool = True):
    """An optimizer that reduces gradients over all ranks before it applies them.

    Of Keras: one of a class with the same name and with the same state, for model.compile() and for apply_gradients().
    backward_passes_per_step k: the gradients of k passes are added on each rank, and every k-th reduces and applies them;
    average_aggregated_gradients: their average instead of their sum. Of tf.compat.v1.train: one whose compute_gradients() reduces.
    """
    options = {"compression": compression, "sparse_as_dense": sparse_as_dense, "op": op,
               "gradient_predivide_factor": gradient_predivide_factor, "num_groups": num_groups, "groups": groups,
               "process_set": process_set, "scale_local_gradients": scale_local_gradients}
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if backward_passes_per_step != 1:
            raise ValueError("backward_passes_per_step > 1 needs an optimizer of Keras")
        return _DistributedV1(optimizer, name, use_locking, GradientReduction(name or f"Distributed{type(optimizer).__name__}", **options))
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise ValueError(f"Provided optimizer doesn't inherit from either Keras or TensorFlow optimizer classes: {type(optimizer).__name__}")
    from .._keras.optimizer import distributed

    return distributed(optimizer, backward_passes_per_step=backward_passes_per_step,
                       average_aggregated_gradients=average_aggregated_gradients, **options)
