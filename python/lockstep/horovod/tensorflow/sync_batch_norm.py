"""SyncBatchNormalization: batch normalisation over the batches of all ranks together."""
from __future__ import annotations

import keras
import tensorflow as tf

from .._basics import global_process_set, size_of
from .mpi_ops import Sum, allreduce


class SyncBatchNormalization(keras.layers.BatchNormalization):
    """Takes the place of keras.layers.BatchNormalization. Batches may differ in size: ranks are weighted by their number of values.

    In inference, and for one rank, it is plain batch normalisation. Masks are refused.
    """

    def __init__(self, process_set=global_process_set, **options) -> None:
        if options.get("renorm") or options.get("virtual_batch_size") is not None or options.get("synchronized"):
            raise ValueError("SyncBatchNormalization does not support renorm, virtual_batch_size and synchronized")
        super().__init__(**options)
        self.process_set = process_set

    def _moments(self, inputs, mask):
        """Mean and variance of all ranks' batches. Sums are combined in float64, and their gradients are summed over the ranks."""
        if size_of(self.process_set) == 1:
            return super()._moments(inputs, mask)
        if mask is not None:
            raise ValueError("SyncBatchNormalization takes no mask")
        mean, variance = (tf.cast(value, tf.float64) for value in tf.nn.moments(inputs, self._reduction_axes))
        count = tf.cast(tf.size(inputs) / tf.size(mean), tf.float64)
        mine = tf.concat([mean * count, (variance + mean * mean) * count, tf.expand_dims(count, 0)], 0)
        everyone = allreduce(mine, op=Sum, process_set=self.process_set)
        channels = mean.shape[0]
        mean = everyone[:channels] / everyone[-1]
        variance = everyone[channels:2 * channels] / everyone[-1] - mean * mean
        return tf.cast(mean, inputs.dtype), tf.cast(tf.maximum(variance, 0.0), inputs.dtype)
