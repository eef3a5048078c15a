"""Python's fork server, watched from outside: a script has its arguments, folder, environment, output and status, and ends with run_case.

    python3 python_server_test.py RUN_CASE WARM_PYTHON
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

WARM_PYTHON = sys.argv.pop()
RUN_CASE = sys.argv.pop()


def address_of_the_server():
    """As run_case.cpp makes it."""
    file = os.stat(WARM_PYTHON)
    seconds, nanoseconds = divmod(file.st_mtime_ns, 10**9)
    return f"\0lockstep-cases-{os.geteuid()}-{file.st_dev}-{file.st_ino}-{seconds}.{nanoseconds}"


class PythonServer(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def start(self, script, *arguments, **environment):
        (self.folder / "script.py").write_text(script)
        return subprocess.Popen([RUN_CASE, WARM_PYTHON, self.folder / "script.py", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, cwd=self.folder, env=os.environ | environment)

    def run_script(self, *arguments, **environment):
        process = self.start(*arguments, **environment)
        output, errors = process.communicate(timeout=600)
        return process.returncode, output, errors

    def test_a_script_has_what_python_would_give_it(self):
        said = self.run_script("import os, sys\nprint(__name__, sys.argv[1:], os.getcwd(), os.environ['GIVEN'])", "a b", "c", GIVEN="x=y")
        self.assertEqual(said, (0, f"__main__ ['a b', 'c'] {os.path.realpath(self.folder)} x=y\n", ""))

    def test_the_status_is_the_scripts(self):
        self.assertEqual(self.run_script("import sys\nsys.exit(3)")[0], 3)
        self.assertEqual(self.run_script("import sys\nsys.exit('so it is')")[::2], (1, "so it is\n"))
        status, _, errors = self.run_script("import os\nos.kill(os.getpid(), 9)")
        self.assertEqual(status, 128 + 9, errors)
        status, _, errors = self.run_script("def f():\n    raise ValueError('on purpose')\nf()")
        self.assertEqual(status, 1)
        self.assertIn("script.py\", line 2, in f", errors)
        self.assertTrue(errors.endswith("ValueError: on purpose\n"), errors)

    def test_scripts_are_copies_of_one_process_that_has_torch(self):
        parents = {self.run_script("import os, sys\nprint(os.getppid(), 'torch' in sys.modules)")[1] for _ in range(3)}
        self.assertEqual(len(parents), 1, parents)
        self.assertTrue(parents.pop().endswith(" True\n"))
        alone = self.run_script("import sys\nprint('torch' in sys.modules)", LOCKSTEP_FORK_SERVER="0")
        self.assertEqual(alone, (0, "False\n", ""))

    def test_a_script_ends_with_its_run_case(self):
        waiting = self.start("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(6000)")
        pid = int(waiting.stdout.readline())
        waiting.send_signal(signal.SIGKILL)
        waiting.communicate()
        deadline = time.monotonic() + 600
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_the_server_outlives_a_run_case_that_is_gone_before_its_answer(self):
        (self.folder / "script.py").write_text("")
        parent = self.run_script("import os\nprint(os.getppid())")
        self.assertNotEqual(int(parent[1]), os.getpid(), "run_case ran the script itself")
        request = b"\0".join([b"2", WARM_PYTHON.encode(), bytes(self.folder / "script.py"), b""])
        here = os.open(self.folder, os.O_PATH)
        self.addCleanup(os.close, here)
        os.kill(int(parent[1]), signal.SIGSTOP)  # it finds all of them gone
        try:
            for words, descriptors in [(b"", []), (b"2", [0, 1]), (request, [0, 1]), (request, [0, 1, 2, here])]:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
                    gone.connect(address_of_the_server())
                    if words:
                        socket.send_fds(gone, [words], descriptors)
        finally:
            os.kill(int(parent[1]), signal.SIGCONT)
        self.assertEqual(self.run_script("import os\nprint(os.getppid())"), parent)


if __name__ == "__main__":
    unittest.main()
