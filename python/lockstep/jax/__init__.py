"""Lockstep for JAX: collectives between the processes of a job, inside of jit and outside, by XLA's foreign function interface.

    import lockstep, lockstep.jax as lj
    lockstep.init()
    parameters = lj.broadcast(parameters, root=0)
    @jax.jit
    def step(parameters, batch):
        loss, gradients = jax.value_and_grad(loss_fn)(parameters, batch)
        gradients = lj.all_reduce(gradients, "avg")               # one call for all of them
        loss = lj.all_reduce(loss, "avg", after=gradients)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients), loss

    lockstep run -n 4 python train.py

Who calls   every rank of the group, in the same order. XLA may reorder calls that do not depend on each other, so a call inside of jit
            names what it comes `after`: the result of the call before, if there is one.
Arrays      any tree of arrays on the CPU, of every dtype that NumPy's part has. Each process has its own JAX with its own devices; this
            is no jax.distributed.
Gradients   are those of the sum of all ranks' losses. all_reduce has them for sum and avg. vmap is refused.
Blocks      a thread of XLA until all ranks have called.
Raises      jax.errors.JaxRuntimeError, whose text begins with XLA's word for the kind (FAILED_PRECONDITION: ranks made different calls;
            UNAVAILABLE: a rank died) and names rank, group, operation and what to do.
"""
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._group import Group, world
from .._library import OPS
from ._calls import call

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]


def _op(op: str) -> int:
    if op not in OPS:
        raise ValueError(f"there is no operator {op!r}; there are {', '.join(OPS)}")
    return OPS[op]


def _linear(op: str, verb: str) -> None:
    if op not in ("sum", "avg"):
        raise ValueError(f"{verb} has a gradient for sum and avg, not for {op}")


def _differentiable(function, backward):
    """`function` of one array, whose gradient is backward(gradient)."""
    made = jax.custom_vjp(function)
    made.defvjp(lambda x: (function(x), None), lambda _, gradient: (backward(gradient),))
    return made


def _behind(after: Any) -> list:
    return [jax.lax.stop_gradient(leaf) for leaf in jax.tree.leaves(after)]


def _in_order(leaves, after, run) -> list:
    """run(leaves of one dtype, what they come after) for each dtype, one after the other."""
    results: list = [None] * len(leaves)
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
        places = [place for place, leaf in enumerate(leaves) if leaf.dtype == dtype]
        made = run([leaves[place] for place in places], after)
        for place, one in zip(places, made):
            results[place] = one
        after = [made[0]]
    return results


def all_reduce(tree: Any, op: str = "sum", *, group: Group = world, after: Any = None) -> Any:
    """The combination of all ranks' trees, on every rank, by one call for each dtype. op: sum, avg, product, min, max, band, bor, bxor."""
    number, handle = _op(op), group.handle

    def plain(leaves, behind):
        shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        return call("all_reduce", shapes, leaves, behind, len(leaves), group=handle, op=number)

    @jax.custom_vjp
    def run(leaves, behind):
        return plain(leaves, behind)

    def forward(leaves, behind):
        return plain(leaves, behind), behind

    def backward(behind, gradients):
        _linear(op, "all_reduce")
        return plain(gradients, []), jax.tree.map(jnp.zeros_like, behind)
    run.defvjp(forward, backward)
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, _in_order([jnp.asarray(leaf) for leaf in leaves], _behind(after), run))


def broadcast(tree: Any, root: int, *, group: Group = world, after: Any = None) -> Any:
    """The root's tree, on every rank."""
    handle = group.handle
    is_root = group.rank >= 0 and group.ranks[group.rank] == root
    behind = _behind(after)

    def one(leaf, behind):
        def run(x):
            return call("broadcast", [jax.ShapeDtypeStruct(x.shape, x.dtype)], [x], behind, 1, group=handle, root=root)[0]

        def backward(gradient):
            total = all_reduce(gradient, group=group)
            return total if is_root else jnp.zeros_like(total)
        return _differentiable(run, backward)(leaf)
    results = []
    leaves, structure = jax.tree.flatten(tree)
    for leaf in leaves:
        results.append(one(jnp.asarray(leaf), behind))
        behind = [results[-1]]
    return jax.tree.unflatten(structure, results)


def all_gather(array: Any, *, group: Group = world, after: Any = None) -> jax.Array:
    """Every rank's array, on every rank: shape (size, *array.shape)."""
    array, behind = jnp.asarray(array), _behind(after)

    def run(x):
        shape = jax.ShapeDtypeStruct((group.size, *x.shape), x.dtype)
        return call("all_gather", [shape], [x], behind, 0, group=group.handle)[0]
    return _differentiable(run, lambda gradient: reduce_scatter(gradient, group=group))(array)


def _leads_with_rank(array, group: Group) -> None:
    if array.ndim == 0 or array.shape[0] != group.size:
        raise ValueError(f"the array's first axis must be the rank, {group.size} long; its shape is {array.shape}")


def reduce_scatter(array: Any, op: str = "sum", *, group: Group = world, after: Any = None) -> jax.Array:
    """The combination of all ranks' array[rank]: shape array.shape[1:]."""
    array, behind, number = jnp.asarray(array), _behind(after), _op(op)
    _leads_with_rank(array, group)

    def run(x):
        shape = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
        return call("reduce_scatter", [shape], [x], behind, 0, group=group.handle, op=number)[0]

    def backward(gradient):
        _linear(op, "reduce_scatter")
        everyone = all_gather(gradient, group=group)
        return everyone if op == "sum" else everyone / group.size
    return _differentiable(run, backward)(array)


def all_to_all(array: Any, *, group: Group = world, after: Any = None) -> jax.Array:
    """array[r] goes to rank r; result[r] comes from rank r."""
    array, behind = jnp.asarray(array), _behind(after)
    _leads_with_rank(array, group)

    def run(x):
        return call("all_to_all", [jax.ShapeDtypeStruct(x.shape, x.dtype)], [x], behind, 0, group=group.handle)[0]
    return _differentiable(run, lambda gradient: all_to_all(gradient, group=group))(array)
