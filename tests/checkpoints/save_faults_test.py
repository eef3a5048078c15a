"""A save of two ranks, one of which is killed or meets an error at each of its file calls: the old or the new
checkpoint loads. (save_trial sweep does the same with one rank, and every fault.)"""
import collections
import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
TRIAL = os.environ["CHECKPOINT_TEST_SAVE"]
KILL, NO_SPACE = 1, 2
WITHOUT_EXCHANGE = {"SAVE_TRIAL_WITHOUT_EXCHANGE": "1"}


class SaveFaults(unittest.TestCase):
    def setUp(self):
        # In memory where that is a file system: what a real disk does with an fsync shows nothing here, and takes its time.
        self.temporary = tempfile.TemporaryDirectory(prefix="save-faults-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name) / "run"

    def trial(self, *arguments, ranks=None, **environment):
        start = [LOCKSTEP, "run", "-n", str(ranks), "--no-prefix", "--no-logs"] if ranks else []
        return subprocess.run([*start, TRIAL, *map(str, arguments)], capture_output=True, text=True, timeout=600,
                              env=os.environ | environment)

    def save_first(self, over_what_is_left=False):
        """The folder as after the first save, which is made once; or by a save of its own, over what a killed one has left."""
        first = self.folder.parent / "first"
        if over_what_is_left:
            self.assertEqual(self.trial("first", self.folder).returncode, 0)
            return
        if not first.exists():
            saved = self.trial("first", first)
            self.assertEqual(saved.returncode, 0, saved.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(first, self.folder)

    def loaded(self):
        load = self.trial("load", self.folder)
        self.assertEqual(load.returncode, 0, load.stdout + load.stderr)
        return int(load.stdout.split()[0])

    def test_every_call_of_one_rank(self):
        sweep = self.trial("sweep", self.folder)
        self.assertEqual(sweep.returncode, 0, sweep.stdout + sweep.stderr)
        sweep = self.trial("sweep", self.folder, **WITHOUT_EXCHANGE)
        self.assertEqual(sweep.returncode, 0, sweep.stdout + sweep.stderr)

    def kills_of_rank(self, rank):
        """How many file calls the rank makes: it is killed at each in turn, until it makes no more."""
        call = 0
        while True:
            call += 1
            self.save_first(over_what_is_left=call % 4 == 0)
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

    def test_a_power_cut_leaves_a_checkpoint(self):
        """A disk may lose every write, name and removal that no fsync followed, and may keep any of them. So what gets its name must be
        on the disk before, and a checkpoint goes only when the name of the newer one is on the disk."""
        for ranks, exchange in itertools.product((1, 2, 3), (True, False)):
            with self.subTest(ranks=ranks, exchange=exchange):
                folder, record = self.folder / f"{ranks}-{exchange}", self.folder.parent / f"calls-{ranks}-{exchange}"
                folder.mkdir(parents=True)
                done = self.trial("calls", folder, record, ranks=ranks, **({} if exchange else WITHOUT_EXCHANGE))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.check_order([line.split() for line in record.read_text().splitlines()], folder / "some/run", ranks, exchange)

    def check_order(self, calls, run, ranks, exchange):
        unsynced = set()  # files with bytes, and folders with names, that no fsync followed
        named = []  # the checkpoints that got their names
        for call, path, *to in calls:
            if path.endswith(".lock"):
                continue
            parent = str(pathlib.Path(path).parent)
            if call == "fsync":
                unsynced.discard(os.path.normpath(path))
            elif call == "write":
                unsynced.add(path)
            elif call == "create":
                unsynced.add(parent)
            elif call in ("rename", "exchange") and pathlib.Path(to[0]).name.startswith("step-"):
                self.assertEqual([lost for lost in unsynced if lost.startswith(path)], [], f"named before it is on the disk: {path}")
                unsynced.add(parent)
                named.append(pathlib.Path(to[0]).name)
            elif call == "unlink":
                self.assertNotIn(str(run), unsynced, f"{path} goes before the name of the newer checkpoint is on the disk")
        self.assertEqual(named, [f"step-{step:012}" for step in (1, 1, 2, 3)])
        self.assertEqual(unsynced, set(), "save_checkpoint() returned before this was on the disk")
        counts = collections.Counter(call[0] for call in calls)
        self.assertEqual(counts["exchange"], 1 if exchange else 0)
        self.assertEqual(counts["unlink"], 2 * (ranks + 2), "one replaced, one that keep_last sends away: shards, the index, the folder")

    def test_a_full_disk_of_the_second_rank(self):
        for call in (1, 2):
            self.save_first()
            once = self.trial("once", self.folder, 1, call, NO_SPACE, ranks=2)
            self.assertEqual(once.stdout.count("refused"), 2, once.stdout + once.stderr)
            self.assertIn("rank 1 of 2", once.stderr)
            self.assertIn("No space left on device", once.stderr)
            self.assertEqual(self.loaded(), 3)


if __name__ == "__main__":
    unittest.main()
