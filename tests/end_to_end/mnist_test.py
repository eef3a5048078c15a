"""The job of ./train with 1, 2 and 3 processes, on the first images of MNIST or Fashion-MNIST; looked at by real Python.

    LOCKSTEP_PYTHON mnist_test.py build/lockstep build/examples/mnist build/tests/mnist_evaluation
"""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from mnist_data import cut  # noqa: E402

EVALUATION = sys.argv.pop()
MNIST = sys.argv.pop()
LOCKSTEP = sys.argv.pop()
PROCESSES = (1, 2, 3)
TRAIN_IMAGES, TEST_IMAGES = 1538, 1130  # neither divides by 2 * 64 or 3 * 64; the test set's last batch is not full
NAMES = ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


def lockstep(processes, *command):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run([LOCKSTEP, "run", "-n", str(processes), "--no-logs", "--no-prefix", *map(str, command)],
                          capture_output=True, text=True, timeout=600, env=environment)


class SimpleCNN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = torch.nn.Linear(64 * 7 * 7, 128)
        self.fc2 = torch.nn.Linear(128, 10)

    def forward(self, x):
        x = torch.max_pool2d(self.conv1(x).relu(), 2)
        x = torch.max_pool2d(self.conv2(x).relu(), 2)
        return self.fc2(self.fc1(x.flatten(1)).relu())


def python_counts_correct(folder, state):
    images = (folder / "t10k-images-idx3-ubyte").read_bytes()[16:]
    labels = gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
    x = torch.frombuffer(bytearray(images), dtype=torch.uint8).view(-1, 1, 28, 28).float().div(255).sub(0.1307).div(0.3081)
    y = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
    model = SimpleCNN()
    model.load_state_dict(state)
    with torch.no_grad():
        return int((model(x).argmax(1) == y).sum())


class Mnist(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        cls.data = cls.root / "data"
        cls.data.mkdir()
        cut("train-images-idx3-ubyte", TRAIN_IMAGES, cls.data, pack=True)
        cut("train-labels-idx1-ubyte", TRAIN_IMAGES, cls.data, pack=False)
        cut("t10k-images-idx3-ubyte", TEST_IMAGES, cls.data, pack=False)
        cut("t10k-labels-idx1-ubyte", TEST_IMAGES, cls.data, pack=True)
        cls.jobs = {}
        for processes in PROCESSES:
            here = cls.root / str(processes)
            here.mkdir()
            done = lockstep(processes, MNIST, "--data", cls.data, "--epochs", 2, "--save-dir", here, "--metrics",
                            here / "metrics.jsonl", *(["--compare"] if processes == 2 else []))
            cls.jobs[processes] = (here, done)

    def setUp(self):
        for processes, (_, done) in self.jobs.items():
            self.assertEqual(done.returncode, 0, f"{processes} processes:\n{done.stdout}\n{done.stderr}")

    def test_metrics_file(self):
        for processes, (here, _) in self.jobs.items():
            *epochs, final = map(json.loads, (here / "metrics.jsonl").read_text().splitlines())
            self.assertEqual([epoch["epoch"] for epoch in epochs], [1, 2])
            for epoch in epochs:
                self.assertEqual(set(epoch), {"epoch", "train_loss", "test_accuracy", "images_per_second"})
                self.assertGreater(epoch["images_per_second"], 0)
            self.assertLess(epochs[1]["train_loss"], epochs[0]["train_loss"])
            self.assertEqual(set(final), {"processes", "dataset", "epochs", "test_accuracy", "images_per_second",
                                          "parameters_identical", "parameters_sha256"})
            self.assertEqual((final["processes"], final["epochs"], final["dataset"]), (processes, 2, "data"))
            self.assertIs(final["parameters_identical"], True)
            self.assertRegex(final["parameters_sha256"], "^[0-9a-f]{64}$")
            self.assertEqual(final["test_accuracy"], epochs[1]["test_accuracy"])
            self.assertGreater(final["test_accuracy"], 0.5, "it learns something")

    def test_python_reads_both_files_alike(self):
        for here, _ in self.jobs.values():
            state = torch.load(here / "model.pt", weights_only=True)
            self.assertEqual(list(state), NAMES)
            self.assertEqual([list(t.shape) for t in state.values()], [list(t.shape) for t in SimpleCNN().state_dict().values()])
            other = safetensors.torch.load_file(here / "model.safetensors")
            self.assertEqual(set(other), set(NAMES))
            for name in NAMES:
                self.assertTrue(torch.equal(state[name], other[name]), name)

    def test_accuracy_does_not_depend_on_the_number_of_ranks(self):
        for processes, (here, _) in self.jobs.items():
            final = json.loads((here / "metrics.jsonl").read_text().splitlines()[-1])
            correct = round(final["test_accuracy"] * TEST_IMAGES)
            self.assertEqual(final["test_accuracy"], correct / TEST_IMAGES)
            state = torch.load(here / "model.pt", weights_only=True)
            self.assertAlmostEqual(python_counts_correct(self.data, state), correct, delta=1,
                                   msg="Python computes in one batch, so one tie may fall the other way")
            for ranks in PROCESSES if processes == 3 else ():
                done = lockstep(ranks, EVALUATION, self.data, here / "model.safetensors")
                self.assertEqual((done.returncode, done.stdout), (0, f"correct {correct}\n"), done.stderr)

    def test_output(self):
        here, done = self.jobs[2]
        self.assertEqual(done.stdout.count("epoch 1: training loss"), 1, "one rank speaks for all")
        self.assertIn("all ranks hold bit-identical parameters, sha256 ", done.stdout)
        self.assertIn(str(here / "model.safetensors"), done.stdout)
        self.assertRegex(done.stdout, r"one process, \d+ thread\(s\): .*2 processes: [\d.]+ times as fast")
        self.assertNotIn("\r", done.stdout, "no progress line where there is no terminal")

    def test_mistakes_end_the_job_with_one_clear_line(self):
        done = lockstep(2, MNIST, "--data", self.root)
        self.assertEqual(done.returncode, 1)
        self.assertIn("lacks train-images-idx3-ubyte", done.stderr)
        done = lockstep(2, MNIST, "--epoch", 1)
        self.assertEqual(done.returncode, 109)
        said_by_ranks = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("lockstep:")]
        self.assertEqual(sum("Run with --help for more information" in line for line in said_by_ranks), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
