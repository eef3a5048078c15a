#!/usr/bin/env python3
"""Flight recorders seen from outside: a rank that is stopped, one that was killed, and the files that the others write.

    LAUNCHER_TEST_COMMAND=build/lockstep PEERS_TEST_PROGRAM=build/tests/faults/trial tests/faults/trace_test.py -v

Ranks are those of trial.cpp: three broadcasts, then steps of four all_reduces at once, four one by one, a reduce_scatter and an
all_gather, a send and a recv, with a barrier between in every third from the first on. So a rank that halts between steps S and S + 1
has made 3 + 12 (S + 1) + (S / 3 + 1) calls, of which 2 (S + 1) are messages and have no number."""
import json
import os
import pathlib
import re
import subprocess
import unittest

from launcher_support import Job, LauncherTest, LOCKSTEP, state_of, wait_until

PROGRAM = pathlib.Path(os.environ["PEERS_TEST_PROGRAM"]).resolve()
BACKENDS = os.environ.get("TRACE_TEST_BACKENDS", "shm,tcp").split(",")
STEPS = 6  # skipped before the fail point hits
MESSAGES = 2 * (STEPS + 1)
COLLECTIVES = 3 + 10 * (STEPS + 1) + (STEPS // 3 + 1)
CALLS = COLLECTIVES + MESSAGES


def trace(*arguments):
    return subprocess.run([LOCKSTEP, "trace", *map(str, arguments)], capture_output=True, text=True, check=False)


def trial(backend, action, rank=2, options=(), environment=None):
    """A job of four ranks of which one stops or is killed after a known number of calls."""
    return Job(["-n", "4", "--no-logs", *options], ["sh", "-c", f"truncate -s 4096 stamps; exec {PROGRAM} stamps 1000"],
               fail_point=f"trial.between_steps@{rank}+{STEPS}={action}",
               environment={"LOCKSTEP_BACKEND": backend, **(environment or {})})


def stopped_process(job):
    return next((pid for pid in job.living() if state_of(pid) == "T"), None)


class TraceTest(LauncherTest):
    def check_paragraph(self, text, when=r"[\d.]+ m?s"):
        """The paragraph about rank 2, who stopped before it made collective COLLECTIVES + 1."""
        condition = r"it is stopped \(SIGSTOP\)"
        self.assertRegex(text, rf"[Rr]ank 2 \(pid \d+, trial\) is missing from all_reduce #{COLLECTIVES + 1} \(float32\[100\], avg\) on group "
                               rf"\"world\": {condition}; its last call was all_gather #{COLLECTIVES} \(float32\[75000\]\), "
                               rf"done {when} before; ranks 0, 1 and 3 have waited in #{COLLECTIVES + 1} for {when}\.")

    def test_a_stopped_rank_is_named_from_outside(self):
        for backend in BACKENDS:
            with self.subTest(backend=backend), trial(backend, "stop") as job:
                stopped = wait_until(lambda: stopped_process(job), "a rank stops")
                wait_until(lambda: "ranks 0, 1 and 3 have waited" in trace("analyze", "--pid", job.pid).stdout,
                           "the others wait")
                by_launcher = trace("analyze", "--pid", job.pid)
                self.check_paragraph(by_launcher.stdout)
                self.assertEqual(len(by_launcher.stdout.splitlines()), 1)
                self.check_paragraph(trace("analyze", "--pid", stopped).stdout)

                file = job.folder / "dump.json"
                self.assertEqual(trace("dump", "--pid", stopped, "-o", file).returncode, 0)
                self.check_paragraph(trace("analyze", file).stdout)
                ranks = json.loads(file.read_text())["ranks"]
                self.assertEqual([rank["rank"] for rank in ranks], [0, 1, 2, 3])
                self.assertEqual(ranks[2]["pid"], stopped)
                self.assertEqual(ranks[2]["process"], "T")
                world = ranks[2]["groups"][0]
                self.assertEqual((world["name"], world["backend"], world["calls"]), ("world", backend, CALLS))
                self.assertEqual([record["verb"] for record in world["records"][:8]],
                                 3 * ["broadcast"] + 4 * ["all_reduce"] + ["barrier"])
                self.assertEqual([record["count"] for record in world["records"][:7]],
                                 [10, 5000, 300000, 100, 40000, 300000, 7])
                self.assertEqual([record["bytes"] for record in world["records"][:2]], [40, 20000])
                self.assertEqual({record["state"] for record in world["records"]}, {"done"})
                # By where it stands in the whole group, not by who was asked.
                self.assertEqual(json.loads(trace("dump", "--pid", job.pid).stdout)["ranks"][2]["pid"], stopped)

    def test_a_rank_that_waits_in_init_is_said_to(self):
        command = ["sh", "-c", f"[ $RANK = 1 ] && exec {{sleep}}; truncate -s 4096 stamps; exec {PROGRAM} stamps 1000"]
        for backend in BACKENDS:
            with self.subTest(backend=backend), Job(["-n", "2", "--no-logs"], command, environment={"LOCKSTEP_BACKEND": backend}) as job:
                said = wait_until(lambda: trace("analyze", "--pid", job.pid).stdout, "rank 0 is in init_process_group")
                self.assertRegex(said, r"^Rank 0 \(pid \d+, trial\) has waited in init_process_group for ([\d.]+ m?s|less than 1 ms), where all 2 ranks of the "
                                       r"job meet\. No records of rank 1 of 2 were found: not joined, ended, or on another machine\.\n$")

    def test_survivors_write_what_all_did_when_one_is_killed(self):
        for backend in BACKENDS:
            with self.subTest(backend=backend), trial(backend, "kill", options=["--trace-dir", "traces"]) as job:
                self.assertNotEqual(job.wait(), 0)
                files = sorted((job.folder / "traces").iterdir())
                self.assertEqual([file.name.split("-")[0] for file in files], ["rank0", "rank1", "rank3"], job.out())
                for file in files:
                    self.assertIn(f"lockstep trace analyze {file}", job.out())
                    # How far the others had come when it died differs; the dead rank's own records do not.
                    ranks = {rank["rank"]: rank for rank in json.loads(file.read_text())["ranks"]}
                    self.assertEqual(sorted(ranks), [0, 1, 2, 3])
                    dead = ranks[2]["groups"][0]
                    self.assertEqual((dead["name"], dead["calls"], len(dead["records"])), ("world", CALLS, CALLS))
                    self.assertEqual({record["state"] for record in dead["records"]}, {"done"})
                    self.assertIn("rank 2 (pid", ranks[int(file.name[4])]["groups"][0]["failure"])
                for what in [*files, job.folder / "traces"]:
                    self.assertRegex(trace("analyze", what).stdout,
                                     rf'^Group "world" has failed: rank 2 \(pid {ranks[2]["pid"]}.* is dead while rank \d was in ')

    def test_nothing_is_written_unless_asked_for(self):
        with trial(BACKENDS[0], "kill") as job:
            self.assertNotEqual(job.wait(), 0)
            self.assertEqual({file.name for file in job.folder.iterdir()} - {"out", "err", "stamps", "model"}, set())
            self.assertNotIn("trace", job.out())

    def test_a_folder_that_cannot_be_written_hides_no_failure(self):
        for backend in BACKENDS:
            with self.subTest(backend=backend), trial(backend, "kill", options=["--trace-dir", "/proc/nothing"]) as job:
                self.assertNotEqual(job.wait(), 0)
                errors = re.findall(r"error \d+ PeerLost 2 .*; no trace could be written: .*", job.out())
                self.assertEqual(len(errors), 3, job.out())

    def test_questions_without_an_answer(self):
        self.assertEqual(trace().returncode, 64)
        nobody = trace("analyze", "--pid", os.getpid())
        self.assertEqual((nobody.returncode, nobody.stdout), (1, ""))
        self.assertIn(f"no records of process {os.getpid()}", nobody.stderr)
        none = trace("analyze", __file__)
        self.assertEqual(none.returncode, 1)
        self.assertIn("trace_test.py\" is not a trace file", none.stderr)
        self.assertEqual(trace("analyze", "--pid", 1, __file__).returncode, 64)


if __name__ == "__main__":
    unittest.main()
