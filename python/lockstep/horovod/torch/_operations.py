"""Operations on torch's CPU tensors without autograd: they are started, polled, and waited for by a handle."""
from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Callable, Optional, Sequence, Union

import torch

from .. import _core
from .._basics import ProcessSet, process_set_id, size_of

_DTYPES = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.int8: 4, torch.uint8: 5, torch.int16: 6,
           torch.int32: 8, torch.int64: 10, torch.bool: 12, torch.complex64: 13, torch.complex128: 14}


# What each operation needs, within reach: a name of torch's is looked up twice.
_Tensor, _STRIDED, _empty_like = torch.Tensor, torch.strided, torch.empty_like


class _Pending:
    """An operation, or a group of them, that has been started. `finish` makes the result; it holds the tensors until then."""

    __slots__ = ("finish", "handles")

    def __init__(self, handles: list[int], finish: Callable) -> None:
        self.handles = handles
        self.finish = finish


# By handle. For an allreduce of one tensor with a name, by far the most frequent, a tuple: the prepared operation, its input, its output as C
# sees it, and its output. Python's collector of garbage looks at every object that waits here.
_Reduction = tuple[_core.Prepared, torch.Tensor, torch.Tensor, torch.Tensor]
_pending: dict[int, Union[_Pending, _Reduction]] = {}
_numbers = itertools.count(1)  # handles of reductions; those of C begin far above
_MOST_KNOWN = 4096


def _start(requests: list[_core.Request], finish: Callable) -> int:
    handles = _core.submit(requests)
    _pending[handles[0]] = _Pending(handles, finish)
    return handles[0]


def combined(parts: list[int], finish: Callable) -> int:
    """One handle for operations that were started one by one; `finish` gets the list of their results."""
    pending = [_pending.pop(handle) for handle in parts]
    def finish_all(_handles):
        return finish([one.finish(one.handles) for one in pending])
    _pending[parts[0]] = _Pending([handle for one in pending for handle in one.handles], finish_all)
    return parts[0]


def poll(handle: int) -> bool:
    """Whether synchronize() would not block."""
    pending = _pending.get(handle)
    if pending is None:
        return True
    return all(map(_core.poll, (pending[0].handle,) if type(pending) is tuple else pending.handles))


def synchronize(handle: int):
    """Waits for the operation and returns its result. Of a handle that was waited for before it returns None, as Horovod does."""
    pending = _pending.pop(handle, None)
    if pending is None:
        return None
    if type(pending) is tuple:
        operation, _source, memory, output = pending
        operation.wait()
        if memory is not output:
            with torch.no_grad():
                output.copy_(memory)
        return output
    failure = None
    wait = _core.named.wait
    for one in pending.handles:
        try:
            wait(one)
        except Exception as error:  # the others are waited for all the same: their buffers are in use until then
            failure = failure or error
    if failure is not None:
        for one in pending.handles:
            _core.named.free(one)
        raise failure
    return pending.finish(pending.handles)


def _free_all(handles: list[int]) -> None:
    for handle in handles:
        _core.named.free(handle)


def _dtype(tensor: torch.Tensor) -> int:
    dtype = tensor.dtype
    if dtype not in _DTYPES:
        raise ValueError(f"there are no operations on {dtype}")
    return _DTYPES[dtype]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, without history."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch.Tensor is needed, not {type(tensor).__name__}")
    if tensor.device.type != "cpu":
        raise ValueError(f"the tensor is on {tensor.device}; lockstep.horovod works on CPU tensors")
    if tensor.layout != torch.strided:
        raise ValueError("the tensor is sparse; use sparse_allreduce_async")
    return tensor.detach().contiguous()


def _named(verb: str, name: Optional[str], number: Optional[int] = None) -> Optional[str]:
    """Horovod's names begin with the verb, so that two verbs may have one name."""
    if name is None:
        return None
    return f"{verb}.{name}" if number is None else f"{verb}.{name}.{number}"


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where C can read it as it is, else _plain(): a call of torch costs as much as a call of C."""
    if isinstance(tensor, _Tensor) and tensor.is_cpu and tensor.layout is _STRIDED and tensor.is_contiguous():
        return tensor
    return _plain(tensor)


def new_like(tensor: torch.Tensor) -> torch.Tensor:
    """An output for the tensor, contiguous."""
    if tensor.layout is torch.strided and tensor.is_contiguous():
        return torch.empty_like(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def allreduce_tensor(tensor: torch.Tensor, output: Optional[torch.Tensor], name: Optional[str], op: int, prescale: float, postscale: float,
                     process_set: ProcessSet) -> int:
    """Starts the reduction of one tensor. The result of the handle is `output`, without one a new tensor."""
    source = _readable(tensor)
    if output is None:
        memory = output = _empty_like(source)
    else:
        memory = output if output.is_contiguous() else torch.empty(output.shape, dtype=output.dtype)
    number = process_set_id(process_set)
    form = (source.dtype, source.shape, op, prescale, postscale, number)
    known = _core.known.pop(name, None)  # another thread that submits the same name prepares one of its own
    if known is None or known[0] != form:
        request = _core.request(_core.ALLREDUCE, _named("allreduce", name), number, _dtype(source), op, 0, source.shape, None, prescale,
                                postscale)
        if name is None:
            return _start_nameless(request, source, memory, output)
        known = form, _core.Prepared(request)
    operation = known[1]
    operation.start(source.data_ptr(), memory.data_ptr())
    handle = next(_numbers)
    if len(_core.known) < _MOST_KNOWN:
        _core.known[name] = known
    _pending[handle] = (operation, source, memory, output)
    return handle


def _start_nameless(request: _core.Request, source: torch.Tensor, memory: torch.Tensor, output: torch.Tensor) -> int:
    request.input, request.output = source.data_ptr(), memory.data_ptr()
    kept = [source]

    def finish(handles):
        kept.clear()
        _free_all(handles)
        if memory is not output:
            with torch.no_grad():
                output.copy_(memory)
        return output
    return _start([request], finish)


def allreduce_tensors(tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], name: Optional[str], op: int,
                      prescale: float, postscale: float, process_set: ProcessSet) -> int:
    """Starts the reduction of all tensors, which run together or not at all. The result of the handle is the list of outputs."""
    number = process_set_id(process_set)
    requests, kept, copies = [], [], []
    for index, (tensor, output) in enumerate(zip(tensors, outputs)):
        source, memory = _readable(tensor), output
        if not output.is_contiguous():
            memory = torch.empty(output.shape, dtype=output.dtype)
            copies.append((output, memory))
        requests.append(_core.request(_core.ALLREDUCE, _named("allreduce", name, index), number, _dtype(source), op, 0, source.shape, None,
                                      prescale, postscale, source.data_ptr(), memory.data_ptr()))
        kept.append(source)

    def finish(handles):
        kept.clear()
        _free_all(handles)
        if copies:
            with torch.no_grad():
                for output, memory in copies:
                    output.copy_(memory)
        return list(outputs)
    if not requests:
        raise ValueError("a group of tensors has at least one")
    return _start(requests, finish)


def broadcast_tensor(tensor: torch.Tensor, output: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet) -> int:
    source = _plain(tensor)
    memory = output.detach() if output.is_contiguous() else torch.empty_like(source)

    def finish(handles, _kept=source):
        _free_all(handles)
        if not output.is_contiguous():
            with torch.no_grad():
                output.copy_(memory)
        return output
    made = _core.request(_core.BROADCAST, _named("broadcast", name), process_set_id(process_set), dtype=_dtype(source), root=root_rank,
                         shape=source.shape, source=source.data_ptr(), target=memory.data_ptr())
    return _start([made], finish)


def _own_memory(handle: int, like: torch.Tensor) -> torch.Tensor:
    """The result as a tensor, without a copy. The handle is freed with the last tensor that shows it."""
    place, rows = _core.result(handle)
    shape = (rows, *like.shape[1:])
    count = torch.Size(shape).numel()
    if count == 0:
        _core.named.free(handle)
        return torch.empty(shape, dtype=like.dtype)
    memory = (ctypes.c_char * (count * like.element_size())).from_address(place)
    weakref.finalize(memory, _core.named.free, handle).atexit = False
    return torch.frombuffer(memory, dtype=like.dtype, count=count).reshape(shape)


def _many(kind: int, verb: str, tensors: Sequence[torch.Tensor], name: Optional[str], process_set: ProcessSet, is_group: bool,
          **options) -> int:
    sources = [_plain(tensor) for tensor in tensors]
    requests = [_core.request(kind, _named(verb, name, index if is_group else None), process_set_id(process_set), dtype=_dtype(source),
                              shape=source.shape, source=source.data_ptr(), **options) for index, source in enumerate(sources)]

    def finish(handles):
        made = [_own_memory(handle, source) for handle, source in zip(handles, sources)]
        return made if is_group else made[0]
    if not requests:
        raise ValueError("a group of tensors has at least one")
    return _start(requests, finish)


def allgather_tensors(tensors, name, process_set, is_group) -> int:
    return _many(_core.ALLGATHER, "allgather", tensors, name, process_set, is_group)


def reducescatter_tensors(tensors, name, op, prescale, postscale, process_set, is_group) -> int:
    return _many(_core.REDUCESCATTER, "reducescatter", tensors, name, process_set, is_group, op=op, prescale=prescale,
                 postscale=postscale)


def alltoall_tensor(tensor: torch.Tensor, splits: Optional[Sequence[int]], name: Optional[str], process_set: ProcessSet) -> int:
    """The result of the handle is (tensor, received splits); without splits, the tensor alone."""
    source, ranks = _plain(tensor), size_of(process_set)
    given = None
    if splits is not None:
        if isinstance(splits, torch.Tensor) and splits.dtype.is_floating_point:
            raise ValueError("splits must be integers")
        given = splits.tolist() if isinstance(splits, torch.Tensor) else [int(rows) for rows in splits]
        if len(given) != ranks:
            raise ValueError(f"splits must have one number for each of the {ranks} ranks, and have {len(given)}")
    made = _core.request(_core.ALLTOALL, _named("alltoall", name), process_set_id(process_set), dtype=_dtype(source), shape=source.shape,
                         splits=given, source=source.data_ptr())

    def finish(handles):
        received = torch.tensor(_core.received(handles[0], ranks), dtype=torch.int32)
        output = _own_memory(handles[0], source)
        return output if given is None else (output, received)
    return _start([made], finish)
