"""Horovod's interface for PyTorch over Lockstep: the import is the only line of a program that changes.

    import lockstep.horovod.torch as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for data, target in loader:
        optimizer.zero_grad()
        loss(model(data), target).backward()      # gradients are reduced while backward still runs
        optimizer.step()

Started     by `lockstep run -n 4 python train.py`, `lockstep horovodrun -np 4 python train.py`, or alone as a job of one.
Matched     by name: ranks submit operations in any order, from any thread. Operations that are ready together run as one. Results do
            not depend on that.
Tensors     on the CPU, of every dtype but float8. Contiguous ones are used where they lie.
Raises      lockstep.Mismatch on every rank, which names tensor, values and ranks, where ranks disagree about a name; other names go
            on. lockstep.InvalidArgument (a ValueError) before anything is sent. lockstep.PeerLost, Timeout and Aborted end all.
Differs     docs/horovod.md says in what. hvd.elastic goes on from a commit after a restart of all ranks.
"""
from __future__ import annotations

from . import elastic
from .._basics import (ProcessSet, add_process_set, ccl_built, cross_rank, cross_size, cuda_built, ddl_built, global_process_set, gloo_built,
                       gloo_enabled, init, is_homogeneous, is_initialized, local_rank, local_size, mpi_built, mpi_enabled,
                       mpi_threads_supported, nccl_built, rank, remove_process_set, rocm_built, shutdown, size, start_timeline,
                       stop_timeline)
from .._objects import allgather_object, broadcast_object
from .compression import Compression
from .functions import broadcast_optimizer_state, broadcast_parameters
from .mpi_ops import (Adasum, Average, Max, Min, Product, Sum, allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                      allreduce_async_, alltoall, alltoall_async, barrier, broadcast, broadcast_, broadcast_async, broadcast_async_,
                      grouped_allgather, grouped_allgather_async, grouped_allreduce, grouped_allreduce_, grouped_allreduce_async,
                      grouped_allreduce_async_, grouped_reducescatter, grouped_reducescatter_async, join, poll, reducescatter,
                      reducescatter_async, sparse_allreduce_async, synchronize)
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("annotations", "compression", "functions", "mpi_ops",
                                                                               "optimizer", "sync_batch_norm")]
