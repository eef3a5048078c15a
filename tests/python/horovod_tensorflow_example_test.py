"""examples/python/horovod_tensorflow.py as a user starts it, on images made here: two ranks train a smaller model for one step, and
rank 0 prints the averaged loss.

    LOCKSTEP_COMMAND=build/lockstep PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=... python tests/python/horovod_tensorflow_example_test.py
"""
import gzip
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python/horovod_tensorflow.py"


class Example(unittest.TestCase):
    def test_two_ranks_train_and_average(self):
        numbers = random.Random(1)
        with tempfile.TemporaryDirectory() as folder:
            rows = b"".join(bytes([number % 10]) + numbers.randbytes(3072) for number in range(8))
            pathlib.Path(folder, "data_batch_1.bin.gz").write_bytes(gzip.compress(rows))
            done = subprocess.run([os.environ["LOCKSTEP_COMMAND"], "horovodrun", "-np", "2", sys.executable, str(EXAMPLE), "--data", folder,
                                   "--epochs", "1", "--batch-size", "4", "--model", "MobileNet"], cwd=folder, capture_output=True, text=True,
                                  check=False, timeout=250)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r"^\[0\] Epoch (\d), Loss: \d+\.\d{4}$", done.stdout, re.M), ["0"], done.stdout)
        self.assertNotIn("[1] Epoch", done.stdout)


if __name__ == "__main__":
    unittest.main()
