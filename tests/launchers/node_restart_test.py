#!/usr/bin/env python3
"""lockstep run --nnodes with --max-restarts, and stop signals to one launcher of several: launchers on this machine, as on
several machines."""
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
from launcher_support import BOUND, children_of, read, show_times, state_of, wait_until  # noqa: E402
from restart_test import STEP_TIME, STEPS, seeds, starts_in  # noqa: E402
from slurm import free_ports  # noqa: E402

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
PROGRAM = os.environ["RESUMED_TEST_PROGRAM"]


class Launcher:
    def __init__(self, place, node, nodes, ranks, options, command):
        runtime = place.folder / f"node{node}"  # of its own: ranks of several nodes share no memory
        runtime.mkdir(exist_ok=True, mode=0o700)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD_SIZE", "LOCKSTEP_"))}
        environment |= {"XDG_RUNTIME_DIR": str(runtime), "OMP_NUM_THREADS": "1"}
        words = [LOCKSTEP, "run", "--nnodes", nodes, "--node-rank", node, "--master-addr", "127.0.0.2", "--master-port", place.port,
                 "--nproc-per-node", ranks, "--secret-file", place.secret, "--no-logs", *options, *command]
        self.output = place.folder / f"output{node}"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([str(word) for word in words], env=environment, stdout=output, stderr=output,
                                            cwd=place.folder)

    def said(self):
        return self.output.read_text(errors="backslashreplace")

    def guardian(self):
        return next((pid for pid in children_of(self.process.pid) if read(f"/proc/{pid}/comm") == b"lockstep-guard\n"), None)

    def children_of_guardian(self):
        guardian = self.guardian()
        return children_of(guardian) if guardian else []

    def ranks(self):
        """The children of its guardian but for the one that watches the other nodes."""
        return [pid for pid in self.children_of_guardian() if not read(f"/proc/{pid}/comm").startswith(b"lockstep-")]

    def helper(self, name):
        return next((pid for pid in self.children_of_guardian() if read(f"/proc/{pid}/comm") == name + b"\n"), None)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Place(unittest.TestCase):
    def setUp(self):
        self.begin()

    def begin(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-restart-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.secret = self.folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)
        self.port = free_ports(1)[0]

    def start(self, counts, command, options=(), options_of=None):
        launchers = [Launcher(self, node, len(counts), ranks, (options_of or {}).get(node, options), command)
                     for node, ranks in enumerate(counts)]
        for launcher in launchers:
            self.addCleanup(launcher.end)
        return launchers

    def finish(self, launchers, patience=600):
        end = time.monotonic() + patience
        codes = [launcher.process.wait(timeout=max(0.0, end - time.monotonic())) for launcher in launchers]
        return codes, "\n".join(f"== node {node}\n{launcher.said()}" for node, launcher in enumerate(launchers))


class Restarts(Place):
    def trial(self, rng):
        counts = rng.choice([(1, 1), (2, 1), (1, 2), (1, 1, 1)])
        launchers = self.start(counts, [PROGRAM, self.folder, STEPS, STEP_TIME], ["--max-restarts", "3"])
        victim = rng.randrange(len(counts))
        if rng.random() < 0.5:
            wait_until(lambda: launchers[victim].ranks(), "the ranks were started")
            time.sleep(rng.uniform(0, 0.05))  # the moment is the trial; nothing is waited for
        else:
            wait_until((self.folder / "count").exists, "the first step is done")
            time.sleep(rng.uniform(0, 0.5 * STEPS * STEP_TIME / 1e6))
        pid = rng.choice(launchers[victim].ranks())
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        codes, outputs = self.finish(launchers)
        self.assertEqual(codes, [0] * len(counts), outputs)
        said = re.findall(r"lockstep: restart (\d) of 3: (.*)", outputs)
        self.assertEqual([number for number, _ in said], ["1"] * len(counts), outputs)
        for _, why in said:
            self.assertRegex(why, r"rank \d failed first: killed by SIGKILL")
        done = re.findall(r"rank (\d) of \d counted from \d+ to (\d+) after (\d+) restarts", outputs)
        self.assertEqual(sorted(done), [(str(rank), str(STEPS), "1") for rank in range(sum(counts))], outputs)
        return max(began for _, began in starts_in(self.folder)[1].values()) - killed

    def test_a_rank_killed_on_any_node_restarts_all(self):
        times = []
        for seed in seeds():
            with self.subTest(seed=seed):
                self.begin()
                times.append(self.trial(random.Random(seed)))
                self.assertLess(times[-1], BOUND)
        show_times("several nodes: from the kill until main() runs again on all ranks", times)

    def test_a_node_whose_ranks_have_ended_well_restarts_with_the_others(self):
        script = ("echo start $LOCKSTEP_RESTART_COUNT; [ $RANK$LOCKSTEP_RESTART_COUNT != 10 ] || "
                  "{ until [ -e ended ]; do sleep 0.01; done; sleep 0.3; exit 7; }; [ $RANK = 1 ] || touch ended")
        launchers = self.start((1, 1), ["sh", "-c", script], ["--max-restarts", "1"])
        codes, outputs = self.finish(launchers)
        self.assertEqual(codes, [0, 0], outputs)
        for launcher in launchers:
            self.assertEqual(re.findall(r"(?m)^\[\d\] start (\d)", launcher.said()), ["0", "1"], outputs)

    def test_all_launchers_use_up_the_same_restarts(self):
        launchers = self.start((1, 1), ["sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; exit 9"], ["--max-restarts", "2"])
        codes, outputs = self.finish(launchers)
        self.assertEqual(codes, [9, 9], outputs)
        for launcher in launchers:
            self.assertEqual(re.findall(r"lockstep: restart (\d) of 2: ", launcher.said()), ["1", "2"], outputs)
            self.assertIn("not restarted: all restarts are used up (2 of 2)", launcher.said())
            self.assertIn("node 1: rank 1 failed first: exit code 9", launcher.said())

    def test_a_killed_launcher_fails_the_job_and_is_named(self):
        for killed in (0, 1):
            with self.subTest(killed=killed):
                self.begin()
                launchers = self.start((1, 1), [PROGRAM, self.folder, "100000", STEP_TIME], ["--max-restarts", "3"])
                wait_until((self.folder / "count").exists, "the first step is done")
                launchers[killed].process.kill()
                codes, outputs = self.finish(launchers)
                self.assertNotEqual(codes[1 - killed], 0, outputs)
                self.assertRegex(launchers[1 - killed].said(), rf"the launcher of node {killed}\b.* (was killed|is gone|has ended)")
                self.assertNotIn("restart 1 of 3", outputs)
                self.assertIn("not restarted: the launcher of another machine has ended", outputs)

    def test_a_launcher_that_is_gone_is_known_also_where_a_rank_failed_first(self):
        """The guardian is killed, so it cannot report its own end. The survivor's watcher is stopped, so its rank fails first."""
        for killed in (0, 1):
            with self.subTest(killed=killed):
                self.begin()
                launchers = self.start((1, 1), ["sh", "-c", "touch begun$RANK; until [ -e fail$RANK ]; do sleep 0.01; done; exit 9"],
                                       ["--max-restarts", "3"])
                wait_until(lambda: all((self.folder / f"begun{rank}").exists() for rank in (0, 1)), "the ranks run")
                survivor = launchers[1 - killed]
                watcher = wait_until(lambda: survivor.helper(b"lockstep-watch"), "the watcher has its name")
                os.kill(watcher, signal.SIGSTOP)
                wait_until(lambda: state_of(watcher) == "T", "the watcher is stopped")
                os.kill(launchers[killed].guardian(), signal.SIGKILL)
                launchers[killed].process.wait()
                (self.folder / f"fail{1 - killed}").touch()
                codes, outputs = self.finish(launchers)
                self.assertEqual(codes[1 - killed], 9, outputs)
                self.assertIn("rank %d failed first: exit code 9" % (1 - killed), survivor.said())
                self.assertIn("not restarted: the launcher of another machine has ended", survivor.said())
                self.assertNotIn("lockstep: restart", outputs)

    def test_launchers_with_other_restarts_are_refused(self):
        launchers = self.start((1, 1), ["true"], options_of={0: ["--max-restarts", "2"], 1: ["--max-restarts", "3"]})
        codes, outputs = self.finish(launchers)
        self.assertNotIn(0, codes)
        self.assertIn("node 1 was started with --max-restarts 3, this one with --max-restarts 2", outputs)


class AskedToStop(Place):
    def test_a_signal_to_one_launcher_stops_all_ranks_at_one_step(self):
        for asked in (0, 1):
            for number in (signal.SIGTERM, signal.SIGUSR1):
                with self.subTest(asked=asked, signal=number.name):
                    self.begin()
                    launchers = self.start((1, 2), [PROGRAM, self.folder, "100000", STEP_TIME])
                    wait_until((self.folder / "count").exists, "the first step is done")
                    os.kill(launchers[asked].process.pid, number)
                    codes, outputs = self.finish(launchers)
                    self.assertEqual(codes, [75, 75], outputs)
                    self.assertNotIn("failed", outputs)
                    said, step = (self.folder / "ends").read_text().split()
                    self.assertEqual((int(said), step), (number, (self.folder / "count").read_text()))

    def test_all_launchers_may_get_it(self):
        launchers = self.start((1, 1), [PROGRAM, self.folder, "100000", STEP_TIME])
        wait_until((self.folder / "count").exists, "the first step is done")
        for launcher in launchers:
            launcher.process.terminate()
        codes, outputs = self.finish(launchers)
        self.assertEqual(codes, [75, 75], outputs)


if __name__ == "__main__":
    unittest.main()
