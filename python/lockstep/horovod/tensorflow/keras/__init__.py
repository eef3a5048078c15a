"""Horovod's interface for Keras 3 over TensorFlow: the import is the only line of a program that changes.

    import lockstep.horovod.tensorflow.keras as hvd                  # or: import lockstep.horovod.keras as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size(), momentum=0.9))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images, labels, epochs=10, verbose=hvd.rank() == 0, callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1 * hvd.size(), warmup_epochs=3)])

allreduce, allgather, broadcast and reducescatter take numbers or arrays and return arrays of NumPy. Everything else is that of
lockstep.horovod.tensorflow.
"""
from __future__ import annotations

import keras as _keras_package

from ..._basics import (Adasum, Average, Max, Min, ProcessSet, Product, Sum, add_process_set, ccl_built, choose_op, cross_rank, cross_size,
                        cuda_built, ddl_built, global_process_set, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized, local_rank,
                        local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, remove_process_set, rocm_built,
                        shutdown, size, start_timeline, stop_timeline)
from ..._keras import callbacks
from ..._keras.optimizer import distributed as _distributed
from ..compression import Compression
from ..functions import broadcast_variables
from .. import mpi_ops as _mpi_ops
from .. import allgather_object, barrier, broadcast_object, join

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("annotations", "choose_op")]
__all__ += ["DistributedOptimizer", "allgather", "allreduce", "broadcast", "load_model", "reducescatter"]


def DistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False,
                         gradient_predivide_factor=1.0, op=Average, num_groups=0, groups=None, backward_passes_per_step=1,
                         average_aggregated_gradients=False, process_set=global_process_set, scale_local_gradients=True):
    """An optimizer of a class with the same name, and with the same state, that reduces gradients before it applies them. The options are
    those of lockstep.horovod.tensorflow.DistributedOptimizer."""
    return _distributed(optimizer, compression=compression, sparse_as_dense=sparse_as_dense, op=op,
                        gradient_predivide_factor=gradient_predivide_factor, num_groups=num_groups, groups=groups,
                        backward_passes_per_step=backward_passes_per_step, average_aggregated_gradients=average_aggregated_gradients,
                        process_set=process_set, scale_local_gradients=scale_local_gradients)


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=Compression.none,
              process_set=global_process_set):
    """The reduction of all ranks' values, by default their average."""
    return _mpi_ops.allreduce(value, name=name, op=choose_op(op, average), prescale_factor=prescale_factor,
                              postscale_factor=postscale_factor, compression=compression, process_set=process_set).numpy()


def allgather(value, name=None, process_set=global_process_set):
    return _mpi_ops.allgather(value, name=name, process_set=process_set).numpy()


def broadcast(value, root_rank, name=None, process_set=global_process_set):
    return _mpi_ops.broadcast(value, root_rank, name=name, process_set=process_set).numpy()


def reducescatter(value, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    return _mpi_ops.reducescatter(value, name=name, op=op, process_set=process_set, prescale_factor=prescale_factor,
                                  postscale_factor=postscale_factor).numpy()


def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none):
    """keras.models.load_model(), whose optimizer reduces gradients. custom_optimizers: classes that Keras does not know."""
    objects = {one.__name__: one for one in custom_optimizers or []}
    model = _keras_package.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    if model.optimizer is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model


def __getattr__(name: str):
    from .. import __getattr__ as of_tensorflow

    return of_tensorflow(name)
