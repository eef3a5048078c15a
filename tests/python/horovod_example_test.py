"""A Horovod program of examples/ as a user starts it, on images made here: two ranks train, and rank 0 prints averaged metrics.

    LOCKSTEP_COMMAND=build/lockstep python tests/python/horovod_example_test.py build/examples/horovod
    LOCKSTEP_COMMAND=build/lockstep PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=... python tests/python/horovod_example_test.py
"""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1:] or [sys.executable, str(pathlib.Path(__file__).resolve().parents[2] / "examples/python/horovod_torch.py")]


class Example(unittest.TestCase):
    def test_two_ranks_train_and_average(self):
        numbers = random.Random(1)
        with tempfile.TemporaryDirectory() as folder:
            rows = b"".join(bytes([number % 10]) + numbers.randbytes(3072) for number in range(32))
            for name in ("data_batch_1.bin", "test_batch.bin"):
                pathlib.Path(folder, name).write_bytes(rows)
            files = ["--train-files", "1"] if sys.argv[1:] else []
            done = subprocess.run([os.environ["LOCKSTEP_COMMAND"], "horovodrun", "-np", "2", *PROGRAM, "--data", folder, "--epochs", "2",
                                   "--batch-size", "8", "--width", "8", "--workers", "0", *files], cwd=folder, capture_output=True, text=True,
                                  check=False, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"^\[0\] Epoch (\d)/2 - Loss: \d+\.\d{4}, Accuracy: \d+\.\d\d%$", done.stdout, re.M)
        self.assertEqual(lines, ["0", "1"], done.stdout)
        self.assertNotIn("[1] Epoch", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
