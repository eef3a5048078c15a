"""A save of two ranks, one of which is killed or meets an error at each of its file calls: the old or the new
checkpoint loads. (save_trial sweep does the same with one rank, and every fault.)"""
import os
import pathlib
import subprocess
import tempfile
import unittest

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
TRIAL = os.environ["CHECKPOINT_TEST_SAVE"]
KILL, NO_SPACE = 1, 2


class SaveFaults(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name) / "run"

    def trial(self, *arguments, ranks=None):
        start = [LOCKSTEP, "run", "-n", str(ranks), "--no-prefix", "--no-logs"] if ranks else []
        return subprocess.run([*start, TRIAL, *map(str, arguments)], capture_output=True, text=True, timeout=120)

    def loaded(self):
        load = self.trial("load", self.folder)
        self.assertEqual(load.returncode, 0, load.stdout + load.stderr)
        return int(load.stdout.split()[0])

    def test_every_call_of_one_rank(self):
        sweep = self.trial("sweep", self.folder)
        self.assertEqual(sweep.returncode, 0, sweep.stdout + sweep.stderr)

    def kills_of_rank(self, rank):
        """How many file calls the rank makes: it is killed at each in turn, until it makes no more."""
        call = 0
        while True:
            call += 1
            self.trial("first", self.folder)
            once = self.trial("once", self.folder, rank, call, KILL, ranks=2)
            with self.subTest(rank=rank, call=call):
                if once.returncode == 0:
                    self.assertEqual(self.loaded(), 2, once.stdout + once.stderr)
                    return call - 1
                self.assertIn(self.loaded(), (1, 2))

    def test_kills_of_each_rank(self):
        self.assertGreater(self.kills_of_rank(0), 8)
        self.assertGreater(self.kills_of_rank(1), 2)

    def test_leaving_main_waits_for_a_save_in_the_background(self):
        for ranks in (None, 1, 2, 3):
            left = self.trial("leave", self.folder / str(ranks), ranks=ranks)
            self.assertEqual(left.returncode, 0, left.stderr)
            self.assertNotIn("checkpoint", left.stderr)
            load = self.trial("load", self.folder / str(ranks))
            self.assertEqual(load.stdout.split(), ["2"], load.stdout)

    def test_a_full_disk_of_the_second_rank(self):
        for call in (1, 2):
            self.trial("first", self.folder)
            once = self.trial("once", self.folder, 1, call, NO_SPACE, ranks=2)
            self.assertEqual(once.stdout.count("refused"), 2, once.stdout + once.stderr)
            self.assertIn("rank 1 of 2", once.stderr)
            self.assertIn("No space left on device", once.stderr)
            self.assertEqual(self.loaded(), 3)


if __name__ == "__main__":
    unittest.main()
