#!/usr/bin/env python3
"""lockstep run --max-restarts: ranks that are killed at random moments, and what the next start of the ranks finds.

By hand, many trials: LAUNCHER_TEST_TRIALS=10 makes ten times as many as CTest does. Each prints its seed; LAUNCHER_TEST_SEED
runs that one alone."""
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
from launcher_support import BOUND, Job, LauncherTest, children_of, show_times, wait_until  # noqa: E402
from slurm import free_ports  # noqa: E402

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
PROGRAM = os.environ["RESUMED_TEST_PROGRAM"]
TRIALS = max(1, int(10 * float(os.environ.get("LAUNCHER_TEST_TRIALS", "1"))))
STEPS = 150
STEP_TIME = 1000  # microseconds


def seeds():
    if "LAUNCHER_TEST_SEED" in os.environ:
        return [int(os.environ["LAUNCHER_TEST_SEED"])]
    return [random.SystemRandom().randrange(10**9) for _ in range(TRIALS)]


def starts_in(folder):
    """{restarts: {rank: (pid, when main() began)}} of all lines of FOLDER/starts."""
    found = {}
    for line in (folder / "starts").read_text().splitlines():
        rank, restarts, pid, began = map(int, line.split())
        found.setdefault(restarts, {})[rank] = (pid, began / 1e9)
    return found


def ranks_of(job):
    guardian = job.guardian()
    return children_of(guardian) if guardian else []


class OneMachine(LauncherTest):
    def trial(self, rng, victims, moment):
        """Kills; checks that the job is started once more and ends well. From the kill until main() runs on all ranks."""
        ranks = rng.randint(max(2, victims), 4)
        with Job(["-n", str(ranks), "--max-restarts", "3"], [PROGRAM, ".", str(STEPS), str(STEP_TIME)]) as job:
            moment(job, rng, ranks)
            pids = rng.sample(ranks_of(job), victims)
            killed = time.monotonic()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            code = job.wait(600)
            self.assertEqual(code, 0, job.err() + job.out())
            self.assertEqual(re.findall(r"restart (\d+ of \d+): (rank \d+ failed first: killed by SIGKILL)", job.err())[0][0], "1 of 3")
            self.assertEqual(job.err().count("lockstep: restart "), 1, job.err())
            done = re.findall(r"rank (\d) of \d counted from (\d+) to (\d+) after (\d+) restarts", job.out())
            self.assertEqual(sorted(int(rank) for rank, *_ in done), list(range(ranks)), job.out())
            self.assertEqual({(int(to), int(restarts)) for _, _, to, restarts in done}, {(STEPS, 1)})
            again = starts_in(job.folder)[1]
            self.assertEqual(sorted(again), list(range(ranks)))
            self.assertEqual(job.living(), [])
            return max(began for _, began in again.values()) - killed

    def trials(self, title, victims, moment):
        times = []
        for seed in seeds():
            with self.subTest(seed=seed):
                times.append(self.trial(random.Random(seed), victims, moment))
                self.assertLess(times[-1], BOUND)
        show_times(f"{title}: from the kill until main() runs again on all ranks", times)

    @staticmethod
    def while_they_start(job, rng, ranks):
        """From the moment that all are there: before main(), in it, or while they meet."""
        wait_until(lambda: len(ranks_of(job)) == ranks, "the ranks were started")
        time.sleep(rng.uniform(0, 0.03))  # the moment is the trial; nothing is waited for

    @staticmethod
    def while_they_count(job, rng, ranks):
        wait_until((job.folder / "count").exists, "the first step is done")
        time.sleep(rng.uniform(0, 0.6 * STEPS * STEP_TIME / 1e6))

    def test_a_rank_killed_while_the_ranks_start(self):
        self.trials("while the ranks start", 1, self.while_they_start)

    def test_a_rank_killed_in_a_step(self):
        self.trials("in a step", 1, self.while_they_count)

    def test_two_ranks_killed_at_once(self):
        self.trials("two at once", 2, lambda *of: of[1].choice([self.while_they_start, self.while_they_count])(*of))

    def test_a_count_goes_on_where_it_was(self):
        with Job(["-n", "2", "--max-restarts", "1"], [PROGRAM, ".", str(STEPS), str(STEP_TIME)]) as job:
            wait_until((job.folder / "count").exists, "the first step is done")
            os.kill(ranks_of(job)[0], signal.SIGKILL)
            self.assertEqual(job.wait(), 0)
            first = int(re.search(r"counted from (\d+) to", job.out()).group(1))
            self.assertGreater(first, 0)


class Decisions(LauncherTest):
    def finish(self, options, script, **more):
        with Job(options, ["sh", "-c", script], **more) as job:
            code = job.wait()
            logs = sorted(str(path.relative_to(job.logs())) for path in job.logs().rglob("*") if path.is_file()) \
                if (job.folder / "runs").exists() else []
            return code, job.out(), job.err(), logs

    def test_a_program_that_always_fails_uses_all_restarts_up_and_its_code_counts(self):
        code, out, err, logs = self.finish(
            ["-n", "2", "--max-restarts", "2"], "echo start $LOCKSTEP_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT; "
            "[ $RANK = 1 ] && exit $((40 + LOCKSTEP_RESTART_COUNT)); exec {sleep}")
        self.assertEqual(code, 42)
        for restart in range(3):
            self.assertEqual(out.count(f"] start {restart} {restart}\n"), 2)
        self.assertIn("restart 1 of 2: rank 1 failed first: exit code 40", err)
        self.assertIn("restart 2 of 2: rank 1 failed first: exit code 41", err)
        self.assertIn("rank 1 of 2 failed first: exit code 42", err)
        self.assertIn("not restarted: all restarts are used up (2 of 2)", err)
        files = ["failure.json", "rank0.log", "rank1.log"]
        self.assertEqual(logs, files + [f"restart-{n}/{file}" for n in (1, 2) for file in files])

    def test_without_the_option_nothing_is_restarted_and_nothing_is_said_of_it(self):
        code, _, err, logs = self.finish(["-n", "1"], "exit 3")
        self.assertEqual(code, 3)
        self.assertNotIn("restart", err)
        self.assertEqual(logs, ["failure.json", "rank0.log"])

    def test_a_job_that_ends_well_is_over(self):
        code, out, err, _ = self.finish(["-n", "2", "--max-restarts", "2"], "echo once")
        self.assertEqual((code, out.count("once"), err.count("restart")), (0, 2, 0))

    def test_a_program_that_cannot_run_is_not_tried_again(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "program"
            script.write_text("no first line\n")
            script.chmod(0o700)
            with Job(["-n", "1", "--max-restarts", "3"], [str(script)]) as job:
                self.assertEqual(job.wait(), 126)
                self.assertIn("not restarted: the program cannot be run", job.err())

    def test_a_job_that_asks_to_be_started_again_is_no_failure(self):
        for options in ([], ["--max-restarts", "3"]):
            code, _, err, logs = self.finish(["-n", "2", *options], "exit 75")
            self.assertEqual(code, 75)
            self.assertIn("the job asked to be started again (exit code 75)", err)
            self.assertNotIn("failed", err)
            self.assertNotIn("restart 1", err)
            self.assertEqual(logs, ["rank0.log", "rank1.log"])

    def test_a_rank_that_asks_early_while_others_need_it_is_the_cause(self):
        code, _, err, _ = self.finish(["-n", "2"], "[ $RANK = 0 ] && exit 75; sleep 0.1; exit 7")
        self.assertEqual(code, 7)
        self.assertIn("rank 1 of 2 failed first: exit code 7", err)

    def test_a_stop_signal_ends_it_also_while_a_failure_is_handled(self):
        for script in ("exec {sleep}", "trap '' TERM; [ $RANK = 1 ] && exit 7; echo deaf; {sleep} & wait; {sleep}"):
            with Job(["-n", "2", "--max-restarts", "1000", "--grace", "600"], ["sh", "-c", script]) as job:
                if "deaf" in script:
                    wait_until(lambda: "deaf" in job.out(), "rank 0 runs")
                    wait_until(lambda: len(ranks_of(job)) == 1, "rank 1 has ended")
                else:
                    wait_until(lambda: len(job.sleepers()) == 2, "ranks run")
                os.kill(job.pid, signal.SIGTERM)
                self.assertIn(job.wait(), (7, 143), job.err())
                self.assertNotIn("restart 1", job.err())
                self.assertIn("not restarted: the job was asked to stop", job.err())
                self.assertEqual(job.living(), [])

    def test_a_killed_front_ends_it_though_restarts_are_left(self):
        with Job(["-n", "2", "--max-restarts", "1000", "--no-logs"], ["sh", "-c", "[ $RANK = 1 ] && exit 7; exec {sleep}"]) as job:
            wait_until(lambda: "restart 3 of" in job.err(), "it restarts")
            os.kill(job.pid, signal.SIGKILL)
            job.wait()
            job.seconds_until_gone()

    def test_what_a_failed_rank_started_does_not_live_on(self):
        with Job(["-n", "1", "--max-restarts", "1"], ["sh", "-c", "if [ $LOCKSTEP_RESTART_COUNT = 0 ]; then setsid {sleep} & "
                                                      "setsid {sleep} & exit 1; fi; sleep 0.2; echo $(pgrep -fc {sleep}) left"]) as job:
            self.assertEqual(job.wait(), 0)
            self.assertEqual(job.living(), [])

    def test_signals_for_the_program_reach_ranks_and_not_their_helpers(self):
        script = "trap 'echo rank $RANK got it; exit 0' USR1; {sleep} & echo ready; while kill -0 $!; do wait $!; done; echo helper died"
        with Job(["-n", "2"], ["sh", "-c", script]) as job:
            wait_until(lambda: job.out().count("ready") == 2, "ranks run")
            os.kill(job.pid, signal.SIGUSR1)
            self.assertEqual(job.wait(), 0)
            self.assertEqual(job.out().count("got it"), 2)
            self.assertNotIn("helper died", job.out())


class AskedToStop(LauncherTest):
    def test_all_ranks_stop_at_one_step_and_the_launcher_returns_their_code(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            for whom in ("launcher", "one rank"):
                with self.subTest(signal=number.name, whom=whom):
                    with Job(["-n", "3", "--max-restarts", "2"], [PROGRAM, ".", "100000", "1000"]) as job:
                        wait_until((job.folder / "count").exists, "the first step is done")
                        os.kill(job.pid if whom == "launcher" else ranks_of(job)[1], number)
                        self.assertEqual(job.wait(), 75, job.err() + job.out())
                        self.assertIn("the job asked to be started again (exit code 75)", job.err())
                        self.assertNotIn("failed", job.err())
                        said, step = (job.folder / "ends").read_text().split()
                        self.assertEqual(int(said), number)
                        self.assertEqual((job.folder / "count").read_text(), step)


if __name__ == "__main__":
    unittest.main()
