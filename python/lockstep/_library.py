"""liblockstep_core.so through ctypes: its functions, and its errors as exceptions."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p

HANDLE = c_int64
WORLD = 1
ANY_SOURCE = -1
OPS = {"sum": 0, "avg": 1, "product": 2, "min": 3, "max": 4, "band": 5, "bor": 6, "bxor": 7}
DTYPES = {"float64": 0, "float32": 1, "float16": 2, "bfloat16": 3, "int8": 4, "uint8": 5, "int16": 6, "uint16": 7, "int32": 8,
          "uint32": 9, "int64": 10, "uint64": 11, "bool": 12, "complex64": 13, "complex128": 14}


class Error(RuntimeError):
    """Any failure that Lockstep reports. Its text names rank, group, operation, number and what to do."""


class InvalidArgument(Error, ValueError):
    """The caller's mistake, found before anything was sent."""


class Timeout(Error, TimeoutError):
    """No progress within the deadline."""


class PeerLost(Error, ConnectionError):
    """A rank died, left, or closed its connection: `peer` is its number within the group."""

    peer = -1


class Mismatch(Error):
    """Ranks made different calls."""


class Aborted(Error):
    """The group was aborted or closed by this program."""


class StoreError(Error):
    """The meeting of the ranks, or a key-value store."""


class FormatError(Error):
    """Bytes do not have the expected format."""


class SystemError_(Error, OSError):
    """The operating system refused: `errno` has its number."""


class NotInitialized(Error):
    """There is no job; call init()."""


_KINDS = {1: InvalidArgument, 2: Timeout, 3: PeerLost, 4: Mismatch, 5: Aborted, 6: StoreError, 7: FormatError, 8: SystemError_,
          100: InvalidArgument, 101: NotInitialized}


class InitOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("backend", c_char_p), ("init_method", c_char_p), ("rank", c_int), ("world_size", c_int),
                ("store", HANDLE), ("timeout_ms", c_int64), ("warn_after_ms", c_int64), ("virtual_ranks", c_int), ("reserved", c_int)]


class GroupOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("backend", c_char_p), ("timeout_ms", c_int64),
                ("use_local_synchronization", c_int), ("reserved", c_int)]


_OUT, _WORK, _COUNTS, _LIST = POINTER(c_int), POINTER(HANDLE), POINTER(c_size_t), POINTER(HANDLE)
_FUNCTIONS = {
    "init": [POINTER(InitOptions)], "shutdown": [], "local_rank": [_OUT], "local_size": [_OUT], "node_rank": [_OUT], "node_count": [_OUT],
    "new_group": [POINTER(c_int), c_size_t, POINTER(GroupOptions), _WORK],
    "split_group": [HANDLE, c_int, c_int, POINTER(GroupOptions), _WORK],
    "group_free": [HANDLE], "group_abort": [HANDLE, c_char_p], "rank": [HANDLE, _OUT], "size": [HANDLE, _OUT],
    "group_ranks": [HANDLE, POINTER(c_int)], "group_name": [HANDLE, POINTER(c_char_p)], "group_backend": [HANDLE, POINTER(c_char_p)],
    "work_wait": [HANDLE, c_int64], "work_test": [HANDLE, _OUT], "work_source": [HANDLE, _OUT], "work_free": [HANDLE],
    "barrier": [HANDLE, _WORK], "monitored_barrier": [HANDLE, c_int64, c_int],
    "all_reduce": [HANDLE, c_void_p, c_size_t, c_int, c_int, _WORK],
    "all_reduce_coalesced": [HANDLE, POINTER(c_void_p), _COUNTS, c_size_t, c_int, c_int, _WORK],
    "reduce": [HANDLE, c_void_p, c_size_t, c_int, c_int, c_int, _WORK],
    "broadcast": [HANDLE, c_void_p, c_size_t, c_int, c_int, _WORK],
    "all_gather": [HANDLE, c_void_p, c_void_p, c_size_t, c_int, _WORK],
    "all_gatherv": [HANDLE, c_void_p, c_void_p, _COUNTS, c_int, _WORK],
    "reduce_scatter": [HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_int, _WORK],
    "reduce_scatterv": [HANDLE, c_void_p, c_void_p, _COUNTS, c_int, c_int, _WORK],
    "all_to_all": [HANDLE, c_void_p, c_void_p, c_size_t, c_int, _WORK],
    "all_to_allv": [HANDLE, c_void_p, _COUNTS, c_void_p, _COUNTS, c_int, _WORK],
    "gather": [HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_int, _WORK],
    "gatherv": [HANDLE, c_void_p, c_size_t, c_void_p, _COUNTS, c_int, c_int, _WORK],
    "scatter": [HANDLE, c_void_p, c_void_p, c_size_t, c_int, c_int, _WORK],
    "scatterv": [HANDLE, c_void_p, _COUNTS, c_void_p, c_size_t, c_int, c_int, _WORK],
    "send": [HANDLE, c_void_p, c_size_t, c_int, c_int, c_int, _WORK],
    "recv": [HANDLE, c_void_p, c_size_t, c_int, c_int, c_int, _OUT, _WORK],
    "allocate_shared": [HANDLE, c_size_t, POINTER(c_void_p)], "free_shared": [c_void_p],
    "all_gather_object": [HANDLE, c_char_p, c_size_t, _LIST], "gather_object": [HANDLE, c_char_p, c_size_t, c_int, _LIST],
    "broadcast_object": [HANDLE, c_char_p, c_size_t, c_int, _LIST],
    "scatter_object": [HANDLE, POINTER(c_char_p), _COUNTS, c_int, _LIST],
    "send_object": [HANDLE, c_char_p, c_size_t, c_int, c_int], "recv_object": [HANDLE, c_int, c_int, _OUT, _LIST],
    "objects_count": [HANDLE, _COUNTS], "objects_get": [HANDLE, c_size_t, POINTER(c_void_p), _COUNTS], "objects_free": [HANDLE],
}


def _path() -> str:
    """$LOCKSTEP_CORE_LIBRARY, the library in this package, or one that the system finds."""
    given = os.environ.get("LOCKSTEP_CORE_LIBRARY")
    if given:
        return given
    here = pathlib.Path(__file__).resolve().parent
    for found in sorted((here / "lib").glob("liblockstep_core.so*")):
        return str(found)
    found = ctypes.util.find_library("lockstep_core")
    if found is None:
        raise ImportError("liblockstep_core.so is not found: set LOCKSTEP_CORE_LIBRARY to its path, or LD_LIBRARY_PATH to its folder")
    return found


class _Library:
    """Each function as call.NAME(...): it raises what the code of C means."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(_path())
        for name in ("error_text", "version"):
            getattr(self._c, f"lockstep_{name}").restype = c_char_p
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self._c, f"lockstep_{name}")
            function.argtypes = arguments
            function.errcheck = self._check  # the answer of every one of them is a code
            setattr(self, name, function)

    def _check(self, code: int, _function: object, _arguments: object) -> None:
        if code == 0:
            return
        error = _KINDS.get(code, Error)(self._c.lockstep_error_text().decode(errors="replace"))
        if isinstance(error, PeerLost):
            error.peer = self._c.lockstep_error_peer()
        if isinstance(error, SystemError_):
            error.errno = self._c.lockstep_error_number()
        raise error

    def is_initialized(self) -> bool:
        return bool(self._c.lockstep_is_initialized())

    def version(self) -> str:
        return self._c.lockstep_version().decode()


call = _Library()


def number(function, *arguments) -> int:
    """The number that a function of C gives through its last argument."""
    result = c_int(-1)
    function(*arguments, ctypes.byref(result))
    return result.value


def objects(function, *arguments) -> list[bytes]:
    """The byte strings of a list that a function of C gives through its last argument."""
    handle, count = HANDLE(0), c_size_t(0)
    function(*arguments, ctypes.byref(handle))
    try:
        call.objects_count(handle, ctypes.byref(count))
        found = []
        for index in range(count.value):
            place, size = c_void_p(), c_size_t(0)
            call.objects_get(handle, index, ctypes.byref(place), ctypes.byref(size))
            found.append(ctypes.string_at(place, size.value) if size.value else b"")
        return found
    finally:
        call.objects_free(handle)


def milliseconds(seconds) -> int:
    """For an option of C, where 0 means the default."""
    return 0 if seconds is None else max(1, round(seconds * 1000))
