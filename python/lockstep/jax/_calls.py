"""Our handlers of XLA's foreign function interface, registered by their names."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Sequence

import jax
import numpy as np

from .. import _library

VERBS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")


def _register() -> None:
    """The library lies beside the core's, because both come from one build."""
    path = pathlib.Path(_library._path()).resolve().parent / "liblockstep_xla.so"
    if not path.exists():
        raise ImportError(f"lockstep.jax needs {path}, which this Lockstep was built without")
    library = ctypes.CDLL(str(path))
    for verb in VERBS:
        jax.ffi.register_ffi_target(f"lockstep_{verb}", jax.ffi.pycapsule(getattr(library, f"lockstep_xla_{verb}")), platform="cpu")


def call(verb: str, shapes: Sequence[jax.ShapeDtypeStruct], arrays: Sequence[jax.Array], after: Sequence[jax.Array], aliased: int,
         **attributes: int) -> list[jax.Array]:
    """Results of these shapes. The first `aliased` of them take the memory of the arrays where XLA can. XLA runs the call when `after` is
    there."""
    function = jax.ffi.ffi_call(f"lockstep_{verb}", list(shapes), has_side_effect=True,
                                input_output_aliases={place: place for place in range(aliased)})
    return list(function(*arrays, *after, **{name: np.int64(value) for name, value in attributes.items()}))


_register()
