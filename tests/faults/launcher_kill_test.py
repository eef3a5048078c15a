"""kill -9 of the launcher's processes, in every phase of a job: nothing of the job may live on, grandchildren included.

The phases are hit exactly: a fail point stops the guardian there, the front is killed, and the guardian goes on."""
import os
import signal
import time
import unittest

from launcher_support import (BOUND, SHAPES, Job, LauncherTest, children_of, seeded, show_times, state_of, wait_until)

TRIALS = 20


def pick_job(rng, shapes=tuple(SHAPES)):
    """Options and command of a random job: 1 to 4 ranks of a random shape."""
    ranks = rng.randint(1, 4)
    shape = rng.choice(shapes)
    return ranks, shape, ["-n", str(ranks), "--no-logs"], ["sh", "-c", SHAPES[shape]]


class FrontIsKilled(LauncherTest):
    def kill_front_at(self, phase, skips=(0,), command=None, before=lambda job: None):
        """Stops the guardian in `phase`, kills the front, lets the guardian go on. Times count from there."""
        times = []
        for seed, rng in seeded(TRIALS):
            ranks, shape, options, program = pick_job(rng)
            skip = rng.choice([s for s in skips if s < ranks] or [0])
            with self.subTest(phase=phase, seed=seed, ranks=ranks, shape=shape, skip=skip):
                with Job(options, command or program, fail_point=f"{phase}@0+{skip}=stop") as job:
                    before(job)
                    guardian = wait_until(job.guardian, "a guardian")
                    wait_until(lambda: state_of(guardian) == "T", f"guardian stopped at {phase}")
                    os.kill(job.pid, signal.SIGKILL)
                    job.wait()
                    times.append(job.seconds_until_gone(resume=guardian))
                    self.assertLess(times[-1], BOUND)
        show_times(f"front killed at {phase}, until nothing lives", times)

    def test_before_the_guardian_does_anything(self):
        self.kill_front_at("launch.guardian")

    def test_between_the_starts_of_ranks(self):
        self.kill_front_at("launch.before_rank", skips=(0, 1, 2, 3))

    def test_when_all_ranks_have_been_started(self):
        self.kill_front_at("launch.running")

    def test_while_ranks_are_asked_to_stop(self):
        def stop(job):
            wait_until(job.sleepers, "ranks run")
            os.kill(job.pid, signal.SIGTERM)
        self.kill_front_at("launch.stopping", before=stop)

    def test_while_what_is_left_is_killed(self):
        self.kill_front_at("launch.killing", command=["sh", "-c", "setsid {sleep} & sleep 0.01"])

    def test_when_everything_has_ended(self):
        self.kill_front_at("launch.drained", command=["sh", "-c", "setsid {sleep} & sleep 0.01"])

    def test_between_fork_and_exec_of_a_rank(self):
        times = []
        for seed, rng in seeded(TRIALS):
            ranks, shape, options, program = pick_job(rng)
            with self.subTest(seed=seed, ranks=ranks, shape=shape):
                with Job(options, program, fail_point="spawn.exec@0=stop") as job:
                    guardian = wait_until(job.guardian, "a guardian")
                    wait_until(lambda: [state_of(pid) for pid in children_of(guardian)] == ["T"] * ranks,
                               "every rank stopped before exec")
                    os.kill(job.pid, signal.SIGKILL)
                    job.wait()
                    times.append(job.seconds_until_gone())
                    self.assertLess(times[-1], BOUND)
        show_times("front killed between fork and exec of the ranks, until nothing lives", times)

    def test_right_after_it_has_started_the_guardian(self):
        times = []
        for seed, rng in seeded(TRIALS):
            ranks, shape, options, program = pick_job(rng)
            with self.subTest(seed=seed, ranks=ranks, shape=shape):
                with Job(options, program, fail_point="launch.front@0=kill") as job:
                    self.assertEqual(job.wait(), -signal.SIGKILL)
                    times.append(job.seconds_until_gone())
                    self.assertLess(times[-1], BOUND)
        show_times("front killed right after fork, until nothing lives", times)

    def test_at_random_moments(self):
        times = []
        for seed, rng in seeded(3 * TRIALS):
            ranks, shape, options, program = pick_job(rng)
            delay = rng.uniform(0, 0.06)
            with self.subTest(seed=seed, ranks=ranks, shape=shape, delay=delay):
                with Job(options, program) as job:
                    time.sleep(delay)  # the moment is the trial; nothing is waited for
                    os.kill(job.pid, signal.SIGKILL)
                    job.wait()
                    times.append(job.seconds_until_gone())
                    self.assertLess(times[-1], BOUND)
        show_times("front killed 0 to 60 ms after its start, until nothing lives", times)

    def test_with_its_whole_process_group(self):
        times = []
        for seed, rng in seeded(TRIALS):
            ranks, shape, options, program = pick_job(rng)
            with self.subTest(seed=seed, ranks=ranks, shape=shape):
                with Job(options, program, start_new_session=True) as job:
                    wait_until(lambda: len(job.sleepers()) >= ranks, "ranks run")
                    os.killpg(job.pid, signal.SIGKILL)
                    job.wait()
                    times.append(job.seconds_until_gone())
                    self.assertLess(times[-1], BOUND)
        show_times("front's process group killed, until nothing lives", times)


class GuardianIsKilled(LauncherTest):
    def kill_guardian_at(self, phase, skips=(0,), command=None, before=lambda job: None):
        for seed, rng in seeded(TRIALS):
            ranks, shape, options, program = pick_job(rng)
            skip = rng.choice([s for s in skips if s < ranks] or [0])
            with self.subTest(phase=phase, seed=seed, ranks=ranks, shape=shape, skip=skip):
                with Job(options, command or program, fail_point=f"{phase}@0+{skip}=kill") as job:
                    before(job)
                    self.assertEqual(job.wait(), 128 + signal.SIGKILL)
                    self.assertEqual(job.living(), [], "the front returns when nothing lives")
                    self.assertIn("guardian process was killed by SIGKILL", job.err())

    def test_before_it_does_anything(self):
        self.kill_guardian_at("launch.guardian")

    def test_between_the_starts_of_ranks(self):
        self.kill_guardian_at("launch.before_rank", skips=(0, 1, 2, 3))

    def test_when_all_ranks_have_been_started(self):
        self.kill_guardian_at("launch.running")

    def test_while_ranks_are_asked_to_stop(self):
        def stop(job):
            wait_until(job.sleepers, "ranks run")
            os.kill(job.pid, signal.SIGTERM)
        self.kill_guardian_at("launch.stopping", before=stop)

    def test_while_what_is_left_is_killed(self):
        self.kill_guardian_at("launch.killing", command=["sh", "-c", "setsid {sleep} & sleep 0.01"])

    def test_while_the_ranks_run(self):
        times = []
        for seed, rng in seeded(TRIALS):
            ranks, shape, options, program = pick_job(rng)
            with self.subTest(seed=seed, ranks=ranks, shape=shape):
                with Job(options, program) as job:
                    wait_until(lambda: len(job.sleepers()) >= ranks, "ranks run")
                    start = time.monotonic()
                    os.kill(job.guardian(), signal.SIGKILL)
                    self.assertEqual(job.wait(), 128 + signal.SIGKILL)
                    self.assertEqual(job.living(), [])
                    times.append(time.monotonic() - start)
                    self.assertLess(times[-1], BOUND)
        show_times("guardian killed, until the front has returned and nothing lives", times)


if __name__ == "__main__":
    unittest.main()
