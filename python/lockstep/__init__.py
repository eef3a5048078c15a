"""Lockstep for NumPy: collectives between the processes of a job, in place on any contiguous array.

    import lockstep, numpy as np
    lockstep.init()                                   # the environment decides; alone, a job of one
    gradient = np.ones(1000, np.float32)
    lockstep.all_reduce(gradient, "avg")              # in place, nothing is copied
    everyone = lockstep.all_gather(gradient[:10])     # shape (size, 10)
    work = lockstep.broadcast(gradient, root=0, async_op=True)
    work.wait()
    lockstep.shutdown()

    lockstep run -n 4 python train.py                 # or: python -m lockstep.run -n 4 train.py

Who calls   every rank of the group makes the same calls in the same order, as in C++; ranks of C++, C and Fortran programs may be in
            the same job. Of send and recv, the two ranks.
Blocks      until the result is there. With async_op=True a verb returns a Work at once; the arrays stay alive until it is done, and
            must not be touched before.
Arrays      are contiguous, in C's or Fortran's order, of float64/32/16, bfloat16 (ml_dtypes), integers, bool or complex numbers.
            Where a verb has one part for each rank, the first axis is the rank. The verbs with a v have parts of different length,
            which lie one behind the other along the first axis; counts are their lengths.
Ranks       roots, sources and destinations are ranks of the world, also in a smaller group.
Raises      subclasses of lockstep.Error, whose text names rank, group, operation and what to do. PeerLost, Timeout, Mismatch and
            Aborted close the group. The interpreter runs other threads while a call waits.
"""
from __future__ import annotations

import ctypes
from typing import Optional

from . import _library
from ._arrays import (Result, all_gather, all_gatherv, all_reduce, all_reduce_coalesced, all_to_all, all_to_allv, barrier, broadcast,
                      gather, gatherv, monitored_barrier, recv, reduce, reduce_scatter, reduce_scatterv, scatter, scatterv, send,
                      shared_empty)
from ._group import Group, new_group, split_group, world
from ._library import (ANY_SOURCE, Aborted, Error, FormatError, InvalidArgument, Mismatch, NotInitialized, PeerLost, StoreError,
                       Timeout)
from ._library import SystemError_ as SystemError  # noqa: A004: the name that C++ has
from ._objects import all_gather_object, broadcast_object, gather_object, recv_object, scatter_object, send_object
from ._work import Work

__version__ = _library.call.version()
__all__ = ["ANY_SOURCE", "Aborted", "Error", "FormatError", "Group", "InvalidArgument", "Mismatch", "NotInitialized", "PeerLost",
           "Result", "StoreError", "SystemError", "Timeout", "Work", "all_gather", "all_gather_object", "all_gatherv", "all_reduce",
           "all_reduce_coalesced", "all_to_all", "all_to_allv", "barrier", "broadcast", "broadcast_object", "gather", "gather_object",
           "gatherv", "init", "is_initialized", "local_rank", "local_size", "monitored_barrier", "new_group", "node_count",
           "node_rank", "rank", "recv", "recv_object", "reduce", "reduce_scatter", "reduce_scatterv", "scatter", "scatter_object",
           "scatterv", "send", "send_object", "shared_empty", "shutdown", "size", "split_group", "world"]


def init(backend: Optional[str] = None, *, init_method: Optional[str] = None, rank: Optional[int] = None,
         world_size: Optional[int] = None, timeout: Optional[float] = None, warn_after: Optional[float] = None,
         virtual_ranks: Optional[int] = None) -> None:
    """Joins the job. Every process calls it, with the same backend; it blocks until all are there or `timeout` seconds have passed.

    backend: a name that `lockstep info` lists, else $LOCKSTEP_BACKEND, else chosen. init_method: "tcp://10.0.0.1:29500" or
    "file:///path", else the environment. rank and world_size: both or neither; they override the environment.
    """
    options = _library.InitOptions(ctypes.sizeof(_library.InitOptions), _text(backend), _text(init_method),
                                   -1 if rank is None else rank, -1 if world_size is None else world_size, 0,
                                   _library.milliseconds(timeout), _library.milliseconds(warn_after), virtual_ranks or 0, 0)
    _library.call.init(ctypes.byref(options))


def shutdown() -> None:
    """Leaves the job and all groups made in it. Another init() may follow; the end of the program does the same."""
    _library.call.shutdown()


def is_initialized() -> bool:
    """Whether this process is in a job."""
    return _library.call.is_initialized()


def rank(group: Group = world) -> int:
    """This process's number in the group; -1 if it is not in it."""
    return group.rank


def size(group: Group = world) -> int:
    """How many ranks the group has."""
    return group.size


def local_rank() -> int:
    """This rank's number on its machine."""
    return _library.number(_library.call.local_rank)


def local_size() -> int:
    """How many of the job's ranks are on this machine."""
    return _library.number(_library.call.local_size)


def node_rank() -> int:
    """Which of the job's machines this is, from 0."""
    return _library.number(_library.call.node_rank)


def node_count() -> int:
    """How many machines the job has."""
    return _library.number(_library.call.node_count)


def _text(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else text.encode()
