"""One rank of a job: examples/python/horovod_tensorflow.py, whole, on images made here and with a small model in the place of ResNet-50.
Started by tensorflow_ranks.py."""
import contextlib
import gzip
import io
import pathlib
import random
import re
import runpy
import sys
import tempfile
from unittest import mock

import keras
import tensorflow as tf
from tensorflow_ranks import Ranks

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python/horovod_tensorflow.py"


def small(include_top, weights, classes, input_shape):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Conv2D(4, 3, 2), keras.layers.BatchNormalization(),
                             keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(classes)])


class Example(Ranks):
    def test_trains_and_averages(self):
        numbers = random.Random(1)
        rows = b"".join(bytes([number % 10]) + numbers.randbytes(3072) for number in range(4 * self.size))
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "data_batch_1.bin.gz").write_bytes(gzip.compress(rows))
            words = [str(EXAMPLE), "--data", folder, "--epochs", "2", "--batch-size", "2", "--model", "Small"]
            with mock.patch.object(tf.keras.applications, "Small", small, create=True), mock.patch.object(sys, "argv", words), \
                    contextlib.redirect_stdout(said):
                runpy.run_path(str(EXAMPLE), run_name="__main__")
        lines = re.findall(r"^Epoch (\d), Loss: \d+\.\d{4}$", said.getvalue(), re.M)
        self.assertEqual(lines, ["0", "1"] if self.rank == 0 else [], said.getvalue())
