"""Makes groups for torch.distributed, in liblockstep_torch_<version of torch>.so."""
from __future__ import annotations

import atexit
import dataclasses
import os
import pathlib
import re
import secrets
import socket
from datetime import timedelta
from typing import Iterator, Optional

import torch
import torch.distributed as dist

import lockstep
import lockstep_torch_entry
from lockstep import _library

_NAME = re.compile(r"liblockstep_torch_(\d+\.\d+)\.so$")
_job_store = None  # the store of lockstep://


@dataclasses.dataclass(frozen=True)
class Options:
    """For pg_options of init_process_group(). None is the default.

    backend: how bytes move, a name that `lockstep info` lists; default $LOCKSTEP_BACKEND, else "auto". warn_after: after how many seconds
    a waiting rank names those that it waits for; default $LOCKSTEP_WARN_AFTER, else 5.
    """

    backend: Optional[str] = None
    warn_after: Optional[float] = None


def supported_versions() -> list[str]:
    """The versions of torch, as "2.13", that this Lockstep was built for."""
    return sorted(match.group(1) for path in _folder().glob("liblockstep_torch_*.so") if (match := _NAME.search(path.name)))


def _folder() -> pathlib.Path:
    """Beside the core's library, because both come from one build."""
    return pathlib.Path(_library._path()).resolve().parent


def _load() -> None:
    """Throws ImportError for a torch that there is no library for: c10d's classes differ from version to version."""
    found = re.match(r"\d+\.\d+", torch.__version__)
    minor = found.group() if found else torch.__version__
    supported = supported_versions()
    if minor not in supported:
        raise ImportError(f"lockstep.torch was built for torch {' and '.join(supported) or 'no version'}, and this is torch "
                          f"{torch.__version__}; install a torch {' or '.join(supported) or '(see python/README.md)'}, or a Lockstep built "
                          f"for torch {minor}")
    torch.ops.load_library(str(_folder() / f"liblockstep_torch_{minor}.so"))
    atexit.register(torch.ops.lockstep.leave_all)


def create(options, given: Optional[Options] = None, called: str = "lockstep"):
    """torch's creator of backends, in its extended form. Returns a torch.distributed Backend."""
    given = given or Options()
    if not isinstance(given, Options):
        raise TypeError(f"pg_options of backend lockstep must be a lockstep.torch.Options, not {type(given).__name__}")
    is_job = _is_job(options.store)
    name = options.group_id if dist.is_initialized() else "world"
    ranks = list(options.global_ranks_in_group) if dist.is_initialized() else []
    texts = {"name": f"group {name}" if name.isdigit() else name, "called": called,
             "backend": given.backend or os.environ.get("LOCKSTEP_BACKEND") or "auto"}
    if not is_job and not (ranks and torch.ops.lockstep.has_default_group()):
        texts["prefix"] = prefix = _prefix(options)
        texts["secret"] = _secret(options, prefix)
        texts["local_address"] = _local_address(options.store)
    warn_after = given.warn_after if given.warn_after is not None else float(os.environ.get("LOCKSTEP_WARN_AFTER") or 5)
    group = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    torch.ops.lockstep.make_backend(group.boxed(), ranks, is_job, _milliseconds(options.timeout),
                                    _milliseconds(timedelta(seconds=warn_after)), texts)
    return group._get_backend(torch.device("cpu"))


def rendezvous(_url: str, timeout: timedelta = timedelta(minutes=30), **_other: object) -> Iterator[tuple[dist.Store, int, int]]:
    """lockstep://: the job's ranks, also those that are not programs of torch. They share no store."""
    global _job_store
    if not lockstep.is_initialized():
        lockstep.init(timeout=timeout.total_seconds())
    _job_store = dist.HashStore()
    yield _job_store, lockstep.rank(), lockstep.size()
    raise RuntimeError("lockstep:// has no second rendezvous")


def _milliseconds(time: timedelta) -> int:
    return max(1, round(time.total_seconds() * 1000))


def _innermost(store):
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def _is_job(store) -> bool:
    return _job_store is not None and _innermost(store) is _job_store


def _prefix(options) -> str:
    """For keys in the store, which may serve several groups of one name, one after the other. Nobody comes for the next one before all have
    come for this one, so each rank learns from the number of arrivals which one it is."""
    return f"lockstep/{(options.store.add('lockstep/arrivals', 1) - 1) // options.group_size}/"


def _secret(options, prefix: str) -> str:
    """32 characters that only the processes know that reach the store. Ranks of several machines prove them to each other."""
    if options.group_size == 1:
        return ""
    if options.group_rank == 0:
        options.store.set(prefix + "secret", secrets.token_hex(16))
    return options.store.get(prefix + "secret").decode()


def _local_address(store) -> str:
    """The address from which this process reaches the server of the store."""
    store = _innermost(store)
    if not isinstance(store, dist.TCPStore) or os.environ.get("LOCKSTEP_SOCKET_IFNAME"):
        return ""
    for family, kind, protocol, _name, address in socket.getaddrinfo(store.host, store.port, type=socket.SOCK_DGRAM):
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)  # sends nothing
                return probe.getsockname()[0]
        except OSError:
            continue
    return ""


_load()
lockstep_torch_entry.register()
