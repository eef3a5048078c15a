"""Our operators, as functions of Python that TensorFlow makes when it opens liblockstep_tensorflow.so."""
from __future__ import annotations

import ctypes
import pathlib

import tensorflow as tf

from .. import _library


def _load():
    """The library lies beside the core's, because both come from one build."""
    path = pathlib.Path(_library._path()).resolve().parent / "liblockstep_tensorflow.so"
    if not path.exists():
        raise ImportError(f"lockstep.tensorflow needs {path}, which this Lockstep was built without")
    made = tf.load_op_library(str(path))
    failure = ctypes.CDLL(str(path)).lockstep_tensorflow_failure
    failure.restype = ctypes.c_char_p
    if failure() is not None:
        raise ImportError(f"lockstep.tensorflow cannot work with TensorFlow {tf.__version__}: {failure().decode()}")
    return made


operators = _load()


def as_written(function):
    """Marks a function that a program calls in its tf.function. AutoGraph would rewrite it there, and all that it calls, which takes most of
    the time of tracing and changes nothing: our functions decide by Python values alone. Nothing of the program is called below it but the
    methods of a `compression`, which are taken as they are written, too."""
    marked = tf.autograph.experimental.do_not_convert(function)
    # The mark alone: the function that do_not_convert() makes costs an eager call some microseconds.
    vars(function).update({name: value for name, value in vars(marked).items() if name != "__wrapped__"})
    return function
