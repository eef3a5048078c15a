#!/usr/bin/env python3
"""Ranks that die, leave or stop in the middle of a job, and what the others make of it.

    PEERS_TEST_PROGRAM=build/tests/faults/trial PEERS_TEST_BACKEND=tcp tests/faults/peers_test.py -v

Each trial has a seed, which a failure prints; PEERS_TEST_TRIALS says how many per phase. Survivors must end by themselves, with
an error that names the dead rank, its pid, the operation and its number; nothing may be left of them. The times from the
last sign of life of the victim to the error of each survivor are printed."""
import os
import random
import re
import signal
import subprocess
import time
import unittest

import peers_support
from peers_support import STEPS, Copies, Histogram, Ranks

SIZE = 4
BACKEND = peers_support.BACKEND
HAS_CONNECTIONS = BACKEND != "shm"
# Over connections a rank sees no other machine's processes: it names the direction.
STATE = "waiting (?:to receive from it|to send to it|for its data in shared memory)" if HAS_CONNECTIONS else r"which is stopped \(SIGSTOP\)"
PORT = "" if BACKEND.endswith("gloo") else r":\d+"  # Gloo has one for each two
PLACE = r" at [\d.]+" + PORT if HAS_CONNECTIONS else ""  # behind a pid
TRIALS = int(os.environ.get("PEERS_TEST_TRIALS", "20"))
# Where a rank may be with a message taken out of another's memory: how often it comes there in the first steps, and which ranks do (each
# sends to the next; of two that share a node the second takes).
MESSAGE_POINTS = {"shm": {"comm.taking_message": (4, range(SIZE)), "comm.pouring_message": (136, range(SIZE))},
                  "hierarchical": {"comm.taking_message": (36, range(1, SIZE, 2)), "comm.giving_message": (4, range(0, SIZE, 2))},
                  }.get(BACKEND.partition("+")[0], {})
NO_MESSAGE_POINTS = f"{BACKEND} takes nothing out of other ranks' memory"
ABORT_PROGRAM = peers_support.PROGRAM.with_name("abort_trial")
DDP_PROGRAM = os.environ.get("PEERS_TEST_DDP_PROGRAM")
OPERATION = r"(?:(?:barrier|broadcast|all_reduce|reduce_scatter|all_gather) #\d+(?: for the [^\"]*)?|(?:send|recv)\([^)]*\)|send|recv|allocate_shared) on group \"world\", rank {rank} of 4: "

# The ways through shared memory (LOCKSTEP_PATHS) and where a rank may be on them.
PATHS = {"inline": ["comm.posted", "comm.before_finish"], "one_shot": ["comm.posted", "comm.before_finish"],
         "two_shot": ["comm.window_in", "comm.window_reduced", "comm.window_out", "comm.before_finish"],
         "window": ["comm.window_in", "comm.window_reduced", "comm.window_out", "comm.window_taken", "comm.before_finish"],
         "staged": ["comm.posted", "comm.claimed_slice", "comm.before_finish"]}


class PeersTest(unittest.TestCase):
    def setUp(self):
        self.before = peers_support.leftovers()
        self.histogram = Histogram()

    def tearDown(self):
        self.assertEqual(peers_support.leftovers(), self.before, "something is left in /dev/shm")
        self.histogram.print(f"time to notice, {self.id().split('.')[-1]}")

    def check_survivor(self, ranks, rank, victim, how, in_init=False):
        """The error of one survivor; returns when it came."""
        error = ranks.error(rank)
        self.assertIsNotNone(error, f"rank {rank} has no error\n{ranks.everything()}")
        when, kind, peer, message = error
        self.assertEqual((kind, peer, ranks.code(rank)), ("PeerLost", victim, 3), ranks.everything())
        if in_init and message.startswith("init_process_group"):
            self.assertIn(f"rank {victim} ended before all ranks had met", message)
        else:
            self.assertRegex(message, "^" + OPERATION.format(rank=rank), ranks.everything())
            self.assertRegex(message, rf"rank {victim} \(pid {ranks.processes[victim].pid}{PLACE}\) {how}", ranks.everything())
        return when

    def kill_trial(self, seed, phase, fail_point, skip_below=1, variables=None, victims=range(SIZE), **options):
        """One rank is killed at a fail point. False if it never got there (another rank took its share of the work)."""
        chance = random.Random(f"{phase}/{seed}")
        victim = victims[chance.randrange(len(victims))]
        point = f"{fail_point}@{victim}+{chance.randrange(skip_below)}=kill"
        with self.subTest(seed=seed, point=point), \
                Ranks(SIZE, variables={"LOCKSTEP_FAIL_POINT": point, **(variables or {})}, **options) as ranks:
            self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
            if ranks.code(victim) == 0:
                return False
            self.assertEqual(ranks.code(victim), -signal.SIGKILL, ranks.everything())
            for rank in set(range(SIZE)) - {victim}:
                when = self.check_survivor(ranks, rank, victim, "is dead", phase == "init")
                self.histogram.add(phase, when - ranks.stamp(victim))
        return True

    def kill_trials(self, phase, fail_point, skip_below=1, trials=TRIALS, **options):
        reached = 0
        for seed in range(3 * trials):
            reached += self.kill_trial(seed, phase, fail_point, skip_below, **options)
            if reached == trials:
                return
        self.fail(f"only {reached} of {3 * trials} victims reached {fail_point}")

    def last_barrier_trials(self, **options):
        """Killed when all work is done, but before the last barrier, so that the others do need it."""
        self.kill_trials("last barrier", "trial.last_barrier", **options)

    def teardown_trials(self, trials, **options):
        """Killed while leaving: nobody needs the victim any more, so the others leave as if nothing had happened."""
        for seed in range(trials):
            victim = random.Random(f"teardown/{seed}").randrange(SIZE)
            variables = {"LOCKSTEP_FAIL_POINT": f"destroy.begin@{victim}=kill"}
            with self.subTest(seed=seed, victim=victim), Ranks(SIZE, variables=variables, **options) as ranks:
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
                self.assertEqual(ranks.code(victim), -signal.SIGKILL)
                for rank in set(range(SIZE)) - {victim}:
                    self.assertEqual(ranks.code(rank), 0, ranks.everything())


class Killed(PeersTest):
    """kill -9 of one of four ranks."""

    def test_in_init(self):
        self.kill_trials("init", "init.before_meet")
        self.kill_trials("init", "init.after_meet")

    def test_in_construction(self):
        self.kill_trials("construction", "trial.construct", 3)

    def test_in_mid_reduction(self):
        self.kill_trials("slice claimed", "comm.claimed_slice", 8)
        self.kill_trials("collective posted", "comm.posted", 30)
        self.kill_trials("collective finishing", "comm.before_finish", 30)

    @unittest.skipIf(HAS_CONNECTIONS, "these are ways through shared memory")
    def test_on_every_path(self):
        for path, points in PATHS.items():
            for point in points:
                self.kill_trials(f"{path}, {point}", point, 8, trials=max(1, TRIALS // 4), variables={"LOCKSTEP_PATHS": path})

    @unittest.skipUnless(MESSAGE_POINTS, NO_MESSAGE_POINTS)
    def test_taking_a_message(self):
        for point, (below, victims) in MESSAGE_POINTS.items():
            self.kill_trials(point, point, below, victims=victims, large=STEPS)

    def test_between_steps(self):
        self.kill_trials("between steps", "trial.between_steps", 10)

    def test_in_saving(self):
        self.kill_trials("saving", "trial.saving")

    def test_at_a_random_moment(self):
        """By the driver: the victim may be anywhere, at the end as well, where nobody needs it any more."""
        for seed in range(2 * TRIALS):
            chance = random.Random(f"random/{seed}")
            victim = chance.randrange(SIZE)
            with self.subTest(seed=seed, victim=victim), Ranks(SIZE, steps=60, large=1) as ranks:
                time.sleep(chance.uniform(0, 0.08))
                killed = time.monotonic_ns()
                ranks.send(victim, signal.SIGKILL)
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
                for rank in set(range(SIZE)) - {victim}:
                    if ranks.code(rank) == 0 and "phase teardown" in ranks.output(rank):
                        continue  # it was through
                    when = self.check_survivor(ranks, rank, victim, "(is dead|has left)", in_init=True)
                    self.histogram.add("random", when - killed)

    def test_in_teardown(self):
        self.last_barrier_trials()
        self.teardown_trials(TRIALS)

    def test_a_process_that_is_left_would_be_seen(self):
        with Ranks(SIZE) as ranks, subprocess.Popen(["sleep", "60"], cwd=ranks.folder) as stray:
            with self.assertRaisesRegex(AssertionError, f"are left: .*{stray.pid}, 'sleep 60"):
                ranks.finish()
            stray.kill()

    def test_two_at_once(self):
        """Each survivor names one of the two."""
        for seed in range(TRIALS):
            chance = random.Random(f"two/{seed}")
            victims = chance.sample(range(SIZE), 2)
            with self.subTest(seed=seed, victims=victims), Ranks(SIZE, steps=100000, large=1) as ranks:
                for rank in range(SIZE):
                    ranks.wait_for(rank, "phase steps")
                for victim in victims:
                    ranks.send(victim, signal.SIGKILL)
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
                for rank in set(range(SIZE)) - set(victims):
                    peer = (ranks.error(rank) or (0, "", -1, ""))[2]
                    self.assertIn(peer, victims, ranks.everything())
                    self.check_survivor(ranks, rank, peer, "is dead")


@unittest.skipIf(HAS_CONNECTIONS, "connections tell of a death, not pidfds")
class KilledWithoutPidfd(PeersTest):
    """The same where the kernel has no pidfd: peers look at /proc instead."""
    OLD_KERNEL = {"LOCKSTEP_DISABLE": "pidfd"}
    FEWER = max(1, TRIALS // 4)

    def test_in_each_phase(self):
        for phase, point, skip in [("init", "init.before_meet", 1), ("init", "init.after_meet", 1),
                                   ("construction", "trial.construct", 3), ("slice claimed", "comm.claimed_slice", 8),
                                   ("collective posted", "comm.posted", 30), ("between steps", "trial.between_steps", 10),
                                   ("saving", "trial.saving", 1)]:
            self.kill_trials(phase, point, skip, trials=self.FEWER, variables=self.OLD_KERNEL)

    def test_without_sealed_memory_either(self):
        self.kill_trials("all features off", "comm.posted", 30, trials=self.FEWER,
                         variables={"LOCKSTEP_DISABLE": "pidfd,seals"})


@unittest.skipUnless(DDP_PROGRAM, "PEERS_TEST_DDP_PROGRAM is not set: built without libtorch")
class KilledInDdp(PeersTest):
    """A program with libtorch and DistributedDataParallel; its ranks are copies of one that has loaded it."""
    DDP = {"program": DDP_PROGRAM, "steps": 5}

    @classmethod
    def setUpClass(cls):
        cls.DDP["copies"] = Copies(DDP_PROGRAM)
        cls.addClassCleanup(cls.DDP["copies"].close)

    def test_in_init(self):
        self.kill_trials("init", "init.after_meet", **self.DDP)

    def test_in_construction(self):
        self.kill_trials("DDP construction", "ddp.construct", **self.DDP)

    def test_in_mid_reduction(self):
        self.kill_trials("DDP mid-reduction", "ddp.mid_reduction", 5, **self.DDP)

    def test_between_steps(self):
        self.kill_trials("between steps", "trial.between_steps", 4, **self.DDP)

    def test_in_saving(self):
        self.kill_trials("saving", "trial.saving", **self.DDP)

    def test_in_teardown(self):
        self.last_barrier_trials(**self.DDP)
        self.teardown_trials(TRIALS, **self.DDP)


class Ended(PeersTest):
    """Ranks that end otherwise, with reductions pending."""

    def check(self, how, words, code):
        for seed in range(max(1, TRIALS // 4)):
            chance = random.Random(f"{how}/{seed}")
            victim, step = chance.randrange(SIZE), chance.randrange(6)
            with self.subTest(seed=seed), Ranks(SIZE, ending=f"{how}@{victim}+{step}") as ranks:
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
                self.assertEqual(ranks.code(victim), code, ranks.everything())
                for rank in set(range(SIZE)) - {victim}:
                    self.histogram.add(how, self.check_survivor(ranks, rank, victim, words) - ranks.stamp(victim))

    def test_by_segmentation_fault(self):
        self.check("segv", "is dead", -signal.SIGSEGV)

    def test_by_abort(self):
        self.check("abort", "is dead", -signal.SIGABRT)

    def test_by_an_uncaught_exception(self):
        self.check("throw", "is dead", -signal.SIGABRT)

    def test_early_with_code_0(self):
        self.check("immediately", "is dead", 0)

    def test_by_return_exit_and_quick_exit(self):
        for how in ("return", "exit", "quick_exit"):
            self.check(how, "has left the group", 0)

    def test_by_an_error_of_the_library(self):
        """The rank itself reports it and leaves; its peers learn that it left."""
        for seed in range(max(1, TRIALS // 4)):
            victim = seed % SIZE
            point = f"comm.posted@{victim}+{seed + 5}=throw"
            with self.subTest(seed=seed), Ranks(SIZE, variables={"LOCKSTEP_FAIL_POINT": point}) as ranks:
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
                self.assertIn("was asked to throw", ranks.output(victim))
                for rank in set(range(SIZE)) - {victim}:
                    if BACKEND.startswith("hierarchical"):  # perhaps in the part of the call that its node carried out
                        kind, _, message = ranks.error(rank)[1:]
                        self.assertIn(kind, ("PeerLost", "Error"), ranks.everything())
                        self.assertRegex(message, rf"rank {victim} (gave up|\(.*\) has left the group)")
                    else:
                        self.check_survivor(ranks, rank, victim, "has left the group")


class Stopped(PeersTest):
    """SIGSTOP: named in a warning, and the job goes on with the same bits after SIGCONT."""

    def undisturbed(self):
        with Ranks(SIZE) as ranks:
            self.assertEqual(ranks.finish(), [])
            sums = ranks.checksums()
            self.assertEqual(len(sums), SIZE, ranks.everything())
            self.assertEqual(len(set(sums.values())), 1, sums)
            return sums[0]

    def test_a_stopped_rank_is_named_and_resumes_with_the_same_bits(self):
        expected = self.undisturbed()
        points = [("comm.posted", 20), ("comm.claimed_slice", 4), ("comm.before_finish", 20), ("trial.between_steps", 8)]
        for seed in range(max(4, TRIALS // 2)):
            point, below = points[seed % len(points)]
            self.stop_trial(seed, point, below, expected)

    @unittest.skipIf(HAS_CONNECTIONS, "these are ways through shared memory")
    def test_on_every_path(self):
        expected = self.undisturbed()  # every path gives the same bits
        for path, points in PATHS.items():
            for seed, point in enumerate(points):
                self.stop_trial(f"{path}/{seed}", point, 8, expected, {"LOCKSTEP_PATHS": path})

    @unittest.skipUnless(MESSAGE_POINTS, NO_MESSAGE_POINTS)
    def test_taking_a_message(self):
        expected = self.undisturbed()
        for point, (below, victims) in MESSAGE_POINTS.items():
            stopped = [self.stop_trial(f"{point}/{seed}", point, below, expected, victims=victims, large=STEPS)
                       for seed in range(max(1, TRIALS // 4))]
            self.assertIn(True, stopped, f"no victim reached {point}")

    def stop_trial(self, seed, point, below, expected, variables=None, victims=range(SIZE), large=0):
        """One rank is stopped at a fail point until all others have warned of it. False if it never got there."""
        chance = random.Random(f"stop/{seed}")
        victim = victims[chance.randrange(len(victims))]
        variables = {"LOCKSTEP_FAIL_POINT": f"{point}@{victim}+{chance.randrange(below)}=stop", "LOCKSTEP_WARN_AFTER": "1",
                     **(variables or {})}
        with self.subTest(seed=seed, **variables), Ranks(SIZE, variables=variables, large=large) as ranks:
            if stopped := self.is_stopped(ranks, victim):
                self.check_warnings(ranks, victim)
                ranks.send(victim, signal.SIGCONT)
            self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
            self.assertEqual(ranks.checksums(), dict.fromkeys(range(SIZE), expected), ranks.everything())
            return stopped

    @unittest.skipIf(HAS_CONNECTIONS, "nobody writes to others' memory")
    def test_one_that_wakes_after_an_abort_corrupts_nothing(self):
        """The others have timed out and use the same segments for something else when it goes on with what it had in hand."""
        points = [("inline", "comm.posted"), ("one_shot", "comm.posted"), ("one_shot", "comm.before_finish"),
                  ("staged", "comm.claimed_slice"), ("staged", "comm.before_finish"), ("two_shot", "comm.window_in"),
                  ("two_shot", "comm.window_reduced"), ("window", "comm.window_in"), ("window", "comm.window_reduced"),
                  ("window", "comm.window_out"), ("window", "comm.window_taken")]
        for seed, (path, point) in enumerate(points):
            victim = seed % SIZE
            skip = 0 if point == "comm.claimed_slice" else 3 + seed  # the first slice of all is one of shared memory
            variables = {"LOCKSTEP_FAIL_POINT": f"{point}@{victim}+{skip}=stop", "LOCKSTEP_PATHS": path, "LOCKSTEP_TIMEOUT": "2"}
            with self.subTest(**variables), Ranks(SIZE, victim, program=ABORT_PROGRAM, variables=variables) as ranks:
                self.assertTrue(self.is_stopped(ranks, victim), ranks.everything())
                for rank in set(range(SIZE)) - {victim}:
                    ranks.wait_for(rank, "phase after abort")
                ranks.send(victim, signal.SIGCONT)
                ranks.wait_for(victim, "error ")
                (ranks.folder / "woken").touch()
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
                for rank in range(SIZE):
                    self.assertEqual(ranks.code(rank), 3, ranks.everything())
                    self.assertIn("no progress for 2 s", ranks.error(rank)[3], "all of them say the same")

    def is_stopped(self, ranks, victim):
        """Waits until the victim has stopped, or ended because it never came to the fail point."""
        while True:
            with open(f"/proc/{ranks.processes[victim].pid}/stat", encoding="utf-8") as stat:
                text = stat.read()
            state = text[text.rfind(")") + 2]
            if state in "TZ":
                return state == "T"
            time.sleep(0.001)

    def check_warnings(self, ranks, victim):
        """Every other rank warns. Somebody names the victim itself; over tcp, and in a message, a rank may need nothing of it and wait
        for one that does."""
        naming = []
        in_collective = []
        for rank in set(range(SIZE)) - {victim}:
            ranks.wait_for(rank, "lockstep: ")
            waiting = "lockstep: " + OPERATION.format(rank=rank) + r"waiting for [\d.]+ s for .*rank "
            self.assertRegex(ranks.output(rank), waiting + r"\d")
            named = waiting + rf"{victim} \(pid {ranks.processes[victim].pid}{PLACE}\), {STATE}"
            naming.append(re.search(named, ranks.output(rank)) is not None)
            if re.search(r"lockstep: \w+ #", ranks.output(rank)):
                in_collective.append(naming[-1])
        self.assertTrue(any(naming) and (HAS_CONNECTIONS or all(in_collective)), ranks.everything())

    def test_one_that_stays_stopped_is_named_at_the_deadline(self):
        for seed in range(max(1, TRIALS // 4)):
            victim = seed % SIZE
            variables = {"LOCKSTEP_FAIL_POINT": f"comm.posted@{victim}+{5 + seed}=stop", "LOCKSTEP_TIMEOUT": "2"}
            with self.subTest(seed=seed), Ranks(SIZE, variables=variables) as ranks:
                self.assertTrue(self.is_stopped(ranks, victim), ranks.everything())
                said = []
                for rank in set(range(SIZE)) - {victim}:
                    ranks.wait_for(rank, "error ")
                    said.append(ranks.error(rank)[3])
                    self.assertIn("no progress for 2 s", said[-1])
                self.assertTrue(any(re.search(rf"waiting for .*rank {victim} \(pid {ranks.processes[victim].pid}{PLACE}\)", text)
                                    for text in said), ranks.everything())
                ranks.send(victim, signal.SIGKILL)
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")

    def test_killing_a_stopped_rank_is_a_death(self):
        for seed in range(max(1, TRIALS // 4)):
            victim = seed % SIZE
            point = f"comm.posted@{victim}+{10 + seed}=stop"
            with self.subTest(seed=seed), Ranks(SIZE, variables={"LOCKSTEP_FAIL_POINT": point}) as ranks:
                self.assertTrue(self.is_stopped(ranks, victim))
                ranks.send(victim, signal.SIGKILL)
                self.assertEqual(ranks.finish(), [], f"these ranks hang\n{ranks.everything()}")
                for rank in set(range(SIZE)) - {victim}:
                    self.check_survivor(ranks, rank, victim, "is dead")


if __name__ == "__main__":
    unittest.main()
