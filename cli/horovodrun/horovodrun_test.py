#!/usr/bin/env python3
"""`lockstep horovodrun` from outside: ranks, hosts, what options become, refusals in one line.

    LAUNCHER_TEST_COMMAND=build/lockstep cli/horovodrun/horovodrun_test.py -v"""
import os
import pathlib
import subprocess
import tempfile
import unittest

LOCKSTEP = str(pathlib.Path(os.environ["LAUNCHER_TEST_COMMAND"]).resolve())
SHOW = ["sh", "-c", 'echo "$RANK of $WORLD_SIZE: $HOROVOD_FUSION_THRESHOLD $HOROVOD_CYCLE_TIME $*"', "show"]


class Horovodrun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "hostfile").write_text("w1 slots=2  # the first\nw2 slots=3\n")

    def run_command(self, *arguments):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("HOROVOD_") and name != "LOCKSTEP_SECRET_FILE"}
        return subprocess.run([LOCKSTEP, "horovodrun", *map(str, arguments)], cwd=self.folder, env=environment, capture_output=True,
                              text=True, check=False, timeout=600)

    def lines(self, *arguments):
        result = self.run_command(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return sorted(result.stdout.splitlines())

    def complaint(self, *arguments):
        result = self.run_command(*arguments)
        self.assertEqual((result.returncode, result.stdout), (64, ""))
        return result.stderr

    def test_ranks_of_this_machine(self):
        self.assertEqual(self.lines("-np", 2, *SHOW, "-np", "7"), [f"[{rank}] {rank} of 2:   -np 7" for rank in (0, 1)])
        self.assertEqual(self.lines("-H", "localhost:2", "--verbose", *SHOW), [f"[{rank}] {rank} of 2:   " for rank in (0, 1)])

    def test_options_become_variables(self):
        self.assertEqual(self.lines("-np", 1, "--fusion-threshold-mb", 32, "--cycle-time-ms=3.5", *SHOW), ["[0] 0 of 1: 33554432 3.5 "])

    def test_the_exit_code_is_the_failing_rank_s(self):
        self.assertEqual(self.run_command("-np", 2, "--output-filename", "logs", "sh", "-c", "exit 7").returncode, 7)
        self.assertTrue(list((self.folder / "logs").iterdir()))

    def test_the_reset_limit_starts_all_ranks_anew(self):
        self.assertEqual(self.run_command("-np", 2, "--reset-limit", 1, "sh", "-c", "[ $LOCKSTEP_RESTART_COUNT = 1 ]").returncode, 0)

    def test_several_hosts_are_started_one_by_one(self):
        commands = ["  w1: lockstep run --nproc-per-node 2 --nnodes 2 --node-rank 0 --master-addr w1 --master-port 29500 ./train",
                    "  w2: lockstep run --nproc-per-node 2 --nnodes 2 --node-rank 1 --master-addr w1 --master-port 29500 ./train"]
        self.assertEqual(self.lines("-np", 4, "--hostfile", "hostfile", "--dry-run", "./train"), commands)
        self.assertEqual(self.lines("-np", 4, "-H", "w1:2,w2:2", "--dry-run", "./train"), commands)
        said = self.complaint("-np", 4, "-H", "w1:2,w2:2", "./train")
        self.assertIn("there are 2 hosts, and nothing is started on other machines", said)
        self.assertEqual(said.splitlines()[1:3], commands)
        self.assertIn("a secret that only they know", self.complaint("-np", 4, "-H", "w1:2,w2:2", "--node-rank", 1, "./train"))

    def test_mistakes_are_one_line(self):
        for arguments, says in [
                (["-np", 2, "--min-np", 1, "./x"], "does without --min-np: ranks cannot come and go"),
                (["-np", 2, "--gloo", "./x"], "does without --gloo: the transport is chosen by LOCKSTEP_BACKEND"),
                (["--check-build"], "does without --check-build: use lockstep info"),
                (["--num-procs", 2, "./x"], "has no option --num-procs; did you mean --num-proc?"),
                (["-np", 0, "./x"], "-np must be a number from 1"),
                (["-np", 2, "--reset-limit", "x", "./x"], "--reset-limit must be a number from 0"),
                (["-np", 2], "a program to run is needed"),
                (["./x"], "how many ranks?"),
                (["-np", 5, "-H", "w1:2,w2:2", "./x"], "-np is 5, but the hosts have 4 slots"),
                (["-np", 2, "-H", "w1", "./x"], "-H: \"w1\" is not HOST:SLOTS"),
                (["-H", "w1:2", "--hostfile", "hostfile", "./x"], "one too many")]:
            with self.subTest(says):
                said = self.complaint(*arguments)
                self.assertIn(says, said)
                self.assertEqual(said.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
