"""What a tensor is turned into before it travels, and back."""
from __future__ import annotations

import tensorflow as tf

from .._compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Floating point travels as float16; sums of it are made in float32 and rounded once."""

    @staticmethod
    def compress(tensor):
        return (tf.cast(tensor, tf.float16), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)

    @staticmethod
    def decompress(tensor, ctx):
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    none = NoneCompressor
    fp16 = FP16Compressor
