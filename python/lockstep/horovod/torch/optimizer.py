"""DistributedOptimizer: any optimizer of torch whose gradients are reduced over all ranks while backward still runs."""
from __future__ import annotations

import contextlib
import warnings
from typing import Optional

import torch

from .._basics import global_process_set, size_of
from .compression import Compression
from .mpi_ops import (Adasum, Average, Sum, allreduce_async_, grouped_allreduce_async_, sparse_allreduce_async, synchronize)


class _Reduction:
    """What DistributedOptimizer adds to an optimizer: which parameters are reduced how, and which reductions are under way."""

    def __init__(self, named, groups, *, compression, passes, op, predivide, sparse_as_dense, process_set) -> None:
        self.names = {parameter: name for name, parameter in named}
        self.groups = groups
        self.group_of = {parameter: number for number, group in enumerate(groups) for parameter in group}
        self.compression, self.passes = compression, passes
        self.op, self.predivide = op, predivide
        self.sparse_as_dense, self.process_set = sparse_as_dense, process_set
        self.left = dict.fromkeys(self.names, passes)  # backward passes until the gradient is reduced
        self.ready: dict[int, list] = {}  # of groups that are not complete
        self.handles: dict = {}  # handle -> [(parameter, sent, context)], in the order of their start
        self.started: set = set()
        self.is_synchronized = False
        self.synchronizes_in_step = True
        self.hooks = [parameter.register_post_accumulate_grad_hook(self.on_gradient) for parameter in self.names
                      if parameter.requires_grad]

    def factors(self) -> dict:
        if self.op != Average or self.predivide == 1.0:
            return {"op": self.op}
        return {"op": Sum, "prescale_factor": 1.0 / self.predivide, "postscale_factor": self.predivide / size_of(self.process_set)}

    def on_gradient(self, parameter) -> None:
        """A gradient is complete. The k-th of backward_passes_per_step starts its reduction."""
        if parameter in self.started or self.left[parameter] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally.")
        self.left[parameter] -= 1
        if self.left[parameter] == 0:
            self.start(parameter)

    def start(self, parameter) -> None:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        self.started.add(parameter)
        if parameter.grad.is_sparse:
            if not self.sparse_as_dense:
                handle = sparse_allreduce_async(parameter.grad, self.names[parameter], self.op, self.process_set)
                self.handles[handle] = [(parameter, None, None)]
                return
            parameter.grad = parameter.grad.to_dense()
        number = self.group_of.get(parameter)
        if number is None:
            self.send([parameter], self.names[parameter], False)
            return
        ready = self.ready.setdefault(number, [])
        ready.append(parameter)
        if len(ready) == len(self.groups[number]):
            del self.ready[number]
            self.send(self.groups[number], f"group.{number}", True)

    def send(self, parameters, name: str, is_group: bool) -> None:
        sent, contexts = zip(*(self.compression.compress(parameter.grad) for parameter in parameters))
        if is_group:
            handle = grouped_allreduce_async_(list(sent), name=name, process_set=self.process_set, **self.factors())
        else:
            handle = allreduce_async_(sent[0], name=name, process_set=self.process_set, **self.factors())
        self.handles[handle] = list(zip(parameters, sent, contexts))

    def synchronize(self) -> None:
        """Waits for all gradients. A parameter that got none on this rank takes part with zeros, so that no rank waits in vain."""
        for parameter in self.names:
            if parameter.requires_grad and parameter not in self.started:
                self.start(parameter)
        for number in list(self.ready):  # parameters that need no gradient complete no group
            self.send(self.ready.pop(number), f"group.{number}", True)
        handles, self.handles = self.handles, {}
        self.started.clear()
        for parameter in self.left:
            self.left[parameter] = self.passes
        for handle, entries in handles.items():
            result = synchronize(handle)
            for parameter, sent, context in entries:
                self.finish(parameter, result if sent is None else sent, context)
        self.is_synchronized = True

    def finish(self, parameter, sent, context) -> None:
        if sent.is_sparse:
            parameter.grad = sent
            return
        reduced = self.compression.decompress(sent, context)
        if reduced.data_ptr() != parameter.grad.data_ptr():
            with torch.no_grad():
                parameter.grad.copy_(reduced)


class _Distributed:
    """The methods that a distributed optimizer has beside those of its class."""

    def synchronize(self) -> None:
        """Waits for the reduction of all gradients: then they can be clipped, and step() goes inside skip_synchronize()."""
        self._reduction.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Inside, step() does not reduce: optimizer.synchronize() has."""
        self._reduction.synchronizes_in_step = False
        try:
            yield
        finally:
            self._reduction.synchronizes_in_step = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._reduction.passes = passes
        for parameter in self._reduction.left:
            self._reduction.left[parameter] = passes

    def step(self, closure=None):
        reduction = self._reduction
        if reduction.synchronizes_in_step:
            if reduction.is_synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
                              "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context if "
                              "you use optimizer.synchronize() in your code.", stacklevel=2)
            reduction.synchronize()
        reduction.is_synchronized = False
        return super(self._distributed_class, self).step(closure)

    def zero_grad(self, *arguments, **options):
        if self._reduction.handles:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                                 "optimizer.synchronize(). This is prohibited as it can cause a race condition.")
        return super(self._distributed_class, self).zero_grad(*arguments, **options)


class _DistributedDelta:
    """Adasum's way: each rank makes its own step, and the changes of the parameters are combined."""

    def step(self, closure=None):
        reduction = self._reduction
        parameters = [parameter for parameter in reduction.names if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in parameters]
        result = super(self._distributed_class, self).step(closure)
        with torch.no_grad():
            changes = [parameter - start for parameter, start in zip(parameters, before)]
            sent = [reduction.compression.compress(change) for change in changes]
            handles = [allreduce_async_(tensor, name=f"delta.{reduction.names[parameter]}", op=Adasum, process_set=reduction.process_set)
                       for parameter, (tensor, _) in zip(parameters, sent)]
            for parameter, start, (tensor, context), handle in zip(parameters, before, sent, handles):
                synchronize(handle)
                parameter.copy_(start + reduction.compression.decompress(tensor, context))
        return result

    def synchronize(self) -> None:
        """Nothing: changes are combined in step()."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield


def _named_pairs(optimizer, named_parameters) -> list:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        return [(f"allreduce.noname.{number}.{place}", parameter) for number, group in enumerate(optimizer.param_groups)
                for place, parameter in enumerate(group["params"])]
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced by "
                         "model.named_parameters().")
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}")
    known = {parameter for _, parameter in pairs}
    if any(parameter not in known for parameter in parameters):
        raise ValueError("named_parameters was specified, but one or more model parameters were not named. Python object ids: "
                         + ", ".join(str(id(parameter)) for parameter in parameters if parameter not in known))
    wanted = set(parameters)
    return [(name, parameter) for name, parameter in pairs if parameter in wanted]


def _groups_of(pairs, groups, num_groups: int) -> list:
    trained = [parameter for _, parameter in pairs if parameter.requires_grad]
    if isinstance(groups, int):
        num_groups, groups = groups, None
    if groups is not None:
        lists = [[parameter for parameter in group if parameter.requires_grad] for group in groups]
        flat = [parameter for group in lists for parameter in group]
        if any(not isinstance(parameter, torch.Tensor) for parameter in flat):
            raise ValueError("groups must consist of torch.Tensor.")
        if len(set(flat)) < len(flat):
            raise ValueError("A parameter can only appear once in groups.")
        return [group for group in lists if group]
    if num_groups < 0:
        raise ValueError("groups must be a non-negative integer or a list of lists of torch.Tensor.")
    count = min(num_groups, len(trained))
    bounds = [len(trained) * number // count for number in range(count + 1)] if count else []
    return [trained[start:end] for start, end in zip(bounds, bounds[1:])]


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step: int = 1, op=Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Optional[object] = None,
                         sparse_as_dense: bool = False, process_set=global_process_set):
    """An optimizer of the same class and with the same state, whose step() waits for the reduced gradients.

    named_parameters: names by which ranks match gradients; without them, their places. backward_passes_per_step: gradients of so many
    backward passes are added on each rank before they are reduced. gradient_predivide_factor f: 1/f before the sum, f/size after it.
    groups: lists of parameters, or a number of equal parts, that are reduced together. op=Adasum combines the changes of the
    parameters instead of gradients, and needs a power of two of ranks.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    pairs = _named_pairs(optimizer, named_parameters)
    behaviour = _DistributedDelta if op == Adasum else _Distributed
    methods = {name: value for name, value in vars(behaviour).items() if not name.startswith("__")}
    made_class = type(type(optimizer).__name__, (type(optimizer),), methods)
    made = object.__new__(made_class)
    made.__dict__.update(optimizer.__dict__)
    made._distributed_class = made_class
    made._reduction = _Reduction([] if op == Adasum else pairs, _groups_of(pairs, groups, num_groups), compression=compression,
                                 passes=backward_passes_per_step, op=op, predivide=gradient_predivide_factor,
                                 sparse_as_dense=sparse_as_dense, process_set=process_set)
    if op == Adasum:
        made._reduction.names = {parameter: name for name, parameter in pairs}
    return made
