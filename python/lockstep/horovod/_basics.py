"""The job, its places, sets of its processes, and the operators of reductions: the same for every framework."""
from __future__ import annotations

from typing import Optional, Sequence, Union

import lockstep

from . import _core

Average, Sum, Adasum, Min, Max, Product = range(6)


def choose_op(op: Optional[int], average: Optional[bool]) -> int:
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is not None:
        return op
    return Sum if average is False else Average


class ProcessSet:
    """Some of the job's ranks. It gets its id from init(process_sets=...) or add_process_set()."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks: Optional[list[int]] = sorted(int(rank) for rank in ranks)
        self.process_set_id: Optional[int] = None

    def size(self) -> Optional[int]:
        return None if self.process_set_id is None else _core.numbers(_core.named.process_set, 2, self.process_set_id)[1]

    def rank(self) -> Optional[int]:
        """This process's number in the set; None outside of it."""
        if self.process_set_id is None:
            return None
        number = _core.numbers(_core.named.process_set, 2, self.process_set_id)[0]
        return None if number < 0 else number

    def included(self) -> bool:
        return self.rank() is not None

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet([])
global_process_set.ranks = None
global_process_set.process_set_id = 0

_sets: dict[int, ProcessSet] = {}


def init(comm=None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Joins the job, unless lockstep.init() has, and starts the engine of named operations. Every process calls it.

    comm: a list of ranks is not possible here; make a ProcessSet. process_sets: sets that get their ids now. "dynamic" is accepted:
    sets may always be added.
    """
    if comm not in (None, 0, []):
        raise ValueError("hvd.init(comm=...) has no counterpart: all processes of the launcher are ranks; make a ProcessSet of some")
    if _core.named.is_initialized():
        return
    _core.known.clear()  # of an engine that lockstep.shutdown() has ended
    sets = [] if process_sets is None or isinstance(process_sets, str) else list(process_sets)
    lists = [one.ranks for one in sets]
    flat = [rank for ranks in lists for rank in ranks]
    _core.named.init(_core.ranks_array(flat) if flat else None, _core.sizes_array([len(ranks) for ranks in lists]) if lists else None,
                     len(lists))
    global_process_set.ranks = list(range(lockstep.size()))
    for number, one in enumerate(sets, start=1):
        _keep(one, number)


def shutdown() -> None:
    """Stops the engine, on every rank, and leaves the job if init() joined it. Another init() may follow."""
    for one in _sets.values():
        one.process_set_id = None
    _sets.clear()
    global_process_set.ranks = None
    _core.known.clear()
    _core.named.shutdown()


def is_initialized() -> bool:
    return _core.named.is_initialized()


def _keep(one: ProcessSet, number: int) -> None:
    one.process_set_id = number
    _sets[number] = one


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Every rank of the job calls it, with the same ranks, also those outside of the set."""
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.process_set_id is not None:
        raise ValueError(f"{made} has been added already")
    _keep(made, _core.numbers(_core.named.add_process_set, 1, _core.ranks_array(made.ranks), len(made.ranks))[0])
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Every rank of the job calls it. False: it was not there, or is the global one."""
    if process_set.process_set_id in (None, 0):
        return False
    _core.named.remove_process_set(process_set.process_set_id)
    _sets.pop(process_set.process_set_id, None)
    process_set.process_set_id = None
    return True


def process_set_id(process_set: ProcessSet) -> int:
    if process_set.process_set_id is None:
        raise ValueError(f"{process_set} has not been added; call hvd.add_process_set() on every rank")
    return process_set.process_set_id


def size_of(process_set: ProcessSet) -> int:
    return _core.numbers(_core.named.process_set, 2, process_set_id(process_set))[1]


def _started() -> None:
    if not _core.named.is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")


def rank() -> int:
    _started()
    return lockstep.rank()


def size() -> int:
    _started()
    return lockstep.size()


def local_rank() -> int:
    _started()
    return lockstep.local_rank()


def local_size() -> int:
    _started()
    return lockstep.local_size()


def cross_rank() -> int:
    """This process's number among those that have its local rank on other machines."""
    return _core.numbers(_core.named.places, 3)[0]


def cross_size() -> int:
    return _core.numbers(_core.named.places, 3)[1]


def is_homogeneous() -> bool:
    """Whether every machine has equally many processes."""
    return _core.numbers(_core.named.places, 3)[2] != 0


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Rank 0 writes what happens to each name as a trace of Chrome."""
    _core.named.start_timeline(file_path.encode(), mark_cycles)


def stop_timeline() -> None:
    _core.named.stop_timeline()


def _absent() -> bool:
    return False


# Lockstep has its own transports; a program that asks for these takes the way that needs none of them.
mpi_threads_supported = mpi_enabled = mpi_built = gloo_enabled = gloo_built = _absent
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _absent
