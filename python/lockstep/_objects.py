"""Collectives for byte strings whose size only their owner knows. Nothing that arrives is ever executed."""
from __future__ import annotations

from ctypes import byref, c_char_p, c_int, c_size_t
from typing import Optional, Sequence

from ._arrays import _is_root
from ._group import Group, world
from ._library import ANY_SOURCE, call, objects


def all_gather_object(data: bytes, *, group: Group = world) -> list[bytes]:
    """Every rank's, by rank, on every rank."""
    return objects(call.all_gather_object, group.handle, data, len(data))


def gather_object(data: bytes, root: int, *, group: Group = world) -> list[bytes]:
    """Every rank's, by rank, on the root; empty elsewhere."""
    return objects(call.gather_object, group.handle, data, len(data), root)


def broadcast_object(data: Optional[bytes], root: int, *, group: Group = world) -> Optional[bytes]:
    """The root's, on every rank. Other ranks may give None."""
    found = objects(call.broadcast_object, group.handle, data, len(data or b""), root)
    return found[0] if found else None


def scatter_object(data: Optional[Sequence[bytes]], root: int, *, group: Group = world) -> Optional[bytes]:
    """This rank's of the root's list, which has one entry for each rank. Other ranks may give None."""
    strings, sizes = None, None
    if _is_root(group, root):
        if data is None or len(data) != group.size:
            raise ValueError(f"the root gives one byte string for each rank, {group.size}")
        strings, sizes = (c_char_p * len(data))(*data), (c_size_t * len(data))(*map(len, data))
    found = objects(call.scatter_object, group.handle, strings, sizes, root)
    return found[0] if found else None


def send_object(data: bytes, destination: int, tag: int = 0, *, group: Group = world) -> None:
    """A byte string to another rank."""
    call.send_object(group.handle, data, len(data), destination, tag)


def recv_object(source: int = ANY_SOURCE, tag: int = 0, *, group: Group = world) -> tuple[bytes, int]:
    """A byte string, and the rank it came from."""
    sender = c_int(-1)
    found = objects(call.recv_object, group.handle, source, tag, byref(sender))
    return (found[0] if found else b""), sender.value
