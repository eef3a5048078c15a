"""Callbacks for model.fit()."""
from __future__ import annotations

from typing import Callable, Optional, Union

import keras
import tensorflow as tf

from .._basics import ProcessSet, global_process_set, size
from ..tensorflow.functions import broadcast_variables
from ..tensorflow.mpi_ops import allreduce


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """After the first batch, when all variables exist, every rank gets the root's: of the model and of the optimizer."""

    def __init__(self, root_rank: int, device: str = "", local_variables=None) -> None:
        super().__init__()
        self.root_rank, self.is_done = root_rank, False
        self.local = list(local_variables or [])

    def on_train_batch_end(self, batch, logs=None):
        if self.is_done:
            return
        variables = [*self.model.variables, *self.model.optimizer.variables]
        broadcast_variables([one for one in variables if not any(one is local for local in self.local)], self.root_rank)
        self.is_done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """At the end of an epoch, metrics become their averages over all ranks. Callbacks that read them stand behind it in the list."""

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.process_set = process_set

    def on_epoch_end(self, epoch, logs=None):
        names = sorted(name for name, value in (logs or {}).items() if isinstance(value, (int, float)))
        if names:
            averages = allreduce(tf.constant([logs[name] for name in names], tf.float64), name="MetricAverageCallback." + ".".join(names),
                                 process_set=self.process_set)
            logs.update(zip(names, averages.numpy().tolist()))


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """The learning rate is initial_lr * multiplier(epoch), from start_epoch until end_epoch.

    multiplier: a number, which is raised to the epoch's power since start_epoch, or a function of the epoch. staircase: it changes at the
    beginning of an epoch; else with every batch, and the epoch has fractions. steps_per_epoch: by default the model's.
    momentum_correction has no effect: Keras 3 compiles the momentum into the step.
    """

    def __init__(self, initial_lr: float, multiplier: Union[float, Callable[[float], float]], start_epoch: int = 0,
                 end_epoch: Optional[int] = None, staircase: bool = True, momentum_correction: bool = True,
                 steps_per_epoch: Optional[int] = None) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.steps_per_epoch = steps_per_epoch
        self.epoch = 0

    def on_train_begin(self, logs=None):
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError("Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter to the "
                                 f"{type(self).__name__}() or upgrade to the latest version of Keras.")

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.epoch < self.start_epoch or (self.end_epoch is not None and self.epoch >= self.end_epoch):
            return
        if self.staircase:
            if batch == 0:
                self._set(self.epoch)
        else:
            self._set(self.epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """From initial_lr / size to initial_lr during the first warmup_epochs, batch by batch (Goyal et al., 2017). initial_lr is that of all
    ranks together."""

    def __init__(self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True, steps_per_epoch: Optional[int] = None,
                 verbose: int = 0) -> None:
        def multiplier(epoch: float) -> float:
            ranks, done = size(), epoch + 1.0 / self.steps_per_epoch  # with the last batch the rate is whole
            return (1 + done * (ranks - 1) / warmup_epochs) / ranks
        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0:
            rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")
