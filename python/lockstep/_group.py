"""Groups of ranks."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int
from typing import Optional, Sequence

from ._library import HANDLE, WORLD, GroupOptions, call, milliseconds, number


class Group:
    """Ranks that communicate. `world` is all of them; new_group() and split_group() make smaller ones.

    A process outside the group has one all the same: its rank is -1, and verbs on it do nothing. free() leaves the group, as does the
    end of a with statement.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle

    @property
    def rank(self) -> int:
        return number(call.rank, self.handle)

    @property
    def size(self) -> int:
        return number(call.size, self.handle)

    @property
    def ranks(self) -> list[int]:
        """The ranks of the world, in group order."""
        found = (c_int * self.size)()
        call.group_ranks(self.handle, found)
        return list(found)

    @property
    def name(self) -> str:
        return self._text(call.group_name)

    @property
    def backend(self) -> str:
        return self._text(call.group_backend)

    def abort(self, reason: str) -> None:
        """Ends the group for every rank: all pending and later operations raise Aborted with the reason."""
        call.group_abort(self.handle, reason.encode())

    def free(self) -> None:
        """Leaves the group. Members that still need this rank get PeerLost."""
        call.group_free(self.handle)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_error: object) -> None:
        self.free()

    def _text(self, function) -> str:
        text = c_char_p()
        function(self.handle, byref(text))
        return text.value.decode()


world = Group(WORLD)


def _options(name: Optional[str], backend: Optional[str], timeout: Optional[float], local: bool) -> GroupOptions:
    return GroupOptions(ctypes.sizeof(GroupOptions), name.encode() if name else None, backend.encode() if backend else None,
                        milliseconds(timeout), local, 0)


def new_group(ranks: Sequence[int], *, name: Optional[str] = None, backend: Optional[str] = None, timeout: Optional[float] = None,
              use_local_synchronization: bool = False) -> Group:
    """The group of these ranks of the world, ascending. Every rank of the world calls it; with use_local_synchronization the members."""
    handle = HANDLE(0)
    call.new_group((c_int * len(ranks))(*ranks), len(ranks), byref(_options(name, backend, timeout, use_local_synchronization)),
                   byref(handle))
    return Group(handle.value)


def split_group(parent: Group = world, *, color: int, key: int = 0, name: Optional[str] = None, timeout: Optional[float] = None) -> Group:
    """Ranks that give the same color form a group, ordered by key. A negative color takes part in none. Every rank of parent calls it."""
    handle = HANDLE(0)
    call.split_group(parent.handle, color, key, byref(_options(name, None, timeout, False)), byref(handle))
    return Group(handle.value)
