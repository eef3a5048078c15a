#!/usr/bin/env python3
"""Jobs in containers: another namespace's /proc, none at all, and calls of the kernel that a filter forbids. Needs unshare(1) and root
or user namespaces; without, only the filters are tested, and that is said."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from launcher_support import children_of, state_of, wait_until

LOCKSTEP = pathlib.Path(os.environ["LAUNCHER_TEST_COMMAND"]).resolve()
PROGRAM = pathlib.Path(os.environ["BLAME_TEST_PROGRAM"]).resolve()
FORBID = pathlib.Path(os.environ["FORBID_TEST_PROGRAM"]).resolve()
VIEWS = {"the host's /proc": "", "no /proc": "mount -t tmpfs none /proc && "}
# A process that has left its rank's session and process group, and shows itself should it outlive the job.
STRAY = "setsid sh -c 'sleep 6; touch survived' >/dev/null 2>&1 &"
UNSHARE = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "-p", "-f"]
CAN_UNSHARE = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


class ContainersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-containers-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_words(self, *words, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        return subprocess.run([str(word) for word in words], cwd=self.folder, env={**environment, **variables}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=600, check=False)

    def check_sums(self, result, backend):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(line.split("] ")[-1] for line in result.stdout.splitlines()),
                         [f"rank {rank} of 2 over {backend}: sum 3" for rank in range(2)])


@unittest.skipIf(not CAN_UNSHARE, "unshare(1) may make no namespaces here")
class Namespaces(ContainersTest):
    def contained(self, view, *words, after=""):
        """In a process namespace of its own; `after`: a line of shell behind the job."""
        script = f'{VIEWS[view]}"$@"; code=$?; {after} exit $code'
        return self.run_words(*UNSHARE, "sh", "-c", script, "sh", *words)

    def test_ranks_share_memory(self):
        for view in VIEWS:
            with self.subTest(view=view):
                self.check_sums(self.contained(view, LOCKSTEP, "run", "-n", "2", PROGRAM, "sum"), "shm")

    def test_what_a_rank_leaves_behind_is_killed(self):
        for view in VIEWS:
            with self.subTest(view=view):
                result = self.contained(view, LOCKSTEP, "run", "-n", "2", "sh", "-c", f"{STRAY} exit 0", after="sleep 8;")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertFalse((self.folder / "survived").exists(), result.stderr)

    def test_nothing_is_said_to_be_left_behind_where_nothing_was(self):
        for view in VIEWS:
            with self.subTest(view=view):
                result = self.contained(view, LOCKSTEP, "run", "-n", "2", "true")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn("killed", result.stderr)

    def test_the_first_failure_is_named_and_ends_the_others(self):
        for view in VIEWS:
            with self.subTest(view=view):
                result = self.contained(view, LOCKSTEP, "run", "-n", "3", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 1000")
                self.assertEqual(result.returncode, 7, result.stderr)
                self.assertIn("rank 1 of 3 failed first: exit code 7", result.stderr)

    def test_a_stopped_rank_is_said_to_be_stopped_where_proc_shows_it(self):
        result = self.contained("the host's /proc", "env", "LOCKSTEP_TIMEOUT=1", LOCKSTEP, "run", "-n", "2", PROGRAM, "stop@1")
        self.assertIn("rank 1 of 2 failed first: it was stopped (SIGSTOP)", result.stderr)

    def test_the_launcher_as_process_1_stops_its_ranks_and_lets_them_go_on(self):
        # Ctrl-Z. The kernel does not stop the first process of a namespace. The ranks start no program while they wait: a shell that is
        # stopped within vfork shows D, not T, until its stopped child goes on.
        words = [*UNSHARE, LOCKSTEP, "run", "-n", "2", "--no-logs", "sh", "-c", "echo started; until [ -e go ]; do :; done"]
        with subprocess.Popen([str(word) for word in words], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as job:
            try:
                for _ in range(2):
                    self.assertIn("started", job.stdout.readline())
                front = children_of(job.pid)[0]
                guardian = children_of(front)[0]
                states = lambda: [state_of(rank) for rank in children_of(guardian)]
                os.kill(front, signal.SIGTSTP)
                wait_until(lambda: states() == ["T", "T"], "both ranks are stopped")
                os.kill(front, signal.SIGCONT)
                wait_until(lambda: "T" not in states(), "both ranks go on")
            except BaseException:
                for first_process in children_of(job.pid):
                    os.kill(first_process, signal.SIGKILL)  # and with it all of its namespace, or this block would wait for ever
                raise
            (self.folder / "go").touch()
            said = job.communicate(timeout=600)[1]
        self.assertEqual(job.returncode, 0, said)

    def test_spawn_starts_this_program_again(self):
        for view in VIEWS:
            with self.subTest(view=view):
                self.check_sums(self.contained(view, PROGRAM, "spawn"), "shm")


class Filters(ContainersTest):
    def forbidden(self, calls, *words, **variables):
        result = self.run_words(FORBID, calls, *words, **variables)
        self.assertNotIn("forbid: ", result.stderr)
        return result

    def test_the_affinity_may_not_be_asked_for(self):
        self.check_sums(self.forbidden("sched_getaffinity", LOCKSTEP, "run", "-n", "2", PROGRAM, "sum"), "shm")
        self.assertIn("cores ", self.forbidden("sched_getaffinity", LOCKSTEP, "info").stdout)

    def test_without_memory_files_one_rank_works_alone_and_several_over_tcp(self):
        alone = self.forbidden("memfd_create", PROGRAM, "sum")
        self.assertEqual(alone.stdout, "rank 0 of 1 over self: sum 1\n", alone.stderr)
        for backend in ("tcp", "auto"):
            with self.subTest(backend=backend):
                result = self.forbidden("memfd_create", LOCKSTEP, "run", "-n", "2", PROGRAM, "sum", LOCKSTEP_BACKEND=backend)
                self.check_sums(result, "tcp")

    def test_without_memory_files_shm_says_what_is_missing_and_what_works(self):
        result = self.forbidden("memfd_create", LOCKSTEP, "run", "-n", "2", PROGRAM, "sum", LOCKSTEP_BACKEND="shm")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("memfd_create is forbidden here", result.stdout)
        self.assertIn("LOCKSTEP_BACKEND=tcp", result.stdout)


if __name__ == "__main__":
    if not CAN_UNSHARE:
        print("no namespaces can be made here: jobs in them are not tested")
    unittest.main()
