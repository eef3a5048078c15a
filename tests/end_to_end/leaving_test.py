"""Leaving a job with work pending: by return, exit, quick_exit, _Exit, destroy_process_group and an uncaught exception.

    leaving_test.py build/lockstep build/tests/leaving

What rank 1 had begun is finished by rank 0; rank 0's next call gets an error that names rank 1; nobody hangs or crashes.
"""
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop()
LOCKSTEP = sys.argv.pop()


def run(how):
    done = subprocess.run([LOCKSTEP, "run", "-n", "2", "--no-logs", "--no-prefix", PROGRAM, how],
                          capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


class Leaving(unittest.TestCase):
    def check(self, how, words, status=0):
        code, out, err = run(how)
        self.assertEqual(code, status, out + err)
        self.assertIn("sum 6\n", out)
        self.assertIn("peer 1: barrier #2 on group \"world\", rank 0 of 2: rank 1 (pid ", out)
        self.assertIn(words, out)

    def test_return(self):
        self.check("return", "has left the group")

    def test_destroy(self):
        self.check("destroy", "has left the group")

    def test_exit(self):
        self.check("exit", "has left the group")

    def test_quick_exit(self):
        self.check("quick_exit", "has left the group")

    def test_immediate_exit_is_a_death(self):
        self.check("immediately", "is dead")

    def test_uncaught_exception_is_a_death_and_the_job_fails(self):
        code, out, err = run("throw")
        self.assertEqual(code, 128 + 6, out + err)
        self.assertIn("thrown on purpose", out + err)
        self.assertIn("rank 1", err)


if __name__ == "__main__":
    unittest.main()
