"""Operations that ranks match by name: lockstep/c/named.h through ctypes, without any framework."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from typing import Optional, Sequence

from .. import _library

ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER, JOIN = range(7)


class Request(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("kind", c_int), ("process_set", c_int), ("dtype", c_int), ("op", c_int),
                ("root", c_int), ("dimensions", c_int), ("shape", c_void_p), ("splits", c_void_p), ("prescale", c_double),
                ("postscale", c_double), ("input", c_void_p), ("output", c_void_p)]


_SIZE = ctypes.sizeof(Request)
_OUT, _LONG = POINTER(c_int), POINTER(c_int64)
_FUNCTIONS = {
    "init": [_OUT, POINTER(c_size_t), c_size_t], "shutdown": [], "submit": [POINTER(Request), c_size_t, _LONG], "poll": [c_int64, _OUT],
    "prepare": [POINTER(Request), _LONG], "start": [c_int64, c_void_p, c_void_p], "wait": [c_int64], "finish": [c_int64], "result": [c_int64, POINTER(c_void_p), _LONG], "received": [c_int64, _LONG], "last_joined": [c_int64, _OUT],
    "free": [c_int64], "add_process_set": [_OUT, c_size_t, _OUT], "remove_process_set": [c_int], "process_set": [c_int, _OUT, _OUT],
    "places": [_OUT, _OUT, _OUT], "start_timeline": [c_char_p, c_int], "stop_timeline": [],
}


class _Named:
    """Each function as named.NAME(...): it raises what the code of C means."""

    def __init__(self) -> None:
        for name, arguments in _FUNCTIONS.items():
            function = getattr(_library.call._c, f"lockstep_named_{name}")
            function.argtypes = arguments
            function.errcheck = _library.call._check
            setattr(self, name, function)

    def is_initialized(self) -> bool:
        return bool(_library.call._c.lockstep_named_is_initialized())


named = _Named()


def _bare(name: str):
    """The function of C as it is. Its caller looks at the code itself: a check in Python costs a tenth of a small operation."""
    function = _library.call._c[f"lockstep_named_{name}"]
    function.argtypes = _FUNCTIONS[name]
    return function


_submit, _start, _wait, _free = map(_bare, ("submit", "start", "wait", "free"))

_shapes: dict[tuple, tuple] = {}  # arrays for C of shapes that were used before, and their addresses
_MOST_SHAPES = 4096


def _array_of(shape: Sequence[int]) -> tuple:
    found = _shapes.get(shape) if len(shape) else (None, None)
    if found is None:
        array = (c_int64 * len(shape))(*shape)
        found = array, ctypes.addressof(array)
        if len(_shapes) < _MOST_SHAPES:
            _shapes[tuple(shape)] = found
    return found


def request(kind: int, name: Optional[str], process_set: int, dtype: int = 0, op: int = 0, root: int = 0, shape: Sequence[int] = (),
            splits: Optional[Sequence[int]] = None, prescale: float = 1.0, postscale: float = 1.0, source: Optional[int] = None,
            target: Optional[int] = None) -> Request:
    """A request; it holds what its pointers point to."""
    array, address = _array_of(shape)
    made = Request(_SIZE, name.encode() if name else None, kind, process_set, dtype, op, root, len(shape), address, None, prescale,
                   postscale, source, target)
    made.kept_shape = array
    if splits is not None:
        made.kept_splits = (c_int64 * len(splits))(*splits)
        made.splits = ctypes.addressof(made.kept_splits)
    return made


class Prepared:
    """An operation with a name that is started again and again, so that what C needs of it is made once. It is one at a time."""

    __slots__ = ("handle",)

    def __init__(self, request: Request) -> None:
        handle = c_int64(0)
        named.prepare(byref(request), byref(handle))
        self.handle = handle.value

    def start(self, source: int, target: int) -> None:
        code = _start(self.handle, source, target)
        if code:
            _library.call._check(code, None, None)

    def wait(self) -> None:
        code = _wait(self.handle)
        if code:
            _library.call._check(code, None, None)

    def __del__(self) -> None:
        if hasattr(self, "handle") and _free is not None:
            _free(self.handle)


known: dict[str, tuple[tuple, Prepared]] = {}  # by name: the form in which it was prepared last, for the next call of that name


def submit(requests: Sequence[Request]) -> list[int]:
    """Handles, one for each request. More than one request: they run together or not at all."""
    handles = (c_int64 * len(requests))()
    named.submit((Request * len(requests))(*requests), len(requests), handles)
    return list(handles)


def poll(handle: int) -> bool:
    return _library.number(named.poll, handle) != 0


def result(handle: int) -> tuple[Optional[int], int]:
    """Where the result of an operation lies that has memory of its own, and how many rows it has."""
    place, rows = c_void_p(), c_int64(0)
    named.result(handle, byref(place), byref(rows))
    return place.value, rows.value


def received(handle: int, ranks: int) -> list[int]:
    splits = (c_int64 * ranks)()
    named.received(handle, splits)
    return list(splits)


def numbers(function, count: int, *arguments) -> list[int]:
    """The numbers that a function of C gives through its last arguments."""
    places = [c_int(-1) for _ in range(count)]
    function(*arguments, *map(byref, places))
    return [place.value for place in places]


def ranks_array(ranks: Sequence[int]):
    return (c_int * len(ranks))(*ranks)


def sizes_array(sizes: Sequence[int]):
    return (c_size_t * len(sizes))(*sizes)
