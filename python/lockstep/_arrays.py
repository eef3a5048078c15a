"""The verbs, on arrays of NumPy."""
from __future__ import annotations

import ctypes
import math
import weakref
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Optional, Sequence, Union

import numpy as np

from ._group import Group, world
from ._library import ANY_SOURCE, DTYPES, OPS, call, milliseconds
from ._work import Work, started

Result = Union[np.ndarray, Work]
"""What a verb returns: the array with the result, or with async_op=True a Work whose wait() returns that array."""


def _dtype(array: np.ndarray) -> int:
    code = DTYPES.get(array.dtype.name) if array.dtype.isnative else None
    if code is None:
        raise TypeError(f"there are no collectives of dtype {array.dtype}; there are {', '.join(DTYPES)}")
    return code


def _address(array: np.ndarray, writes: bool = False) -> int:
    """Where the elements of a contiguous array lie."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a numpy.ndarray is needed, not {type(array).__name__}")
    if not array.flags.forc:
        raise ValueError("the array is not contiguous; use numpy.ascontiguousarray() and copy the result back")
    if writes and not array.flags.writeable:
        raise ValueError("the array is read-only")
    return array.__array_interface__["data"][0]


def _op(op: str) -> int:
    if op not in OPS:
        raise ValueError(f"there is no operator {op!r}; there are {', '.join(OPS)}")
    return OPS[op]


def _rows(array: np.ndarray) -> int:
    """Elements of one entry of the first axis."""
    return math.prod(array.shape[1:])


def _counts(counts: Sequence[int], group: Group, row: int) -> ctypes.Array:
    if len(counts) != group.size:
        raise ValueError(f"there must be one count for each rank, {group.size}; there are {len(counts)}")
    return (c_size_t * len(counts))(*(int(count) * row for count in counts))


def _output(out: Optional[np.ndarray], shape: tuple, like: np.ndarray) -> np.ndarray:
    if out is None:
        return np.empty(shape, like.dtype)
    if out.shape != shape or out.dtype != like.dtype:
        raise ValueError(f"out must be of shape {shape} and {like.dtype}, and is {out.shape} and {out.dtype}")
    return out


def _leads_with_rank(array: np.ndarray, group: Group, what: str) -> None:
    if array.ndim == 0 or array.shape[0] != group.size:
        raise ValueError(f"{what}'s first axis must be the rank, {group.size} long; its shape is {array.shape}")


def _check_length(array: np.ndarray, length: int, what: str) -> None:
    if array.ndim == 0 or array.shape[0] != length:
        raise ValueError(f"{what}'s first axis must be {length} long, as the counts say; its shape is {array.shape}")


def _run(function, arguments: tuple, result, arrays: tuple, async_op: bool):
    """Calls the function of C, and waits unless async_op. `arrays` stay alive until it is done."""
    if not async_op:
        function(*arguments, None)
        return result
    work = Work(result, arrays)
    function(*arguments, byref(work._handle))
    return started(work)


def barrier(*, group: Group = world, async_op: bool = False) -> Optional[Work]:
    """Returns when every rank of the group has called it."""
    return _run(call.barrier, (group.handle,), None, (), async_op)


def monitored_barrier(*, timeout: Optional[float] = None, wait_all_ranks: bool = True, group: Group = world) -> None:
    """A barrier that names the ranks that did not come within `timeout` seconds: all of them, or only the first."""
    call.monitored_barrier(group.handle, milliseconds(timeout), wait_all_ranks)


def all_reduce(array: np.ndarray, op: str = "sum", *, group: Group = world, async_op: bool = False) -> Result:
    """The combination of all ranks' arrays, on every rank, in place. op: sum, avg, product, min, max, band, bor, bxor."""
    arguments = (group.handle, _address(array, writes=True), array.size, _dtype(array), _op(op))
    return _run(call.all_reduce, arguments, array, (array,), async_op)


def all_reduce_coalesced(arrays: Sequence[np.ndarray], op: str = "sum", *, group: Group = world, async_op: bool = False):
    """all_reduce of several arrays of one dtype through one operation."""
    if not arrays or any(array.dtype != arrays[0].dtype for array in arrays):
        raise ValueError("all_reduce_coalesced takes at least one array, all of one dtype")
    places = (c_void_p * len(arrays))(*(_address(array, writes=True) for array in arrays))
    counts = (c_size_t * len(arrays))(*(array.size for array in arrays))
    arguments = (group.handle, places, counts, len(arrays), _dtype(arrays[0]), _op(op))
    return _run(call.all_reduce_coalesced, arguments, arrays, (list(arrays),), async_op)


def reduce(array: np.ndarray, root: int, op: str = "sum", *, group: Group = world, async_op: bool = False) -> Result:
    """all_reduce whose result the root alone has, in place; other ranks' arrays stay as they are."""
    arguments = (group.handle, _address(array, writes=True), array.size, _dtype(array), _op(op), root)
    return _run(call.reduce, arguments, array, (array,), async_op)


def broadcast(array: np.ndarray, root: int, *, group: Group = world, async_op: bool = False) -> Result:
    """The root's array, on every rank, in place."""
    arguments = (group.handle, _address(array, writes=True), array.size, _dtype(array), root)
    return _run(call.broadcast, arguments, array, (array,), async_op)


def all_gather(array: np.ndarray, *, out: Optional[np.ndarray] = None, group: Group = world, async_op: bool = False) -> Result:
    """Every rank's array, on every rank: shape (size, *array.shape)."""
    out = _output(out, (group.size, *array.shape), array)
    arguments = (group.handle, _address(array), _address(out, writes=True), array.size, _dtype(array))
    return _run(call.all_gather, arguments, out, (array, out), async_op)


def all_gatherv(array: np.ndarray, counts: Sequence[int], *, out: Optional[np.ndarray] = None, group: Group = world,
                async_op: bool = False) -> Result:
    """Every rank's rows, one behind the other. counts[r]: how many rank r has, the same list on every rank."""
    if group.rank >= 0:
        _check_length(array, counts[group.rank], "the array")
    out = _output(out, (sum(counts), *array.shape[1:]), array)
    arguments = (group.handle, _address(array), _address(out, writes=True), _counts(counts, group, _rows(array)), _dtype(array))
    return _run(call.all_gatherv, arguments, out, (array, out), async_op)


def reduce_scatter(array: np.ndarray, op: str = "sum", *, out: Optional[np.ndarray] = None, group: Group = world,
                   async_op: bool = False) -> Result:
    """The combination of all ranks' array[rank]: shape array.shape[1:]."""
    _leads_with_rank(array, group, "the array")
    out = _output(out, array.shape[1:], array)
    arguments = (group.handle, _address(array), _address(out, writes=True), out.size, _dtype(array), _op(op))
    return _run(call.reduce_scatter, arguments, out, (array, out), async_op)


def reduce_scatterv(array: np.ndarray, counts: Sequence[int], op: str = "sum", *, out: Optional[np.ndarray] = None,
                    group: Group = world, async_op: bool = False) -> Result:
    """The combination of all ranks' rows for this rank. counts[r]: how many rows rank r gets."""
    _check_length(array, sum(counts), "the array")
    out = _output(out, (counts[max(group.rank, 0)], *array.shape[1:]), array)
    arguments = (group.handle, _address(array), _address(out, writes=True), _counts(counts, group, _rows(array)), _dtype(array), _op(op))
    return _run(call.reduce_scatterv, arguments, out, (array, out), async_op)


def all_to_all(array: np.ndarray, *, out: Optional[np.ndarray] = None, group: Group = world, async_op: bool = False) -> Result:
    """array[r] goes to rank r; result[r] comes from rank r."""
    _leads_with_rank(array, group, "the array")
    out = _output(out, array.shape, array)
    arguments = (group.handle, _address(array), _address(out, writes=True), _rows(array), _dtype(array))
    return _run(call.all_to_all, arguments, out, (array, out), async_op)


def all_to_allv(array: np.ndarray, input_counts: Sequence[int], output_counts: Sequence[int], *, out: Optional[np.ndarray] = None,
                group: Group = world, async_op: bool = False) -> Result:
    """input_counts[r] rows go to rank r, output_counts[r] come from it."""
    _check_length(array, sum(input_counts), "the array")
    out = _output(out, (sum(output_counts), *array.shape[1:]), array)
    row = _rows(array)
    arguments = (group.handle, _address(array), _counts(input_counts, group, row), _address(out, writes=True),
                 _counts(output_counts, group, row), _dtype(array))
    return _run(call.all_to_allv, arguments, out, (array, out), async_op)


def _is_root(group: Group, root: int) -> bool:
    return group.rank >= 0 and group.ranks[group.rank] == root


def gather(array: np.ndarray, root: int, *, out: Optional[np.ndarray] = None, group: Group = world, async_op: bool = False):
    """Every rank's array, on the root: shape (size, *array.shape). None elsewhere."""
    out = _output(out, (group.size, *array.shape), array) if _is_root(group, root) else None
    place = None if out is None else _address(out, writes=True)
    arguments = (group.handle, _address(array), place, array.size, _dtype(array), root)
    return _run(call.gather, arguments, out, (array, out), async_op)


def gatherv(array: np.ndarray, root: int, counts: Optional[Sequence[int]] = None, *, out: Optional[np.ndarray] = None,
            group: Group = world, async_op: bool = False):
    """Every rank's rows, one behind the other, on the root, which alone gives counts. None elsewhere."""
    place, list_of_counts, row = None, None, _rows(array)
    if _is_root(group, root):
        if counts is None:
            raise ValueError("the root gives counts")
        out = _output(out, (sum(counts), *array.shape[1:]), array)
        place, list_of_counts = _address(out, writes=True), _counts(counts, group, row)
    else:
        out = None
    arguments = (group.handle, _address(array), array.size, place, list_of_counts, _dtype(array), root)
    return _run(call.gatherv, arguments, out, (array, out), async_op)


def scatter(out: np.ndarray, root: int, array: Optional[np.ndarray] = None, *, group: Group = world, async_op: bool = False) -> Result:
    """out becomes the root's array[rank]. The root alone gives an array, of shape (size, *out.shape)."""
    place = None
    if _is_root(group, root):
        if array is None or array.shape != (group.size, *out.shape) or array.dtype != out.dtype:
            raise ValueError(f"the root gives an array of shape {(group.size, *out.shape)} and {out.dtype}")
        place = _address(array)
    arguments = (group.handle, place, _address(out, writes=True), out.size, _dtype(out), root)
    return _run(call.scatter, arguments, out, (array, out), async_op)


def scatterv(out: np.ndarray, root: int, array: Optional[np.ndarray] = None, counts: Optional[Sequence[int]] = None, *,
             group: Group = world, async_op: bool = False) -> Result:
    """out becomes this rank's rows of the root's array. The root alone gives array and counts."""
    place, list_of_counts = None, None
    if _is_root(group, root):
        if array is None or counts is None or array.dtype != out.dtype or array.shape[1:] != out.shape[1:]:
            raise ValueError(f"the root gives counts and an array with rows of shape {out.shape[1:]} and {out.dtype}")
        _check_length(array, sum(counts), "the array")
        place, list_of_counts = _address(array), _counts(counts, group, _rows(out))
    arguments = (group.handle, place, list_of_counts, _address(out, writes=True), out.size, _dtype(out), root)
    return _run(call.scatterv, arguments, out, (array, out), async_op)


def send(array: np.ndarray, destination: int, tag: int = 0, *, group: Group = world, async_op: bool = False) -> Optional[Work]:
    """One message to another rank. Messages with one tag arrive in the order sent."""
    arguments = (group.handle, _address(array), array.size, _dtype(array), destination, tag)
    return _run(call.send, arguments, None, (array,), async_op)


def recv(array: np.ndarray, source: int = ANY_SOURCE, tag: int = 0, *, group: Group = world, async_op: bool = False):
    """A message becomes the array. Returns the rank it came from; with async_op the Work, whose `source` says it."""
    sender = c_int(-1)
    arguments = (group.handle, _address(array, writes=True), array.size, _dtype(array), source, tag)
    done = _run(call.recv, (*arguments, None if async_op else byref(sender)), array, (array,), async_op)
    return done if async_op else sender.value


def shared_empty(shape: Union[int, Sequence[int]], dtype=np.float32, *, group: Group = world) -> np.ndarray:
    """An array of zeros on which the group's collectives copy nothing in or out. It is freed with its last reference."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    bytes_needed = math.prod(shape) * np.dtype(dtype).itemsize
    memory = c_void_p()
    call.allocate_shared(group.handle, max(bytes_needed, 1), byref(memory))
    held = (ctypes.c_char * max(bytes_needed, 1)).from_address(memory.value)
    weakref.finalize(held, call.free_shared, memory.value)
    return np.frombuffer(held, dtype, math.prod(shape)).reshape(shape)
