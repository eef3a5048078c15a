"""examples/mnist is asked to stop, is killed, and goes on, started again by hand or by --max-restarts: the model and the metrics file of
a run that was not."""
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


def ranks_of(pid):
    """The processes below this one that run the program."""
    found = []
    for child in map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        is_rank = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0] == MNIST.encode()
        found += [child] if is_rank else ranks_of(child)
    return found


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        (cls.folder / "mnist").mkdir()
        mnist_data.cut_all(cls.folder / "mnist", 3000, 100)
        job = cls.start("whole")
        out, err = job.communicate(timeout=600)
        assert job.returncode == 0, out + err

    @classmethod
    def start(cls, name, *options):
        folder = cls.folder / name
        folder.mkdir(exist_ok=True)
        return subprocess.Popen(
            [LOCKSTEP, "run", "-n", "2", "--no-prefix", "--no-logs", *options, MNIST, "--data", cls.folder / "mnist", "--epochs", "3",
             "--batch-size", "32", "--crop-padding", "2", "--save-dir", folder, "--metrics", folder / "run.jsonl",
             "--checkpoint-dir", folder / "checkpoints", "--checkpoint-every", "9", "--resume"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})

    def metrics(self, name):
        lines = [json.loads(line) for line in (self.folder / name / "run.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("images_per_second")
        return lines

    def newest(self, name):
        return max((int(path.name[5:]) for path in (self.folder / name / "checkpoints").glob("step-*")), default=0)

    def wait_for_checkpoint(self, name, job, after=0):
        while self.newest(name) <= after:
            self.assertIsNone(job.poll())
            time.sleep(0.01)

    def check_same_as_whole(self, name, output):
        self.assertEqual(self.metrics(name), self.metrics("whole"), output)
        self.assertEqual((self.folder / name / "model.safetensors").read_bytes(), (self.folder / "whole/model.safetensors").read_bytes())

    def test_stopped_and_killed(self):
        job = self.start("stopped")
        self.wait_for_checkpoint("stopped", job)
        job.send_signal(signal.SIGUSR1)
        out, err = job.communicate(timeout=600)
        self.assertEqual(job.returncode, EXIT_REQUEUE, out + err)
        self.assertIn("asked to stop; saved", err)
        job = self.start("stopped")
        time.sleep(1)  # somewhere in its start or its steps
        job.kill()
        job.communicate(timeout=600)
        out, err = self.start("stopped").communicate(timeout=600)
        self.assertIn("goes on from", out)
        self.check_same_as_whole("stopped", out + err)

    def test_ranks_killed_under_max_restarts(self):
        job = self.start("restarted", "--max-restarts", "3")
        for victim in (0, 1):
            self.wait_for_checkpoint("restarted", job, after=self.newest("restarted"))
            os.kill(ranks_of(job.pid)[victim], signal.SIGKILL)
        out, err = job.communicate(timeout=600)
        self.assertEqual(job.returncode, 0, out + err)
        self.assertIn("restart 2 of 3", err)
        self.assertNotIn("restart 3 of 3", err)
        self.assertEqual(out.count("goes on from"), 2, out)
        self.check_same_as_whole("restarted", out + err)


if __name__ == "__main__":
    unittest.main()
