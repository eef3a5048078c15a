#!/usr/bin/env python3
"""Who is blamed, when programs catch their errors and all ranks end with code 1, in any order. Ranks are those of blame_trial.cpp."""
import json
import os
import pathlib
import subprocess
import unittest

from launcher_support import Job, LauncherTest

PROGRAM = pathlib.Path(os.environ["BLAME_TEST_PROGRAM"]).resolve()
TRIALS = int(os.environ.get("BLAME_TEST_TRIALS", "2"))
BACKENDS = os.environ.get("BLAME_TEST_BACKENDS", "shm,tcp").split(",")
LATE = "400"  # ms after which the first cause ends: behind all others, and behind the launcher's patience with them


def job_of(ranks, *arguments, options=(), **environment):
    return Job(["-n", str(ranks), *options], [*arguments], environment={name: str(value) for name, value in environment.items()})


class FirstCause(LauncherTest):
    def check(self, how, ranks, cause, words, *more, backend="shm", code=1, **environment):
        with job_of(ranks, str(PROGRAM), f"{how}@{cause}", *more, LOCKSTEP_BACKEND=backend, **environment) as job:
            result = job.wait()
            self.assertEqual(job.living(), [])
            err = job.err()
            self.assertIn(f"rank {cause} of {ranks} {words}", err)
            self.assertEqual(err.count(" failed first") + err.count(" ended first"), 1, err)
            self.assertEqual(result, code, err)
            record = json.loads((job.logs() / "failure.json").read_text())
            self.assertEqual(record["first_failing_rank"], cause)
            return err

    def test_the_rank_whose_own_error_it_was(self):
        for backend in BACKENDS:
            for ranks in (2, 3, 4):
                for trial in range(TRIALS):
                    cause = trial % ranks
                    with self.subTest(backend=backend, ranks=ranks, trial=trial):
                        err = self.check("throw", ranks, cause, "failed first: exit code 1", backend=backend)
                        self.assertIn(f"  [{cause}] the file of rank {cause} is gone", err)

    def test_also_if_it_is_the_last_to_end(self):
        for backend in BACKENDS:
            with self.subTest(backend=backend):
                self.check("throw", 3, 1, "failed first: ", LATE, backend=backend)

    def test_the_rank_that_aborted_the_group(self):
        for backend in BACKENDS:
            for trial in range(TRIALS):
                with self.subTest(backend=backend, trial=trial):
                    self.check("abort", 3, 2, "failed first: exit code 1", backend=backend)

    def test_a_killed_rank(self):
        for backend in BACKENDS:
            with self.subTest(backend=backend):
                self.check("kill", 3, 1, "failed first: killed by SIGKILL", backend=backend, code=137)

    def test_a_rank_that_returns_early_with_code_0(self):
        for backend in BACKENDS:
            for cause in (0, 1):
                with self.subTest(backend=backend, cause=cause):
                    err = self.check("return", 2, cause, "ended first: exit code 0, while other ranks needed it", backend=backend)
                    other = 1 - cause
                    self.assertRegex(err, rf"\[{other}\] all_reduce #4 on group \"world\", rank {other} of 2: rank {cause} .*has left")
                    self.assertIn(f"because of it: rank {other} exit code 1", err)

    def test_a_rank_that_is_stopped(self):
        for backend in BACKENDS:
            with self.subTest(backend=backend):
                self.check("stop", 3, 1, "failed first: it was stopped (SIGSTOP) while other ranks waited for it",
                           backend=backend, LOCKSTEP_TIMEOUT=1)

    def test_behind_wrapper_shells(self):
        with job_of(3, "sh", "-c", f"{PROGRAM} throw@2; exit 5") as job:
            self.assertEqual(job.wait(), 5)
            self.assertIn("rank 2 of 3 failed first: exit code 5", job.err())

    def test_a_rank_that_ends_with_code_0_before_it_has_joined(self):
        with job_of(2, "sh", "-c", f"[ $RANK = 1 ] && exit 0; exec {PROGRAM}") as job:
            self.assertEqual(job.wait(), 1)
            self.assertIn("rank 1 of 2 ended first: exit code 0, while other ranks needed it", job.err())

    def test_ranks_that_all_end_well_fail_nobody(self):
        with job_of(2, "sh", "-c", f"{PROGRAM} throw@1; exit 0") as job:
            self.assertEqual(job.wait(), 0)
            self.assertNotIn("first", job.err())


class ManyRanks(LauncherTest):
    def test_no_line_grows_with_the_job(self):
        ranks = 64
        # The others wait until rank 9 is not even a zombie any more: then the launcher has seen its end.
        script = "if [ $RANK = 9 ]; then echo $$ > new; mv new pid; exit 3; fi; while [ ! -s pid ]; do sleep 0.05; done; " \
                 "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done; exit 1"
        with job_of(ranks, "sh", "-c", script) as job:
            self.assertEqual(job.wait(600), 3)
            self.assertIn("rank 9 of 64 failed first: exit code 3", job.err())
            self.assertLess(max(len(line) for line in job.err().splitlines()), 600)


class OutOfMemory(LauncherTest):
    """A control group of version 1 or 2 with 64 MiB; the machine that runs the test must let this user make one."""

    def cgroup(self):
        for base in (pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")):
            limit = base / f"lockstep-test-{os.getpid()}" / ("memory.limit_in_bytes" if base.name == "memory" else "memory.max")
            try:
                limit.parent.mkdir()
            except OSError:
                continue
            self.addCleanup(limit.parent.rmdir)
            try:
                limit.write_text(str(64 << 20))
                return limit.parent
            except OSError:
                pass
        return None

    def test_the_kernels_killer_is_named(self):
        group = self.cgroup()
        if group is None:
            print("no control group for memory can be made here: that the kernel's killer is named is not tested")
            return
        # perl is in every Debian; the launcher and its ranks start in the group.
        hungry = r'[ $RANK = 1 ] || exec sleep 1000; exec perl -e "my @all; push @all, q(x) x 1000000 while 1"'
        enter = f"echo $$ > {group}/cgroup.procs; exec \"$0\" \"$@\""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        command = ["sh", "-c", enter, os.environ["LAUNCHER_TEST_COMMAND"], "run", "-n", "2", "--no-logs", "sh", "-c", hungry]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(result.returncode, 137, result.stderr)
        self.assertRegex(result.stderr, r"rank 1 of 2 failed first: killed by SIGKILL by the kernel's out-of-memory killer, which "
                                        r"has ended 1 process of control group /lockstep-test-\d+ since the job began, pid \d+ on ")


class Backtraces(LauncherTest):
    def test_do_not_push_the_message_out(self):
        script = "echo the message; i=0; while [ $i -lt 60 ]; do echo \"frame #$i: f() + 0x1 (0x7f in /lib/x.so)\"; i=$((i+1)); done; exit 1"
        with job_of(1, "sh", "-c", script) as job:
            self.assertEqual(job.wait(), 1)
            self.assertIn("lockstep:   [0] the message\nlockstep:   [0] frame #0: f()", job.err())
            self.assertIn("lockstep:   [0]   ... and 57 more frames\n", job.err())


if __name__ == "__main__":
    unittest.main()
