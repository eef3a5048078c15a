"""Operations without a framework's tensors: barrier, join, and objects of Python."""
from __future__ import annotations

import ctypes
import pickle
from typing import Optional

import numpy as np

from .. import _library
from . import _core
from ._basics import ProcessSet, global_process_set, process_set_id
from ._basics import rank as _rank


def _run(request: _core.Request, finish=lambda handle: None):
    """Waits for one operation; `finish` reads its result."""
    handle = _core.submit([request])[0]
    try:
        _core.named.wait(handle)
        return finish(handle)
    finally:
        _core.named.free(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    _run(_core.request(_core.BARRIER, None, process_set_id(process_set)))


def join(device: int = -1) -> int:
    """This rank has no more data: until all ranks have joined, it gives zeros to the others' allreduce. Returns the last that joined."""
    return _run(_core.request(_core.JOIN, None, 0), lambda handle: _core.numbers(_core.named.last_joined, 1, handle)[0])


def _broadcast(array: np.ndarray, root_rank: int, name: Optional[str], process_set: ProcessSet) -> None:
    place = array.__array_interface__["data"][0]
    _run(_core.request(_core.BROADCAST, name, process_set_id(process_set), dtype=_library.DTYPES[array.dtype.name], root=root_rank,
                       shape=array.shape, source=place, target=place))


def _allgather(array: np.ndarray, name: Optional[str], process_set: ProcessSet) -> bytes:
    def read(handle):
        place, rows = _core.result(handle)
        return ctypes.string_at(place, rows * array.itemsize) if rows else b""
    return _run(_core.request(_core.ALLGATHER, name, process_set_id(process_set), dtype=_library.DTYPES[array.dtype.name], shape=array.shape,
                              source=array.__array_interface__["data"][0]), read)


def broadcast_object(obj, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set):
    """The root's object, pickled, on every rank. Ranks run what they unpickle, so they must trust each other."""
    base = f"broadcast.object.{name}" if name else None
    is_root = _rank() == root_rank
    data = np.frombuffer(bytearray(pickle.dumps(obj)), np.uint8) if is_root else None
    size = np.array([data.size if is_root else 0], np.int64)
    _broadcast(size, root_rank, base and f"{base}.size", process_set)
    if data is None:
        data = np.empty(int(size[0]), np.uint8)
    _broadcast(data, root_rank, base and f"{base}.data", process_set)
    return obj if is_root else pickle.loads(data.tobytes())


def allgather_object(obj, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list:
    """Every rank's object, pickled, in the order of ranks. Ranks run what they unpickle, so they must trust each other."""
    base = f"allgather.object.{name}" if name else None
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    sizes = np.frombuffer(_allgather(np.array([data.size], np.int64), base and f"{base}.size", process_set), np.int64)
    everything = _allgather(data, base and f"{base}.data", process_set)
    ends = np.cumsum(sizes)
    return [pickle.loads(everything[end - size:end]) for end, size in zip(ends, sizes)]
