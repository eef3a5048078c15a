"""A training on a mesh of tensor, pipeline and data parallelism (examples/22_gpt2_3d.cpp) that is killed and resumed ends with the bits of
the one that was not. Resumed on another mesh, it goes on. The example's own configuration, and others, train as one process does.

CHECKPOINT_TEST_KILLS: how many kills (3). CHECKPOINT_TEST_SEED: of the moments (1)."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "examples/gpt2_3d.json"
PROGRAM = pathlib.Path(os.environ["CHECKPOINT_TEST_EXAMPLES"]) / "gpt2_3d"
KILLS = int(os.environ.get("CHECKPOINT_TEST_KILLS", "3"))
SEED = int(os.environ.get("CHECKPOINT_TEST_SEED", "1"))
STEPS = 40


class Mesh(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "text").write_text("to be or not to be, that is the question; " * 40)

    def config_of(self, tensor, pipeline, dropout):
        path = self.folder / f"{tensor}x{pipeline}.json"
        path.write_text(json.dumps({
            "mesh": {"tensor": tensor, "pipeline": pipeline},
            "model": {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 16, "dropout": dropout},
            "pipeline": {"schedule": "1f1b", "micro_batches": 2},
            "optimizer": {"lr": 3e-3}, "batch_size": 8, "steps": STEPS}))
        return path

    def start(self, tensor, pipeline, checkpoints, ranks=8, dropout=0, **variables):
        return subprocess.Popen([LOCKSTEP, "run", "-n", str(ranks), "--no-prefix", "--no-logs", PROGRAM, "--config",
                                 self.config_of(tensor, pipeline, dropout), "--data", self.folder / "text", "--checkpoint-dir", checkpoints,
                                 "--checkpoint-every", "3", "--resume"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=os.environ | {"OMP_NUM_THREADS": "1"} | variables)

    def end_of(self, job):
        out, err = job.communicate(timeout=600)
        self.assertEqual(job.returncode, 0, out + err)
        return sorted(line for line in out.splitlines() if line.startswith("sha256 ")), re.findall(rf"step {STEPS}: loss (\S+)", out)

    def test_killed_and_resumed(self):
        begun = time.monotonic()
        whole, loss = self.end_of(self.start(2, 2, self.folder / "whole", dropout=0.1))
        duration = time.monotonic() - begun
        self.assertEqual(len(whole), 8)
        moments = random.Random(SEED)
        kills = runs = 0
        while kills < KILLS:
            runs += 1
            checkpoints = self.folder / f"killed-{runs}"  # a run that ended before it was killed is not resumed
            begun, is_resumed = time.monotonic(), False
            job = self.start(2, 2, checkpoints, dropout=0.1)
            while kills < KILLS:
                try:
                    job.wait(timeout=moments.uniform(0.3, 0.9) * duration)
                    if not is_resumed:
                        duration = min(duration, time.monotonic() - begun)  # the machine has less to do than before
                    break
                except subprocess.TimeoutExpired:
                    os.kill(job.pid, signal.SIGKILL)  # the launcher: its guardian ends the ranks
                    job.communicate(timeout=600)
                    kills += 1
                    is_resumed = True
                    job = self.start(2, 2, checkpoints, dropout=0.1)
            self.assertEqual(self.end_of(job)[0], whole, f"after {kills} kills, seed {SEED}")
        self.assertTrue(loss)
        print(f"{kills} kills of runs of {duration:.1f} s: the same bits", file=sys.stderr)

    def test_resumed_on_another_mesh(self):
        _, whole = self.end_of(self.start(2, 2, self.folder / "whole"))
        job = self.start(2, 2, self.folder / "run", LOCKSTEP_FAIL_POINT="checkpoint.before_rename@0+4=kill")
        self.assertNotEqual(job.communicate(timeout=600) and job.returncode, 0)
        _, elsewhere = self.end_of(self.start(1, 2, self.folder / "run", ranks=4))
        self.assertAlmostEqual(float(elsewhere[0]), float(whole[0]), delta=2e-3)

    # Every tenth loss beside one process's, within `tolerance`.
    def check_beside_plain(self, changes, tolerance):
        config = self.folder / "config.json"
        config.write_text(json.dumps(json.loads(SHIPPED.read_text()) | {"steps": 20} | changes))
        done = subprocess.run([LOCKSTEP, "run", "-n", "8", "--no-prefix", "--no-logs", PROGRAM, "--config", config, "--data",
                               self.folder / "text", "--beside-plain"], capture_output=True, text=True, timeout=600,
                              env=os.environ | {"OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        losses = [tuple(map(float, pair)) for pair in re.findall(r"step \d+: loss (\S+), in one process (\S+)", done.stdout)]
        self.assertEqual(len(losses), 2, done.stdout)
        for own, plain in losses:
            self.assertAlmostEqual(own, plain, delta=tolerance)
        self.assertLess(losses[1][0], losses[0][0])

    def test_the_shipped_configuration_beside_one_process(self):
        self.check_beside_plain({}, tolerance=1e-3)

    def test_chunks_and_context_beside_one_process(self):
        self.check_beside_plain({"mesh": {"tensor": 1, "pipeline": 2, "virtual_pipeline": 2, "context": 2}, "sequence_parallel": False},
                                tolerance=1e-3)

    def test_bfloat16_beside_one_process(self):
        self.check_beside_plain({"bf16": True}, tolerance=5e-2)


if __name__ == "__main__":
    unittest.main()
