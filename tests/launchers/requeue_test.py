#!/usr/bin/env python3
"""A job of Slurm that is requeued: docs/clusters/requeue.sh with a program that counts and goes on where it was."""
import os
import re
import unittest

from requeued_jobs import RequeuedJobs
from slurm import Slurm

PROGRAM = os.environ["RESUMED_TEST_PROGRAM"]
STEP_TIME = 2000  # microseconds


class Requeue(RequeuedJobs):
    def count(self):
        try:
            return int((self.folder / "count").read_text())
        except (OSError, ValueError):
            return 0

    def starts(self, restarts, size=4):
        lines = (self.folder / "starts").read_text().splitlines() if (self.folder / "starts").exists() else []
        return sum(line.split()[1] == str(restarts) for line in lines) >= size

    def check_end(self, slurm, job, steps, restarts):
        self.await_end(slurm, job, restarts)
        self.assertEqual(self.count(), steps)
        log = self.log()
        done = re.findall(r"rank (\d) of 4 counted from (\d+) to (\d+) after (\d+) restarts", log)
        self.assertEqual(sorted(rank for rank, *_ in done), ["0", "1", "2", "3"], log)
        self.assertEqual({(int(to), int(again)) for _, _, to, again in done}, {(steps, restarts)}, log)
        return {int(first) for _, first, *_ in done}

    def test_a_job_preempted_twice_goes_on_where_it_was(self):
        with Slurm(nodes=2) as slurm:
            steps = 1500
            job = self.submit(slurm, PROGRAM, self.folder, steps, STEP_TIME)
            counts = []
            for restarts in range(2):
                at = self.count()
                self.wait_for(lambda restarts=restarts, at=at: self.starts(restarts) and self.count() > at + 20, slurm, "steps")
                self.assertEqual(self.call("scontrol", "requeue", job).returncode, 0)
                self.await_requeue(slurm, job, restarts + 1)
                counts.append(self.count())
            first = self.check_end(slurm, job, steps, 2)
            self.assertEqual(len(first), 1)
            self.assertGreaterEqual(first.pop(), counts[-1])
            ends = [line.split() for line in (self.folder / "ends").read_text().splitlines()]
            self.assertEqual([int(said) for said, _ in ends], [15, 15], "each time all ranks agreed to stop")

    def test_a_job_warned_before_its_time_limit_requeues_itself(self):
        """scancel --signal=USR1 is what #SBATCH --signal=USR1@60 does when the limit comes near."""
        with Slurm(nodes=2) as slurm:
            steps = 1000
            job = self.submit(slurm, PROGRAM, self.folder, steps, STEP_TIME)
            self.wait_for(lambda: self.count() > 20, slurm, "steps")
            self.call("scancel", "--signal=USR1", job)
            self.await_requeue(slurm, job, 1)
            self.check_end(slurm, job, steps, 1)
            self.assertEqual((self.folder / "ends").read_text().split()[0], "10")


if __name__ == "__main__":
    unittest.main()
