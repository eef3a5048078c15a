#!/usr/bin/env python3
"""The kill trials of peers_test.py on the `thread` backend: a thread cannot be killed, so one of four throws at a fail point,
unwinds and leaves its group. The others must end by themselves, with an error that names it and their operation.

    PEERS_TEST_PROGRAM=build/tests/faults/thread_trial tests/faults/threads_test.py -v"""
import os
import random
import re
import subprocess
import unittest

from peers_support import PATIENCE, PROGRAM, Histogram

TRIALS = int(os.environ.get("PEERS_TEST_TRIALS", "20"))
SIZE = 4
OPERATION = r"(?:barrier|broadcast|all_reduce) #\d+"


class Thrown(unittest.TestCase):
    def setUp(self):
        self.histogram = Histogram()

    def trial(self, seed, phase, point, skip_below, in_operation):
        """False if nobody got to the fail point."""
        skip = random.Random(f"{phase}/{seed}").randrange(skip_below)
        variables = {"LOCKSTEP_FAIL_POINT": f"{point}@0+{skip}=throw", "RANK": "0", "WORLD_SIZE": "1"}
        with self.subTest(seed=seed, **variables):
            done = subprocess.run([PROGRAM, "12"], env={**os.environ, **variables}, capture_output=True, text=True,
                                  check=False, timeout=PATIENCE)  # else a rank hangs
            self.assertEqual(done.returncode, 0, done.stderr)
            results = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
            self.assertEqual(len(results), SIZE, done.stdout)
            victims = [rank for rank, result in enumerate(results) if self.threw(result, rank)]
            if not victims:
                self.assertEqual(results, ["done"] * SIZE)
                return False
            self.assertEqual(len(victims), 1, done.stdout)
            threw = self.time_of(results[victims[0]])
            for rank in set(range(SIZE)) - set(victims):
                self.check_survivor(results[rank], rank, victims[0], in_operation)
                self.histogram.add(phase, self.time_of(results[rank]) - threw)
        return True

    def threw(self, result, rank):
        """The wait of another operation may have been the one that advanced the operation that threw."""
        return result.startswith("victim ") or (f": rank {rank} gave up" in result and "(found by" not in result)

    def time_of(self, result):
        return int(re.search(r" (\d{9,}) ", result)[1])

    def check_survivor(self, result, rank, victim, in_operation):
        """The error names the victim: which left, or which gave up an operation that the others had a part in."""
        place = rf'{OPERATION} on group "world", rank {rank} of {SIZE}: rank {victim}'
        left = rf"PeerLost {victim} \d+ {place} has left the group while rank \d was in .*"
        gave_up = rf"Aborted -1 \d+ {place} gave up {OPERATION}: fail point \S+ was asked to throw \(found by rank {victim}\); .*"
        self.assertRegex(result, gave_up if in_operation else left)

    def trials(self, phase, point, skip_below, in_operation):
        reached = 0
        for seed in range(3 * TRIALS):
            reached += self.trial(seed, phase, point, skip_below, in_operation)
            if reached == TRIALS:
                return
        self.fail(f"only {reached} of {3 * TRIALS} jobs came to {point}")

    def test_in_each_phase(self):
        self.trials("construction", "trial.construct", 12, in_operation=False)
        self.trials("collective posted", "comm.posted", 120, in_operation=False)
        self.trials("slice claimed", "comm.claimed_slice", 32, in_operation=True)
        self.trials("collective finishing", "comm.before_finish", 120, in_operation=True)
        self.trials("between steps", "trial.between_steps", 44, in_operation=False)
        self.histogram.print("time to notice a thread that threw and left")


if __name__ == "__main__":
    unittest.main()
