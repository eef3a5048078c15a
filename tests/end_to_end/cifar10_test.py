"""examples/cifar10_resnet18 with 1, 2 and 3 processes on a few images; looked at by real Python.

    LOCKSTEP_PYTHON cifar10_test.py build/lockstep build/examples/cifar10_resnet18
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT.parent / "testing")]
import cifar_data  # noqa: E402
from resnet import ResNet  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

PROGRAM = sys.argv.pop()
LOCKSTEP = sys.argv.pop()
PROCESSES = (1, 2, 3)
TRAIN, TEST, EPOCHS, WIDTH = 300, 260, 3, 8
MEAN, STD = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])


def train(processes, *options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # so little work is slower on more threads, above all on a busy machine
    command = [LOCKSTEP, "run", "-n", processes, "--no-logs", "--no-prefix", PROGRAM, "--train-files", 1, *options]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, env=environment)


def python_counts_correct(folder, state):
    records = torch.frombuffer(bytearray((folder / "test_batch.bin").read_bytes()), dtype=torch.uint8).view(-1, 3073)
    images = records[:, 1:].reshape(-1, 3, 32, 32).float().div(255).sub(MEAN.view(3, 1, 1)).div(STD.view(3, 1, 1))
    net = ResNet(18, num_classes=10, cifar=True, width=WIDTH)
    net.load_state_dict(state)
    net.eval()
    with torch.no_grad():
        return int((net(images).argmax(1) == records[:, 0].long()).sum())


class Cifar10(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.data = cls.root / "data"
        cls.data.mkdir()
        cifar_data.cut_all(cls.data, TRAIN, TEST)

    def job(self, processes, *options):
        """(metrics of each epoch, trained weights, what was printed)"""
        metrics, save = self.root / "metrics.jsonl", self.root / "net.safetensors"
        done = train(processes, "--data", self.data, "--epochs", EPOCHS, "--batch-size", 60 // processes, "--width", WIDTH,
                     "--lr", 0.05, "--metrics", metrics, "--save", save, *options)
        self.assertEqual(done.returncode, 0, f"{processes} processes:\n{done.stdout}\n{done.stderr}")
        return [json.loads(line) for line in metrics.read_text().splitlines()], load_file(save), done.stdout

    def test_trains_with_any_number_of_processes(self):
        for processes in PROCESSES:
            epochs, state, output = self.job(processes)
            self.assertEqual(len(epochs), EPOCHS)
            self.assertLess(epochs[-1]["train_loss"], epochs[0]["train_loss"])
            self.assertIn(f"epoch {EPOCHS}: lr", output)
            correct = round(epochs[-1]["test_accuracy"] * TEST)
            self.assertAlmostEqual(python_counts_correct(self.data, state), correct, delta=1,
                                   msg="Python computes in one batch, so one tie may fall the other way")

    def test_the_number_of_loader_threads_changes_nothing(self):
        (first, state, _), (second, other, _) = (self.job(2, "--workers", workers) for workers in (0, 3))
        self.assertEqual([epoch["train_loss"] for epoch in first], [epoch["train_loss"] for epoch in second])
        for name, value in state.items():
            self.assertTrue(torch.equal(value, other[name]), name)

    def test_says_where_it_looked(self):
        done = train(1, "--data", self.root)
        self.assertEqual(done.returncode, 1)
        self.assertIn("lacks data_batch_1.bin, test_batch.bin", done.stderr)
        self.assertIn("scripts/download cifar10", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
