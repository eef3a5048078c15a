#!/usr/bin/env python3
"""Ranks that wait for each other in vain before they are a group: each says soon whom it waits for and how it was started, again when
it gives up; and a rank whose program has died is lost though its shell lives on.

    LAUNCHER_TEST_COMMAND=build/lockstep MEET_TEST_PROGRAM=build/tests/faults/meet_trial tests/faults/meet_test.py -v"""
import json
import os
import socket
import subprocess
import time
import unittest

from launcher_support import LOCKSTEP, wait_until
from meet_support import PROGRAM, MeetingTest

WARN_AFTER = 1  # second


class Meet(MeetingTest):
    def setUp(self):
        super().setUp()
        self.base |= {"LOCKSTEP_WARN_AFTER": str(WARN_AFTER), "LOCKSTEP_TIMEOUT": "4"}

    def wait(self, which, code):
        self.assertEqual(self.processes[which].wait(timeout=600), code, self.output())

    def check(self, *patterns):
        for pattern in patterns:
            self.assertRegex(self.output(), pattern)


class Missing(Meet):
    def test_at_a_socket_rank_0_names_who_is_missing(self):
        for rank in (0, 2):
            self.start(PROGRAM, RANK=str(rank), WORLD_SIZE="4", MASTER_PORT="29521")
        self.wait(0, 3)
        how = r"this rank was started by hand \(RANK=0, WORLD_SIZE=4, MASTER_PORT=29521\), and meets the others at a Unix socket"
        self.check(r"lockstep: init_process_group, rank 0 of 4: waiting for 1 s for rank\(s\) 1, 3 to come to the Unix socket /\S+; " + how,
                   r"lockstep: init_process_group, rank 0 of 4: waiting for 2 s for rank\(s\) 1, 3",
                   r"error Timeout .*rank\(s\) 1, 3 did not come before the timeout.*; " + how)

    def test_at_a_socket_others_name_rank_0(self):
        self.start(PROGRAM, RANK="1", WORLD_SIZE="2", MASTER_PORT="29522")
        self.wait(0, 3)
        self.check(r"rank 1 of 2: waiting for 1 s for rank 0 to open the Unix socket /\S+; this rank was started by hand",
                   r"error Timeout .*rank\(s\) 0 did not come before the timeout.*MASTER_PORT=29522")

    def test_two_ways_to_start(self):
        """The two ranks of one job of two look for each other at different places, and both say where."""
        self.start(PROGRAM, RANK="0", WORLD_SIZE="2", MASTER_PORT="29523")
        self.start(PROGRAM, RANK="1", WORLD_SIZE="2", MASTER_PORT="29523", TORCHELASTIC_RUN_ID="mine")
        self.wait(0, 3)
        self.wait(1, 3)
        self.check(r"rank 0 of 2: waiting for 1 s for rank\(s\) 1 .*started by hand",
                   r"rank 1 of 2: waiting for 1 s for rank 0 .*started by torchrun \(TORCHELASTIC_RUN_ID=mine,")

    def test_over_inherited_sockets(self):
        self.start(LOCKSTEP, "run", "--no-logs", "-n", 3, PROGRAM, "sleep@1")
        self.wait(0, 3)
        self.check(r"rank 0 of 3: waiting for 1 s for rank\(s\) 1; this rank was started by `lockstep run` \(LOCKSTEP_JOB_ID=",
                   r"rank 2 of 3: waiting for 1 s for rank 0, or for the ranks that it waits for; ",
                   r"error \w+ .*rank 1 did not come before the timeout")

    def test_over_a_store(self):
        for node in range(2):
            self.start_node(node, 29524, "sleep@1")
        self.wait(0, 3)
        self.check(r"rank 0 of 2: waiting for \d s for rank\(s\) 1; this rank was started by `lockstep run` \(.*a TCP store at 127.0.0.2:",
                   r"error Timeout .*rank\(s\) 1 did not come before the timeout")

    def test_at_a_loopback_address(self):
        self.start(PROGRAM, "", "tcp://127.0.0.1:29525?rank=1&world_size=2", LOCKSTEP_SECRET_FILE=str(self.secret))
        self.wait(0, 3)
        self.check(r"rank 1 of 2: waiting for 1 s for rank 0 .*started with a rank and a world size from the program")

    @unittest.skipUnless(os.geteuid() == 0, "only root may give a process a network, or a name server, of its own")
    def test_a_name_server_that_never_answers(self):
        """It takes questions and says nothing. The system would ask it for 150 s; the rank gives up at its own deadline."""
        configuration = self.folder / "resolv.conf"
        configuration.write_text("nameserver 127.0.0.9\noptions timeout:30 attempts:5\n")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind(("127.0.0.9", 53))
            begin = time.monotonic()
            self.start("unshare", "-m", "sh", "-c", f"mount --bind {configuration} /etc/resolv.conf && exec {PROGRAM}", RANK="1",
                       WORLD_SIZE="2", MASTER_ADDR="rank-0.example", MASTER_PORT="29528", LOCKSTEP_SECRET_FILE=str(self.secret))
            self.wait(0, 3)
            self.assertLess(time.monotonic() - begin, 25)
            server.settimeout(1)
            self.assertIn(b"rank-0", server.recv(512))
        self.check(r'error Timeout .*no name server answered for "rank-0.example" before the deadline')

    @unittest.skipUnless(os.geteuid() == 0, "only root may give a process a network, or a name server, of its own")
    def test_two_jobs_of_one_name_are_told_apart(self):
        """Both were started by hand with one MASTER_PORT, each in a network of its own."""
        for job in range(2):
            (self.folder / str(job)).mkdir(mode=0o700)
            self.start("unshare", "-n", PROGRAM, RANK="0", WORLD_SIZE="2", MASTER_PORT="29529", XDG_RUNTIME_DIR=str(self.folder / str(job)))
        wait_until(lambda: len(self.ranks()) == 2, "both run")
        for process in self.processes:
            network = os.stat(f"/proc/{process.pid}/ns/net").st_ino
            alone = [(process.pid, f"port 29529 in network namespace {network}")]
            wait_until(lambda pid=process.pid, traces=alone: self.traces(pid) == traces, f"it is shown alone: {alone}")

    def traces(self, pid):
        """(pid, job) of each rank that `lockstep trace` finds."""
        dump = subprocess.run([LOCKSTEP, "trace", "dump", "--pid", str(pid)], capture_output=True, text=True, check=False, env=self.base)
        return [(rank["pid"], rank["job"]) for rank in json.loads(dump.stdout)["ranks"]] if dump.returncode == 0 else []

    def test_launchers(self):
        self.start_node(0, 29526)
        self.assertNotEqual(self.processes[0].wait(timeout=600), 0)
        self.check(r"lockstep run, node 0 of 2: waiting for 1 s for the launcher of node 1; the nodes meet at 127.0.0.2:29526")

    def test_a_large_job_is_a_short_line(self):
        self.start(PROGRAM, RANK="0", WORLD_SIZE="300", MASTER_PORT="29527")
        self.wait(0, 3)
        self.check(r"waiting for 1 s for rank\(s\) 1-299 to come")
        self.assertLess(max(map(len, self.output().splitlines())), 700)


class Wrapped(Meet):
    """lockstep run -n 2 sh -c './program; sleep 1000'"""

    def setUp(self):
        super().setUp()
        self.base["LOCKSTEP_TIMEOUT"] = "1000"  # nobody waits so long

    def check_lost(self, rank, how):
        self.wait(0, 3)
        self.check(rf"error PeerLost .*rank {rank} ended before all ranks had met \({how}; the process that started it, such as a shell, lives on\)")

    def test_killed(self):
        self.start(LOCKSTEP, "run", "--no-logs", "-n", 3, "sh", "-c", f"{PROGRAM} killed@1; [ $RANK = 1 ] && sleep 1000; exit 3")
        self.check_lost(1, "its program died")

    def test_ended_with_a_code(self):
        self.start(LOCKSTEP, "run", "--no-logs", "-n", 3, "sh", "-c", f"{PROGRAM} exit3@2; [ $RANK = 2 ] && sleep 1000; exit 3")
        self.check_lost(2, "its program ended with exit code 3")

    def test_rank_0(self):
        self.start(LOCKSTEP, "run", "--no-logs", "-n", 2, "sh", "-c", f"{PROGRAM} killed@0; [ $RANK = 0 ] && sleep 1000; exit 3")
        self.check_lost(0, "its program died")

    def test_one_that_is_started_again_is_waited_for(self):
        script = f"[ $RANK = 1 ] && {{ {PROGRAM} killed@1; {PROGRAM} exit3@1; {PROGRAM} exit0@1; sleep 1; }}; exec {PROGRAM}"
        self.start(LOCKSTEP, "run", "--no-logs", "-n", 2, "sh", "-c", script)
        self.finish(2)

    def test_one_that_ended_well_is_not_lost(self):
        """Its shell may go on to a program that joins; here it does, later than a program that died would be waited for."""
        script = f"[ $RANK = 1 ] && {{ {PROGRAM} exit0@1; sleep 6; }}; exec {PROGRAM}"
        self.start(LOCKSTEP, "run", "--no-logs", "-n", 2, "sh", "-c", script)
        self.finish(2)


if __name__ == "__main__":
    unittest.main()
