"""A training that is killed at random moments and resumed each time ends with the bits of the one that was not.

CHECKPOINT_TEST_KILLS: how many kills in all (10), and half as many with virtual ranks and changing numbers of processes.
CHECKPOINT_TEST_SEED: of the moments (1)."""
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import mnist_data  # noqa: E402

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
TRIAL = os.environ["CHECKPOINT_TEST_TRAINING"]
KILLS = int(os.environ.get("CHECKPOINT_TEST_KILLS", "10"))
SEED = int(os.environ.get("CHECKPOINT_TEST_SEED", "1"))


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants_of(pid):
    found = []
    for child in children_of(pid):
        found += [child] + descendants_of(child)
    return found


class Kills(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "mnist").mkdir()
        mnist_data.cut_all(self.folder / "mnist", 1536, 10)

    def start(self, checkpoints, ranks, *options):
        return subprocess.Popen([LOCKSTEP, "run", "-n", str(ranks), "--no-prefix", "--no-logs", *options, TRIAL,
                                 self.folder / "mnist", checkpoints], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=os.environ | {"OMP_NUM_THREADS": "1"})

    def result_of(self, job):
        out, err = job.communicate(timeout=600)
        self.assertEqual(job.returncode, 0, out + err)
        return [line for line in out.splitlines() if line.startswith("sha256 ")]

    def kill_somewhere(self, job, choice):
        """A rank, the launcher, or everything at once."""
        everyone = descendants_of(job.pid)
        if choice < 0.5 and everyone:
            targets = [everyone[int(choice * 2 * len(everyone))]]
        elif choice < 0.75:
            targets = [job.pid]
        else:
            targets = [job.pid] + everyone
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        job.communicate(timeout=600)
        for pid in everyone:  # the guardian ends them; the next job is not started beside them
            while pathlib.Path(f"/proc/{pid}").exists():
                time.sleep(0.01)

    def trial(self, kills_wanted, numbers, options, same):
        begun = time.monotonic()
        expected = same(self.result_of(self.start(self.folder / "whole", next(numbers), *options)))
        metrics = (self.folder / "whole.jsonl").read_bytes()
        duration = time.monotonic() - begun
        self.assertTrue(expected)
        self.assertTrue(metrics)
        moments = random.Random(SEED)
        kills = runs = 0
        while kills < kills_wanted:
            runs += 1
            checkpoints = self.folder / f"killed-{runs}"
            is_resumed = False
            while True:
                begun = time.monotonic()
                job = self.start(checkpoints, next(numbers), *options)
                try:
                    job.wait(timeout=moments.uniform(0.15, 1.0) * duration)
                    if not is_resumed:
                        duration = min(duration, time.monotonic() - begun)  # the machine has less to do than before
                except subprocess.TimeoutExpired:
                    self.kill_somewhere(job, moments.random())
                    kills += 1
                    is_resumed = True
                    if kills < kills_wanted:
                        continue
                    job = self.start(checkpoints, next(numbers), *options)
                self.assertEqual(same(self.result_of(job)), expected, f"run {runs}, after {kills} kills, seed {SEED}")
                self.assertEqual((self.folder / f"killed-{runs}.jsonl").read_bytes(), metrics)
                break
        print(f"{kills} kills in {runs} runs of {duration:.1f} s: the same bits", file=sys.stderr)

    def test_a_killed_run_ends_with_the_same_bits(self):
        self.trial(KILLS, itertools.repeat(2), [], lambda lines: lines)

    def test_virtual_ranks_on_other_numbers_of_processes(self):
        # Rank 0's checksum, which has the buffers too.
        self.trial(-(-KILLS // 2), itertools.cycle([2, 1, 4, 3]), ["--virtual-ranks", "4"], lambda lines: lines[:1])


if __name__ == "__main__":
    unittest.main()
