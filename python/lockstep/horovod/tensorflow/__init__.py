"""Horovod's interface for TensorFlow over Lockstep: the import is the only line of a program that changes.

    import lockstep.horovod.tensorflow as hvd
    hvd.init()
    @tf.function
    def step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)      # each is reduced while backward still runs
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return loss

Started     by `lockstep run -n 4 python train.py`, `lockstep horovodrun -np 4 python train.py`, or alone as a job of one.
Matched     by name: ranks run operations in any order. Operations that are ready together run as one. Results do not depend on that. An
            operation without a name has one that its place in the tf.function gives; eager ones are numbered.
Tensors     on the CPU; TensorFlow copies those of a GPU. Every dtype but strings, float8 and smaller ones.
XLA         tf.function(jit_compile=True) refuses the operators. On machines with a GPU: model.compile(jit_compile=False).
Raises      tf.errors.FailedPreconditionError on every rank, which names tensor, values and ranks, where ranks disagree about a name; other
            names go on. tf.errors.InvalidArgumentError before anything is sent. UnavailableError, DeadlineExceededError and AbortedError end
            all.
Differs     docs/horovod.md says in what. There is no elastic training: see `lockstep run --max-restarts`.
"""
from __future__ import annotations

from types import FunctionType as _FunctionType

from ...tensorflow._operators import as_written as _as_written
from .._basics import (ProcessSet, add_process_set, ccl_built, cross_rank, cross_size, cuda_built, ddl_built, global_process_set, gloo_built,
                       gloo_enabled, init, is_homogeneous, is_initialized, local_rank, local_size, mpi_built, mpi_enabled,
                       mpi_threads_supported, nccl_built, rank, remove_process_set, rocm_built, shutdown, size, start_timeline,
                       stop_timeline)
from .._objects import allgather_object as _allgather_object
from .._objects import broadcast_object as _broadcast_object
from .compression import Compression
from .functions import broadcast_global_variables, broadcast_object_fn, broadcast_variables
from .gradients import DistributedGradientTape, PartialDistributedGradientTape
from .hook import BroadcastGlobalVariablesHook
from .mpi_ops import (Adasum, Average, Max, Min, Product, Sum, allgather, allreduce, alltoall, barrier, broadcast, broadcast_,
                      grouped_allgather, grouped_allreduce, grouped_reducescatter, join, reducescatter)
from .optimizer import DistributedOptimizer

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("annotations", "compression", "functions", "gradients",
                                                                               "hook", "mpi_ops", "optimizer")]
__all__ += ["SyncBatchNormalization", "allgather_object", "broadcast_object"]


def broadcast_object(obj, root_rank: int = 0, session=None, name=None, process_set=global_process_set):
    """The root's object, pickled, on every rank. Ranks run what they unpickle, so they must trust each other."""
    return _broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj, session=None, name=None, process_set=global_process_set) -> list:
    """Every rank's object, pickled, in the order of ranks. Ranks run what they unpickle, so they must trust each other."""
    return _allgather_object(obj, name, process_set)


for _name in __all__:
    if isinstance(globals().get(_name), _FunctionType):
        _as_written(globals()[_name])


def __getattr__(name: str):
    if name == "SyncBatchNormalization":  # it loads Keras, which other programs do without
        from .sync_batch_norm import SyncBatchNormalization
        return SyncBatchNormalization
    if name == "elastic":
        raise AttributeError("hvd.elastic has no counterpart: ranks cannot come and go. `lockstep run --max-restarts N` starts a job anew "
                             "after a failure, from the program's last checkpoint")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
