"""Ctrl-C, Ctrl-Z and other signals to a job, and the keyboard of a terminal, which belongs to rank 0."""
import os
import re
import signal
import time
import unittest

from launcher_support import (BOUND, LOCKSTEP, PATIENCE, SHAPES, Job, LauncherTest, children_of, seeded, show_times,
                              state_of, wait_until)
from launcher_terminal import Terminal

ANSWER = "trap 'echo rank $RANK got {name}; exit 0' {name}; echo ready; while :; do sleep 0.02; done"


class Signals(LauncherTest):
    def test_are_passed_on_and_give_the_exit_code(self):
        for name in ("INT", "TERM", "HUP", "QUIT"):
            number = getattr(signal, f"SIG{name}")
            with self.subTest(signal=name), Job(["-n", "2"], ["sh", "-c", ANSWER.format(name=name)]) as job:
                wait_until(lambda: job.out().count("ready") == 2, "ranks run")
                os.kill(job.pid, number)
                self.assertEqual(job.wait(), 128 + number)
                self.assertEqual(job.living(), [])
                self.assertIn(f"[0] rank 0 got {name}\n", job.out())
                self.assertIn(f"[1] rank 1 got {name}\n", job.out())
                self.assertIn(f"stopped by SIG{name}", job.err())

    def test_of_users_are_passed_on_and_stop_nothing(self):
        script = "trap 'echo rank $RANK got it; exit 0' USR1; echo ready; while :; do sleep 0.02; done"
        with Job(["-n", "2"], ["sh", "-c", script]) as job:
            wait_until(lambda: job.out().count("ready") == 2, "ranks run")
            os.kill(job.pid, signal.SIGUSR1)
            self.assertEqual(job.wait(), 0)
            self.assertEqual(job.out().count("got it"), 2)

    def test_that_ranks_ignore_are_followed_by_sigkill_after_the_grace(self):
        times = []
        for seed, rng in seeded(5):
            with self.subTest(seed=seed), Job(["-n", "3", "--grace", "0.3"], ["sh", "-c", SHAPES["deaf"]]) as job:
                wait_until(lambda: len(job.sleepers()) == 3, "ranks run")
                start = time.monotonic()
                os.kill(job.pid, rng.choice([signal.SIGINT, signal.SIGTERM]))
                self.assertIn(job.wait(), (130, 143))
                times.append(time.monotonic() - start)
                self.assertEqual(job.living(), [])
                self.assertGreater(times[-1], 0.3)
                self.assertLess(times[-1], BOUND)
        show_times("deaf ranks, grace of 300 ms, until the launcher has returned", times)

    def test_that_come_twice_end_everything_at_once(self):
        times = []
        for seed, rng in seeded(20):
            ranks = rng.randint(1, 4)
            with self.subTest(seed=seed, ranks=ranks):
                with Job(["-n", str(ranks), "--grace", "600"], ["sh", "-c", SHAPES["deaf"]]) as job:
                    wait_until(lambda: len(job.sleepers()) == ranks, "ranks run")
                    os.kill(job.pid, signal.SIGINT)
                    sleeper = job.sleepers()
                    os.kill(job.pid, signal.SIGTERM)
                    start = time.monotonic()
                    self.assertEqual(job.wait(), 130, "the first signal decides")
                    times.append(time.monotonic() - start)
                    self.assertEqual(job.living(), [], sleeper)
                    self.assertLess(times[-1], BOUND)
        show_times("second signal, until the launcher has returned", times)

    def test_that_were_ignored_from_the_start_stay_ignored(self):
        ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with Job(["-n", "1"], ["sh", "-c", "echo ready; sleep 0.3; echo done"], preexec_fn=ignore) as job:
            wait_until(lambda: "ready" in job.out(), "rank runs")
            os.kill(job.pid, signal.SIGHUP)
            self.assertEqual(job.wait(), 0)
            self.assertIn("done", job.out())

    def test_masks_and_actions_of_the_ranks_are_the_users(self):
        with Job(["-n", "1", "--no-prefix"], ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]) as job:
            job.wait()
            seen = dict(line.split(":") for line in job.out().splitlines())
        self.assertEqual(int(seen["SigBlk"], 16), 0)
        self.assertEqual(int(seen["SigIgn"], 16) & ~ignored_here(), 0)

    def test_to_a_stopped_rank_work(self):
        with Job(["-n", "2"], ["sh", "-c", SHAPES["background"]]) as job:
            wait_until(lambda: len(job.sleepers()) == 2, "ranks run")
            rank = children_of(job.guardian())[0]
            os.kill(rank, signal.SIGSTOP)
            wait_until(lambda: state_of(rank) == "T", "rank stopped")
            os.kill(job.pid, signal.SIGTERM)
            self.assertEqual(job.wait(), 143)
            self.assertEqual(job.living(), [])


def ignored_here():
    with open("/proc/self/status", encoding="ascii") as status:
        return int(re.search(r"^SigIgn:\s*(\w+)", status.read(), re.MULTILINE).group(1), 16)


class TerminalKeys(LauncherTest):
    def test_ctrl_c_stops_every_rank(self):
        with Terminal(["-n", "2"], ["sh", "-c", ANSWER.format(name="INT")]) as terminal:
            terminal.wait_for("] ready", 2)
            terminal.type(b"\x03")
            self.assertEqual(terminal.wait(), 130)
            for rank in (0, 1):
                self.assertEqual(terminal.text.count(f"rank {rank} got INT"), 1)

    def test_ctrl_c_right_behind_typed_lines(self):
        """It throws away what the launcher has just been told it can read: that must not make it wait for more."""
        for _ in range(120):  # up to one in five went wrong when it did
            with Terminal(["-n", "1"], ["sh", "-c", "echo ready; exec {sleep}"]) as terminal:
                terminal.wait_for("] ready")
                terminal.type(b"typed\n" * 3)
                terminal.type(b"more\n\x03")
                self.assertEqual(terminal.wait(), 130)

    def test_a_second_ctrl_c_ends_at_once(self):
        with Terminal(["-n", "2", "--grace", "600"], ["sh", "-c", "trap '' INT; echo ready; while :; do sleep 0.1; done"]) as terminal:
            terminal.wait_for("] ready", 2)
            terminal.type(b"\x03")
            terminal.wait_for("stopping: every rank got SIGINT")  # sooner, two Ctrl-C may count as one
            terminal.type(b"\x03")
            self.assertEqual(terminal.wait(), 130)

    def test_what_is_typed_goes_to_rank_0(self):
        script = "if read line; then echo rank $RANK read $line; else echo rank $RANK has no input; fi"
        with Terminal(["-n", "2"], ["sh", "-c", script]) as terminal:
            terminal.wait_for("[1] rank 1 has no input")
            terminal.type(b"hello\n")
            self.assertEqual(terminal.wait(), 0)
            self.assertIn("[0] rank 0 read hello\r\n", terminal.text)

    def test_ctrl_d_ends_rank_0s_input(self):
        with Terminal(["-n", "1"], ["sh", "-c", "echo ready; cat; echo end of input"]) as terminal:
            terminal.wait_for("] ready")
            terminal.type(b"typed\n")
            terminal.wait_for("[0] typed")
            terminal.type(b"\x04")
            self.assertEqual(terminal.wait(), 0)
            self.assertIn("[0] end of input", terminal.text)

    def test_ctrl_z_stops_the_ranks_and_fg_continues_them(self):
        shell = ["bash", "--norc", "--noprofile", "-i"]
        with Terminal([], [], program=shell) as terminal:
            mark = f"1000.{os.getpid()}"
            terminal.type(f"PS1='$ '; {LOCKSTEP} run --no-logs -n 2 sh -c 'echo is ready; sleep {mark}'\n".encode())
            terminal.wait_for("] is ready", 2)
            sleepers = wait_until(lambda: (found := pids_of(["sleep", mark])) and len(found) == 2 and found, "sleepers")
            terminal.type(b"\x1a")
            wait_until(lambda: [state_of(pid) for pid in sleepers] == ["T", "T"], "ranks stopped")
            terminal.wait_for("Stopped")
            terminal.type(b"fg\n")
            wait_until(lambda: [state_of(pid) for pid in sleepers] == ["S", "S"], "ranks go on")
            terminal.type(b"\x03")
            wait_until(lambda: terminal.shown() and not pids_of(["sleep", mark]), "ranks ended by Ctrl-C")
            wait_until(lambda: "$ " in terminal.shown().partition("stopped by SIGINT")[2], "the shell's prompt")
            terminal.type(b"echo code $?\n")
            terminal.wait_for("code 130")
            terminal.type(b"exit\n")
            terminal.wait()

    def test_a_terminal_that_goes_away_ends_the_job(self):
        mark = f"1000.{os.getpid()}"
        with Terminal(["-n", "2"], ["sh", "-c", f"echo ready; sleep {mark}"]) as terminal:
            terminal.wait_for("] ready", 2)
            master, terminal.master = terminal.master, os.open("/dev/null", os.O_RDWR)
            os.close(master)
            self.assertEqual(terminal.process.wait(PATIENCE), 128 + signal.SIGHUP)
            self.assertEqual(pids_of(["sleep", mark]), [])


def pids_of(arguments):
    wanted = "\0".join(arguments).encode() + b"\0"
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if entry.isdigit() and file.read() == wanted:
                    found.append(int(entry))
        except OSError:
            pass
    return found


if __name__ == "__main__":
    unittest.main()
