"""examples/mnist is asked to stop, is killed, and goes on: the model and the metrics file of a run that was not."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import mnist_data  # noqa: E402

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
MNIST = os.environ["CHECKPOINT_TEST_MNIST"]
EXIT_REQUEUE = 75


class Resume(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "mnist").mkdir()
        mnist_data.cut_all(self.folder / "mnist", 3000, 100)

    def start(self, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return subprocess.Popen(
            [LOCKSTEP, "run", "-n", "2", "--no-prefix", "--no-logs", MNIST, "--data", self.folder / "mnist", "--epochs", "3",
             "--batch-size", "32", "--crop-padding", "2", "--save-dir", folder, "--metrics", folder / "run.jsonl",
             "--checkpoint-dir", folder / "checkpoints", "--checkpoint-every", "9", "--resume"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})

    def metrics(self, name):
        lines = [json.loads(line) for line in (self.folder / name / "run.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("images_per_second")
        return lines

    def wait_for_checkpoint(self, name, job):
        folder = self.folder / name / "checkpoints"
        while not list(folder.glob("step-*")):
            self.assertIsNone(job.poll())
            time.sleep(0.01)

    def test_stopped_and_killed(self):
        out, err = self.start("whole").communicate(timeout=120)
        job = self.start("stopped")
        self.wait_for_checkpoint("stopped", job)
        job.send_signal(signal.SIGUSR1)
        out, err = job.communicate(timeout=120)
        self.assertEqual(job.returncode, EXIT_REQUEUE, out + err)
        self.assertIn("asked to stop; saved", err)
        job = self.start("stopped")
        time.sleep(1)  # somewhere in its start or its steps
        job.kill()
        job.communicate(timeout=120)
        out, err = self.start("stopped").communicate(timeout=120)
        self.assertIn("goes on from", out)
        self.assertEqual(self.metrics("stopped"), self.metrics("whole"), out + err)
        self.assertEqual((self.folder / "stopped/model.safetensors").read_bytes(),
                         (self.folder / "whole/model.safetensors").read_bytes())


if __name__ == "__main__":
    unittest.main()
