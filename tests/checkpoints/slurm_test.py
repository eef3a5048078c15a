"""examples/mnist as a job of docs/clusters/requeue.sh that Slurm pre-empts: it ends with the bits of a run that nobody stopped."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TESTS), str(TESTS / "launchers")]
import mnist_data  # noqa: E402
from requeued_jobs import RequeuedJobs  # noqa: E402
from script_jobs import LOCKSTEP  # noqa: E402
from slurm import Slurm  # noqa: E402

MNIST = os.environ["CHECKPOINT_TEST_MNIST"]
STEPS = 4 * 24  # 4 epochs of 1,536 images, 4 ranks with 16 each


class Preempted(RequeuedJobs):
    def setUp(self):
        super().setUp()
        mnist_data.cut_all(self.folder, 1536, 100)

    def command(self, name):
        (self.folder / name).mkdir()
        return [MNIST, "--data", self.folder, "--epochs", 4, "--batch-size", 16, "--crop-padding", 2, "--save-dir", self.folder / name,
                "--checkpoint-dir", self.folder / name / "checkpoints", "--checkpoint-every", 7, "--resume"]

    def step(self, name):
        """Of the newest checkpoint."""
        return max((int(path.name[5:]) for path in (self.folder / name / "checkpoints").glob("step-*")), default=0)

    def test_pre_empted_twice_and_warned_once(self):
        whole = subprocess.run([LOCKSTEP, "run", "-n", "4", "--no-prefix", "--no-logs", *map(str, self.command("whole"))], text=True,
                               capture_output=True, env=self.environment, timeout=600)
        self.assertEqual(whole.returncode, 0, whole.stdout + whole.stderr)
        stops = [("scontrol", "requeue"), ("scontrol", "requeue"), ("scancel", "--signal=USR1")]  # the last as --signal=USR1@60 does it
        with Slurm(nodes=2) as slurm:
            job = self.submit(slurm, *self.command("stopped"))
            for restarts, stop in enumerate(stops):
                saved = self.step("stopped")
                self.wait_for(lambda saved=saved: self.step("stopped") > saved, slurm, "a checkpoint")
                said = self.call(*stop, job)
                self.assertEqual(said.returncode, 0, said.stdout)
                self.await_requeue(slurm, job, restarts + 1)
                self.assertEqual(self.log().count("asked to stop; saved"), 4 * (restarts + 1), self.log())
                self.assertLess(self.step("stopped"), STEPS)
            self.await_end(slurm, job, len(stops))
        self.assertEqual(self.log().count("goes on from"), len(stops), self.log())
        checksum = r"all ranks hold bit-identical parameters, sha256 \w{64}"
        self.assertEqual(re.findall(checksum, self.log()), re.findall(checksum, whole.stdout), self.log())
        self.assertEqual((self.folder / "stopped/model.safetensors").read_bytes(), (self.folder / "whole/model.safetensors").read_bytes())


if __name__ == "__main__":
    unittest.main()
