#!/usr/bin/env python3
"""Jobs that are paused, for longer than their timeout, while ranks meet: they go on as if nothing had happened. And the launcher,
stopped by Ctrl-Z and continued by fg.

    LAUNCHER_TEST_COMMAND=build/lockstep MEET_TEST_PROGRAM=build/tests/faults/meet_trial tests/faults/pause_test.py -v"""
import os
import signal
import time
import unittest

from launcher_support import LOCKSTEP, state_of, wait_until
from launcher_terminal import Terminal
from meet_support import ALONE, PAUSE, PROGRAM, MeetingTest, descendants

TIMEOUT = 3  # seconds, of the ranks: shorter than the pause


class Pause(MeetingTest):
    def setUp(self):
        super().setUp()
        self.base["LOCKSTEP_TIMEOUT"] = str(TIMEOUT)

    def test_over_inherited_sockets(self):
        self.start(LOCKSTEP, "run", "--no-logs", "-n", 3, PROGRAM, "compute@2")
        self.pause(3)
        self.finish(3)

    def test_at_a_socket_while_rank_0_is_awaited(self):
        self.by_hand("compute@0")
        self.pause(2)
        self.finish(2)

    def test_at_a_socket_while_another_is_awaited(self):
        self.by_hand("compute@1")
        self.pause(2)
        self.finish(2)

    def test_over_a_file(self):
        self.by_hand("compute@0", f"file://{self.folder}/meet")
        self.pause(2)
        self.finish(2)

    def test_over_a_store_between_launchers(self):
        for late in (0, 1):
            with self.subTest(late=late):
                self.processes.clear()
                for node in range(2):
                    self.start_node(node, 29512 + late, f"compute@{late}")
                self.pause(2)
                self.finish(2)

    def test_launchers_that_wait_for_each_other(self):
        """The launcher of node 1 comes when node 0 has been stopped for longer than it would have waited."""
        self.start_node(0, 29514)
        time.sleep(ALONE)
        pids = descendants(self.processes[0].pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)  # in which it would give up
        self.start_node(1, 29514)
        self.finish(2)

    def test_a_rank_that_alone_is_stopped_is_late(self):
        self.by_hand("compute@1")
        wait_until(lambda: len(self.ranks()) == 2, "ranks run")
        os.kill(self.processes[1].pid, signal.SIGSTOP)
        self.assertEqual(self.processes[0].wait(timeout=600), 3)
        self.assertRegex(self.output(), r"error Timeout .*rank\(s\) 1 did not come before the timeout")

    def test_ctrl_z_and_fg(self):
        with Terminal([], [], program=["bash", "--norc", "--noprofile", "-i"]) as terminal:
            command = f"LOCKSTEP_TIMEOUT={TIMEOUT} {LOCKSTEP} run --no-logs -n 2 {PROGRAM} compute@1"
            terminal.type(f"PS1='$ '; {command}; echo code $?\n".encode())
            terminal.wait_for("here ", 2)
            time.sleep(ALONE)
            terminal.type(b"\x1a")
            terminal.wait_for("Stopped")
            time.sleep(PAUSE)
            terminal.type(b"fg; echo back $((40 + 2))\n")
            terminal.wait_for("done", 2)
            terminal.wait_for("back 42")  # what is typed before that is rank 0's
            self.assertNotIn("error", terminal.shown())
            terminal.type(b"exit\n")
            terminal.wait()

    def test_grace_stands_still_while_the_ranks_are_held(self):
        """Ctrl-Z in the grace period of a job that is to stop: the ranks get the rest of it afterwards."""
        script = "trap 'echo asked; sleep 1; echo finished; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        self.start(LOCKSTEP, "run", "--no-logs", "--grace", 2, "-n", 1, "sh", "-c", script)
        wait_until(lambda: "ready" in self.output(), "rank runs")
        launcher = self.processes[0].pid
        os.kill(launcher, signal.SIGTERM)
        wait_until(lambda: "asked" in self.output(), "the rank was asked to stop")
        os.kill(launcher, signal.SIGTSTP)
        wait_until(lambda: state_of(launcher) == "T", "the launcher is stopped")
        time.sleep(PAUSE)
        os.kill(launcher, signal.SIGCONT)
        self.assertEqual(self.processes[0].wait(timeout=600), 143)
        self.assertIn("finished", self.output())


if __name__ == "__main__":
    unittest.main()
