"""spawn(n, fn): the ranks, what comes of their failures, and that nothing stays behind.

    spawn_test.py build/tests/end_to_end/spawn_program
"""
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()
ARGUMENT = "two words, a 'quote' and *"


def start(*arguments, **options):
    return subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            **options)


def run(*arguments, **options):
    program = start(*arguments, **options)
    out, _ = program.communicate(timeout=600)
    return program.returncode, out


def has_ended(pidfd):
    return bool(select.select([pidfd], [], [], 30)[0])


class Spawn(unittest.TestCase):
    def fails(self, what, ranks, *arguments, rank, says):
        code, out = run(what, ranks, *arguments)
        self.assertEqual(code, 5, out)
        self.assertRegex(out, rf"rank {rank} failed, pid is its: 1: spawn: rank {rank} of {ranks} \(pid \d+\) {says}")
        self.assertFalse(out.endswith("main goes on\n"), out)

    def test_ranks_form_a_job_and_arguments_are_replayed(self):
        for ranks in (1, 2, 3, 4):
            code, out = run("sum", ranks, ARGUMENT)
            self.assertEqual(code, 0, out)
            expected = [f"{ARGUMENT}: rank {r} of {ranks}, sum {ranks * (ranks + 1) // 2}" for r in range(ranks)]
            self.assertEqual(sorted(out.splitlines()), sorted([*expected, "main goes on"]))

    def test_an_empty_argument_is_replayed(self):
        code, out = run("sum", 1, "")
        self.assertEqual((code, out), (0, ": rank 0 of 1, sum 1\nmain goes on\n"))

    def test_inside_another_job(self):
        place = {"RANK": "1", "WORLD_SIZE": "2", "LOCKSTEP_JOB_ID": "0", "LOCKSTEP_HUB_FDS": "77"}
        code, out = run("sum", 2, "x", env=dict(os.environ, **place))
        self.assertEqual(code, 0, out)
        self.assertIn("x: rank 0 of 2, sum 3", out)

    def test_two_in_a_row(self):
        code, out = run("two", 2)
        self.assertEqual(code, 0, out)
        lines = out.splitlines()
        self.assertEqual(sorted(lines[:2]), [f"first: rank {r} of 2, sum 3" for r in range(2)])
        self.assertEqual(sorted(lines[2:5]), ["main between", "main between", "main between"], "main is replayed")
        self.assertEqual(sorted(lines[5:7]), [f"second: rank {r} of 2, sum 3" for r in range(2)])
        self.assertEqual(lines[7:], ["main goes on"])

    def test_an_exception_is_thrown_in_the_parent(self):
        self.fails("throw", 3, rank=1, says="threw lockstep::Mismatch: thrown on purpose\n")
        self.fails("throw_number", 3, rank=1, says="threw an exception that is not a std::exception\n")

    def test_a_killed_rank_is_named_not_the_ranks_that_lost_it(self):
        self.fails("kill", 4, rank=2, says="was killed by SIGKILL\n")

    def test_the_rank_that_aborts_is_named_not_the_ranks_that_it_ended(self):
        self.fails("abort", 2, rank=1, says=r"threw .*the trouble of rank 1")

    def test_an_exit_code_is_told(self):
        self.fails("exit_3", 3, rank=1, says="ended with exit code 3\n")

    def test_ranks_that_do_not_end_are_ended(self):
        self.fails("ignore", 2, rank=1, says="threw std::runtime_error: the other does not listen\n")

    def test_main_must_come_to_the_same_call(self):
        self.fails("lost", 2, "returns", rank=r"\d", says=r"ended with exit code 0 before it came to the call at .*end_to_end/spawn.cpp:\d+;")
        self.fails("lost", 2, "other", rank=r"\d", says=r"took another path: its main came to spawn\(2\) at .*end_to_end/spawn.cpp:")
        self.fails("lost", 2, "count", rank=r"\d", says=r"took another path: its main came to spawn\(3\) at .*end_to_end/spawn.cpp:")

    def test_nested_is_refused(self):
        self.fails("nested", 1, rank=0, says="threw lockstep::InvalidArgument: spawn: this process is itself a rank")

    def test_wrong_arguments(self):
        code, out = run("sum", 0)
        self.assertEqual((code, out), (6, "spawn: at least one rank is needed, not 0\n"))

    def test_context(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(folder + "/fifo")
            code, out = run("context", 1, folder + "/fifo")
        self.assertEqual((code, out), (0, "started 1, joined 0\nrank 0 was told\njoined 1\nmain goes on\n"))

    def test_dropping_the_context_ends_the_ranks(self):
        code, out = run("dropped", 2)
        self.assertEqual(code, 0, out)
        for pid in re.findall(r"pid (\d+)", out):
            self.assertFalse(os.path.exists("/proc/" + pid), out)

    def test_nothing_stays_when_the_parent_is_killed(self):
        program = start("hang", 3)
        ranks = [os.pidfd_open(int(program.stdout.readline().split()[1])) for _ in range(3)]
        os.kill(program.pid, signal.SIGKILL)
        for rank in ranks:
            self.assertTrue(has_ended(rank))
            os.close(rank)
        program.communicate(timeout=600)


if __name__ == "__main__":
    unittest.main()
