"""Each example that trains is asked to stop in the middle, goes on, is killed in the middle, and goes on: it prints what the run that
nobody stopped prints, and ends with the same state. (mnist_test.py does it with examples/mnist.)

Where a run is stopped is the number of its saves, at a fail point. So it is the middle of a run on every machine."""
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
import cifar_data  # noqa: E402

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
EXAMPLES = pathlib.Path(os.environ["CHECKPOINT_TEST_EXAMPLES"])
EXIT_REQUEUE = 75
PATIENCE = 600


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def stopped_descendants(pid):
    children = [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if state_of(child) == "T"] + [found for child in children for found in stopped_descendants(child)]


class Resume(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def start(self, words, run, every, ranks=2, fail_point=None, **variables):
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables | ({"LOCKSTEP_FAIL_POINT": fail_point} if fail_point else {})
        words = [str(word).replace("RUN", str(self.folder / run)) for word in words]
        (self.folder / run).mkdir(exist_ok=True)
        return subprocess.Popen([LOCKSTEP, "run", "-n", str(ranks), "--no-prefix", "--no-logs", EXAMPLES / words[0], *words[1:],
                                 "--checkpoint-dir", self.folder / run / "checkpoints", "--checkpoint-every", str(every), "--resume"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def finish(self, job, code):
        out, err = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, code, out + err)
        return out, err

    def ask_to_stop(self, job):
        """Rank 0 has stopped itself in a save, and gets the signal before it goes on."""
        end = time.monotonic() + PATIENCE
        while not (stopped := stopped_descendants(job.pid)):
            self.assertIsNone(job.poll(), "it ended before the save")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)
        os.kill(stopped[0], signal.SIGUSR1)
        os.kill(stopped[0], signal.SIGCONT)
        self.assertIn("asked to stop; saved", self.finish(job, EXIT_REQUEUE)[1])

    def trial(self, words, every, stop, kill, ranks=(2, 2, 2)):
        """`stop` and `kill` are how many saves go before. (what the whole run printed, what the last part of the other one did)"""
        whole, _ = self.finish(self.start(words, "whole", every), 0)
        self.ask_to_stop(self.start(words, "parts", every, ranks[0], f"checkpoint.before_rename@0+{stop}=stop"))
        self.finish(self.start(words, "parts", every, ranks[1], f"checkpoint.before_rename@0+{kill}=kill"), 128 + signal.SIGKILL)
        return whole, self.finish(self.start(words, "parts", every, ranks[2]), 0)[0]

    def check_output(self, whole, last):
        self.assertTrue(last.strip())
        self.assertTrue(whole.endswith(last), f"{whole}\n...\n{last}")

    def check_last_checkpoints(self, trainings):
        whole, parts = (self.folder / run / "checkpoints" for run in ("whole", "parts"))
        newest = {max(folder.parent.glob("step-*")).relative_to(whole) for folder in whole.rglob("step-*")}
        self.assertEqual(len(newest), trainings)
        for checkpoint in newest:
            diff = subprocess.run([LOCKSTEP, "ckpt", "diff", whole / checkpoint, parts / checkpoint], capture_output=True, text=True)
            self.assertEqual(diff.returncode, 0, diff.stdout + diff.stderr)

    def test_cifar10_resnet18(self):
        (self.folder / "data").mkdir()
        cifar_data.cut_all(self.folder / "data", 300, 100)
        self.trial(["cifar10_resnet18", "--data", self.folder / "data", "--train-files", 1, "--epochs", 3, "--batch-size", 30, "--width", 8,
                    "--metrics", "RUN/run.jsonl", "--save", "RUN/net.safetensors"], every=2, stop=1, kill=1)
        metrics = {}
        for run in ("whole", "parts"):
            metrics[run] = [json.loads(line) for line in (self.folder / run / "run.jsonl").read_text().splitlines()]
            for line in metrics[run]:
                line.pop("images_per_second")
        self.assertEqual(len(metrics["whole"]), 3)
        self.assertEqual(metrics["parts"], metrics["whole"])
        self.assertEqual(*((self.folder / run / "net.safetensors").read_bytes() for run in ("whole", "parts")))

    def test_gpt2(self):
        text = pathlib.Path(__file__).parents[2] / "ARCHITECTURE.md"  # 20 steps are more than two epochs
        self.check_output(*self.trial(["gpt2", "--data", text, "--layers", 1, "--width", 16, "--block-size", 64, "--batch-size", 16,
                                       "--steps", 20, "--sample", 9, "--recompute", "--save", "RUN/model"], every=4, stop=1, kill=1))
        self.check_last_checkpoints(1)
        self.assertEqual(*((self.folder / run / "model/model.safetensors").read_bytes() for run in ("whole", "parts")))

    def test_large_batch_lars(self):
        self.check_output(*self.trial(["large_batch_lars"], every=12, stop=1, kill=126))  # the kill is in the second of three trainings
        self.check_last_checkpoints(3)

    def test_amp_accumulate_ddp(self):
        self.check_output(*self.trial(["amp_accumulate_ddp"], every=3, stop=2, kill=2))
        self.check_last_checkpoints(1)

    def test_apex_toy(self):
        self.check_output(*self.trial(["apex_toy"], every=50, stop=2, kill=2))
        self.check_last_checkpoints(1)

    def test_grad_checkpoint(self):
        self.check_output(*self.trial(["grad_checkpoint"], every=4, stop=1, kill=4))  # the kill is in the second of two trainings
        self.check_last_checkpoints(2)

    def test_zero(self):
        whole, last = self.trial(["zero"], every=7, stop=1, kill=1)
        self.check_output(whole, last.partition("\n")[2])  # without the table of memory
        self.check_last_checkpoints(1)

    def test_zero_killed_in_a_step(self):
        """In each phase: survivors are told who was lost and whether the step is torn, and the run that goes on ends as the one that
        nobody killed."""
        whole, _ = self.finish(self.start(["zero"], "whole", 7), 0)
        for point, torn in (("zero.before_meeting", False), ("zero.stepping", True), ("zero.before_end", True)):
            with self.subTest(point=point):
                _, err = self.finish(self.start(["zero"], point, 7, fail_point=f"{point}@1+16=kill"), 128 + signal.SIGKILL)
                self.assertEqual("step 17 is torn" in err, torn, err)
                self.assertRegex(err, "rank 1 of 2 .*SIGKILL")
                self.check_output(whole, self.finish(self.start(["zero"], point, 7), 0)[0].partition("\n")[2])

    def test_zero_stopped_in_a_step(self):
        """A rank that stands still: the other one waits for the timeout, and says for whom."""
        for point, torn in (("zero.before_meeting", False), ("zero.stepping", True), ("zero.before_end", True)):
            with self.subTest(point=point):
                job = self.start(["zero"], point, 7, fail_point=f"{point}@1+16=stop", LOCKSTEP_TIMEOUT="2")
                _, err = job.communicate(timeout=PATIENCE)
                self.assertNotEqual(job.returncode, 0)
                self.assertEqual("step 17 is torn" in err, torn, err)
                self.assertRegex(err, "waiting for rank 1")

    def test_virtual_ranks_on_other_numbers_of_processes(self):
        self.check_output(*self.trial(["virtual_ranks"], every=7, stop=2, kill=2, ranks=(2, 3, 1)))


if __name__ == "__main__":
    unittest.main()
