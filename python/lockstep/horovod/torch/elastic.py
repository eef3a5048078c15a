"""hvd.elastic: a program's state, from which a job goes on after a rank has died. The launcher starts all ranks anew.

    import lockstep.horovod.torch as hvd
    hvd.init()
    state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 90):
            for state.batch in range(state.batch, batches):
                step(state.batch)
                if (state.batch + 1) % 100 == 0:
                    state.commit()
            state.batch = 0

    train(state)

    LOCKSTEP_ELASTIC_DIR=runs/7 lockstep horovodrun -np 4 --reset-limit 3 python train.py

Differs     Horovod keeps commits in the memory of the ranks that live, and goes on with these ranks. Here they lie in a file of
            $LOCKSTEP_ELASTIC_DIR, and `--reset-limit N` (lockstep run --max-restarts N) starts the whole job anew after a failure.
            Ranks cannot come and go while it runs; the next start may have another number of them.
The folder  belongs to one run, and only rank 0 uses it. The file is removed when the function has returned on every rank. A job that
            finds one goes on from there. Without the variable, a restart begins anew, and a warning says so.
Trust       the file is a pickle, as torch.save writes it: reading it runs code that it names.
Raises      what a collective raises, lockstep.PeerLost for example, leaves the function and ends the process. That is what makes the
            launcher start again.
"""
from __future__ import annotations

import copy
import functools
import math
import os
import pathlib
import random
import warnings
from typing import Callable, Iterable, Optional

import torch

from .. import _basics
from .._objects import allgather_object, broadcast_object
from .functions import broadcast_optimizer_state, broadcast_parameters
from .mpi_ops import barrier

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]


class State:
    """What survives. Its attributes are the program's; save, restore and sync say how they are kept."""

    def __init__(self) -> None:
        self._reset_callbacks: list = []
        self._warned = False

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Each is called without arguments when a job goes on from a commit, before the function is entered again."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Every rank calls it between two steps. Rank 0 writes the file; if it dies meanwhile, the commit before stays."""
        self.save()
        path = _path()
        if path is not None and _basics.rank() == 0:
            _write(path, self.saved())
        elif path is None and not self._warned and _basics.rank() == 0:
            self._warned = True
            warnings.warn("hvd.elastic: LOCKSTEP_ELASTIC_DIR names no folder for commits, so a restart begins anew", stacklevel=2)
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Nothing: hosts do not change while a job runs."""

    def save(self) -> None:
        """Keeps a copy of the values, in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """The values of the last save()."""
        raise NotImplementedError

    def sync(self) -> None:
        """Rank 0's values, on every rank."""
        raise NotImplementedError

    def saved(self) -> object:
        """What save() has kept: it goes into the file."""
        raise NotImplementedError

    def load(self, saved: object) -> None:
        """Takes what saved() gave before the restart, as if save() had kept it, and restores it."""
        raise NotImplementedError


class ObjectState(State):
    """Values that can be pickled, each an attribute: ObjectState(epoch=0).epoch."""

    def __init__(self, **values) -> None:
        super().__init__()
        self._names = list(values)
        self.__dict__.update(values)
        self._saved: dict = {}

    def values(self) -> dict:
        return {name: getattr(self, name) for name in self._names}

    def save(self) -> None:
        self._saved = copy.deepcopy(self.values())

    def restore(self) -> None:
        self.__dict__.update(copy.deepcopy({name: value for name, value in self._saved.items() if name in self._names}))

    def sync(self) -> None:
        self.__dict__.update(broadcast_object(self.values(), 0, "elastic.values"))
        self.save()

    def saved(self) -> object:
        return {"values": self._saved}

    def load(self, saved) -> None:
        self._saved = saved["values"]
        self.restore()


class TorchState(ObjectState):
    """Models, optimizers and ElasticSamplers, whose state_dict() is kept, and other values, which are kept as they are:
    TorchState(model, optimizer, sampler=sampler, epoch=0). Each is an attribute."""

    def __init__(self, model=None, optimizer=None, **others) -> None:
        given = {name: value for name, value in (("model", model), ("optimizer", optimizer)) if value is not None} | others
        kept = [name for name, value in given.items() if isinstance(value, (torch.nn.Module, torch.optim.Optimizer, ElasticSampler))]
        super().__init__(**{name: value for name, value in given.items() if name not in kept})
        self.__dict__.update({name: given[name] for name in kept})
        self._kept = kept
        self._saved_dicts: dict = {}

    def save(self) -> None:
        super().save()
        for name in self._kept:
            one = getattr(self, name)
            if isinstance(one, ElasticSampler):
                one.gather(name)
            self._saved_dicts[name] = copy.deepcopy(one.state_dict())

    def restore(self) -> None:
        super().restore()
        for name, saved in self._saved_dicts.items():
            getattr(self, name).load_state_dict(copy.deepcopy(saved))

    def sync(self) -> None:
        for name in self._kept:
            one = getattr(self, name)
            if isinstance(one, torch.nn.Module):
                broadcast_parameters({f"elastic.{name}.{key}": value for key, value in one.state_dict().items()}, 0)
            elif isinstance(one, torch.optim.Optimizer):
                broadcast_optimizer_state(one, 0)
            else:
                one.load_state_dict(broadcast_object(one.state_dict(), 0, f"elastic.{name}"))
        super().sync()

    def saved(self) -> object:
        return {**super().saved(), "dicts": self._saved_dicts}

    def load(self, saved) -> None:
        strangers = set(saved["dicts"]) ^ set(self._kept)
        if strangers:
            raise ValueError(f"the commit in {_path()} and this TorchState differ in {', '.join(sorted(strangers))}: remove the file to begin "
                             "anew")
        self._saved_dicts = saved["dicts"]
        super().load(saved)


class ElasticSampler(torch.utils.data.Sampler):
    """DistributedSampler that leaves out what an epoch has had before a restart, also with another number of ranks.

    record_batch(batch_idx, batch_size) after each step says what this rank has had; TorchState.commit() gathers that of all ranks.
    """

    def __init__(self, dataset, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch, self.processed_indices = 0, set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """At the end of an epoch, with the number of the next: all indices are left again."""
        self.epoch, self.processed_indices = epoch, set()
        self.reset()

    def reset(self) -> None:
        """Deals what is left to this job's ranks. The shorter shares are filled up from the beginning, as DistributedSampler does."""
        self.remaining_indices = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        self.num_samples = math.ceil(len(self.remaining_indices) / _basics.size())
        order = list(self.remaining_indices)
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        while 0 < len(order) < self.num_samples * _basics.size():
            order += order[:self.num_samples * _basics.size() - len(order)]
        self.indices = order[_basics.rank()::_basics.size()]

    def get_indices(self, batch_idx: int, batch_size: int) -> list:
        return self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size]

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Iterable[int]) -> None:
        self.processed_indices.update(indices)

    def gather(self, name: str) -> None:
        """Every rank learns what all have had. Nobody's share changes."""
        self.processed_indices = set().union(*allgather_object(self.processed_indices, f"elastic.{name}"))

    def state_dict(self) -> dict:
        return {"epoch": self.epoch, "processed_indices": sorted(self.processed_indices)}

    def load_state_dict(self, state: dict) -> None:
        self.epoch, self.processed_indices = state["epoch"], set(state["processed_indices"])
        self.reset()

    def __iter__(self):
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples


def run(function):
    """A decorator for a function whose first argument is a State. Every rank calls it after hvd.init(). It is entered with the values of
    the last commit, if there is one, else with rank 0's."""
    @functools.wraps(function)
    def entered(state, *arguments, **keywords):
        path = _path() if _basics.rank() == 0 else None
        found = path is not None and path.exists()
        if found:
            state.load(torch.load(path, weights_only=False))
        if broadcast_object(found, 0, "elastic.found"):
            state.on_reset()
        state.sync()
        result = function(state, *arguments, **keywords)
        barrier()  # a rank that fails before it is done finds the commit
        if path is not None:
            path.unlink(missing_ok=True)
        return result
    return entered


def _path() -> Optional[pathlib.Path]:
    folder = os.environ.get("LOCKSTEP_ELASTIC_DIR")
    return pathlib.Path(folder, "commit.pt") if folder else None


def _write(path: pathlib.Path, content: object) -> None:
    """Under another name first, and synchronised with the disk: the file is the old one or the new one whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
