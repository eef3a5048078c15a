"""The whole programs of the README and of docs/ run as they say: alone, and on two and three ranks.

    python3 readme_test.py build/lockstep LEFT_PROGRAM RIGHT_PROGRAM DCGAN
"""
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from mnist_data import source  # noqa: E402

DCGAN = sys.argv.pop()
RIGHT = sys.argv.pop()
LEFT = sys.argv.pop()
LOCKSTEP = sys.argv.pop()
README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.data = pathlib.Path(cls.folder.name) / "mnist"
        cls.data.mkdir()
        for path in source().glob("*-ubyte.gz"):  # libtorch's data set reads plain files only
            (cls.data / path.stem).write_bytes(gzip.decompress(path.read_bytes()))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_in(self, name, *command):
        folder = pathlib.Path(self.folder.name) / name
        folder.mkdir()
        result = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=600, check=False,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return folder, result.stdout + result.stderr

    def test_the_readmes_columns_train_and_save(self):
        for name, command in (("left", [LEFT, self.data]), ("alone", [RIGHT, self.data]),
                              ("right", [LOCKSTEP, "run", "-n", "2", "--no-logs", RIGHT, self.data])):
            with self.subTest(name):
                folder, said = self.run_in(name, *command)
                self.assertGreater((folder / "model.pt").stat().st_size, 4 * (784 * 128 + 128 * 10))
                self.assertNotIn("set_epoch", said)

    def test_the_columns_differ_in_the_marked_lines_only(self):
        left, right = re.findall(r"```cpp\n(.*?)```", README.read_text(), re.S)[:2]
        plain = [line for line in right.splitlines() if "// *" not in line and line.strip()]
        there = [line for line in left.splitlines() if line.strip()]
        for line in plain:
            self.assertIn(line, there)
        self.assertEqual(len(left.splitlines()), len(right.splitlines()), "the columns stand side by side, line by line")
        for ours, theirs in zip(left.splitlines(), right.splitlines()):
            if "// *" not in theirs:
                self.assertEqual(ours, theirs)

    def test_the_dcgan_trains_on_one_and_on_three_ranks(self):
        for name, command in (("dcgan_1", [DCGAN, self.data, "6"]), ("dcgan_3", [LOCKSTEP, "run", "-n", "3", "--no-logs", DCGAN, self.data, "6"])):
            with self.subTest(name):
                folder, said = self.run_in(name, *command)
                self.assertEqual(re.findall(r"step (\d+): d_loss (?:\d|\.)+, g_loss (?:\d|\.)+", said), ["6"], "rank 0 alone prints")
                self.assertTrue((folder / "generator.pt").exists())


if __name__ == "__main__":
    unittest.main()
