"""The limits that ordinary users have: open files, sizes of files, address space; and disks and folders that take nothing.

Root is exempt from some of them, so where the tests run as root the jobs here are started as somebody else."""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

from launcher_support import LOCKSTEP, PATIENCE

LAUNCHED = os.environ.get("LIMITS_TEST_PROGRAM") or str(pathlib.Path(__file__).parents[2] / "build/tests/launchers/launched")
SPAWNS = os.environ.get("LIMITS_TEST_SPAWN") or str(pathlib.Path(__file__).parents[2] / "build/tests/end_to_end/spawn_program")
NOBODY = 65534
MIB = 1 << 20


class LimitsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)

    def run_in(self, folder, command, limits=None, before=None, **options):
        """A finished process of an ordinary user; `limits`: {resource: (soft, hard)}."""
        def prepare():
            for kind, pair in (limits or {}).items():
                resource.setrlimit(kind, pair)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            if before:
                before()

        environment = {name: value for name, value in os.environ.items()
                       if name not in ("OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "LOCKSTEP_JOB_ID", "XDG_RUNTIME_DIR")}
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.run(command, cwd=folder, env=environment, preexec_fn=prepare, text=True, check=False,
                              timeout=3 * PATIENCE, stdin=subprocess.DEVNULL, **options)

    def launch(self, *arguments, **options):
        return self.run_in(self.folder, [LOCKSTEP, "run", *arguments], **options)

    def expect_sum(self, result, ranks):
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line for line in result.stdout.splitlines() if f"sum {ranks * (ranks + 1) // 2}" in line]
        self.assertEqual(len(lines), ranks, result.stdout)


class OpenFiles(LimitsTest):
    def files(self, soft, hard):
        return {resource.RLIMIT_NOFILE: (soft, hard)}

    def test_of_an_ordinary_user_are_enough_for_64_ranks(self):
        # 64 x 64 descriptors are passed round, twice; the kernel lets 1024 be on their way.
        self.expect_sum(self.launch("-n", "64", "--no-logs", LAUNCHED, limits=self.files(1024, 1024)), 64)

    def test_are_raised_up_to_the_hard_limit(self):
        self.expect_sum(self.launch("-n", "32", LAUNCHED, limits=self.files(64, 1024)), 32)

    def test_are_for_ranks_what_the_user_set(self):
        result = self.launch("-n", "40", "--no-prefix", "sh", "-c", "ulimit -Sn; ulimit -Hn", limits=self.files(64, 1024))
        self.assertEqual(sorted(result.stdout.split()), sorted(["64", "1024"] * 40), result.stderr)

    def test_that_are_too_few_are_told_before_anything_starts(self):
        result = self.launch("-n", "64", "touch", "started", limits=self.files(64, 64))
        self.assertEqual(result.returncode, 70)
        self.assertRegex(result.stderr, r"^lockstep: starting 64 ranks needs \d+ more open files; \d+ are open, and the hard "
                                        r"limit is 64\. Raise it to (\d+) or more \(ulimit -Hn")
        self.assertEqual(list(self.folder.iterdir()), [])
        enough = int(re.search(r"Raise it to (\d+)", result.stderr).group(1))
        result = self.launch("-n", "64", "--no-logs", LAUNCHED, limits=self.files(64, enough))
        self.expect_sum(result, 64)

    def test_of_spawn_are_raised_or_told(self):
        result = self.run_in(self.folder, [SPAWNS, "sum", "16", "x"], limits=self.files(64, 128))
        self.assertEqual(result.stdout.count(", sum 136"), 16, result.stdout + result.stderr)
        result = self.run_in(self.folder, [SPAWNS, "sum", "32", "x"], limits=self.files(64, 1024))
        self.assertEqual(result.stdout.count(", sum 528"), 32, result.stdout + result.stderr)
        result = self.run_in(self.folder, [SPAWNS, "sum", "32", "x"], limits=self.files(64, 64))
        self.assertRegex(result.stdout + result.stderr,
                         r"spawn\(32\) at .* needs \d+ more open files; \d+ are open, and the hard limit is 64")
        self.assertNotIn("sum 528", result.stdout)


class AddressSpace(LimitsTest):
    def test_that_is_smaller_than_memory_is_shared_out(self):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for limit in (memory, 512 * MIB):
            with self.subTest(limit=limit):
                self.expect_sum(self.launch("-n", "3", "--no-logs", LAUNCHED, limits={resource.RLIMIT_AS: (limit, limit)}), 3)


class SizesOfFiles(LimitsTest):
    def size(self, limit):
        return {resource.RLIMIT_FSIZE: (limit, limit)}

    def test_cut_a_log_and_stop_nothing(self):
        script = "seq 20000; touch done$RANK; until [ -e done1 ]; do sleep 0.01; done; [ $RANK != 0 ] || exit 7"  # not before rank 1 is done
        result = self.launch("-n", "2", "sh", "-c", script, limits=self.size(64 << 10))
        self.assertEqual(result.returncode, 7, result.stderr)
        for rank in range(2):
            self.assertEqual([line for line in result.stdout.splitlines() if line.startswith(f"[{rank}]")],
                             [f"[{rank}] {i}" for i in range(1, 20001)])
            self.assertIn(f"the log of rank {rank} is not complete, it could not be written: File too large", result.stderr)
        self.assertIn("rank 0 of 2 failed first: exit code 7", result.stderr)
        logs = next((self.folder / "runs").iterdir())
        self.assertEqual((logs / "rank0.log").stat().st_size, 64 << 10)

    def test_leave_room_for_what_ranks_share(self):
        for limit in (10 * MIB, 1 * MIB, 200 << 10):
            with self.subTest(limit=limit):
                self.expect_sum(self.launch("-n", "2", "--no-logs", LAUNCHED, limits=self.size(limit)), 2)

    def test_that_leave_none_are_named(self):
        result = self.launch("-n", "2", "--no-logs", LAUNCHED, limits=self.size(8 << 10))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("ulimit -f", result.stdout + result.stderr)
        self.assertNotIn("SIGXFSZ", result.stderr)

    def test_of_standard_output_cut_it_and_stop_nothing(self):
        with open(self.folder / "out", "wb") as out:
            os.chmod(out.fileno(), 0o666)
            result = self.launch("-n", "2", "--no-logs", "sh", "-c", "seq 20000; exit $RANK", limits=self.size(64 << 10), stdout=out)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr.count("standard output cannot be written: File too large"), 1)
        self.assertEqual((self.folder / "out").stat().st_size, 64 << 10)


class FullDisk(LimitsTest):
    def test_under_standard_output_is_said_and_stops_nothing(self):
        with open("/dev/full", "wb") as full:
            result = self.launch("-n", "2", "sh", "-c", "seq 5000; touch done$RANK; until [ -e done0 ]; do sleep 0.01; done; exit $RANK",
                                 stdout=full)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr.count("standard output cannot be written: No space left on device"), 1)
        self.assertNotIn("reader of the output", result.stderr)
        self.assertTrue((self.folder / "done0").exists() and (self.folder / "done1").exists())
        logs = next((self.folder / "runs").iterdir())
        self.assertEqual((logs / "rank1.log").read_text().split(), [str(i) for i in range(1, 5001)])

    def test_under_both_outputs_stops_nothing(self):
        with open("/dev/full", "wb") as full:
            result = self.launch("-n", "1", "sh", "-c", "seq 5000; seq 5000 >&2; touch done", stdout=full, stderr=full)
        self.assertEqual(result.returncode, 0)
        self.assertTrue((self.folder / "done").exists())


class Folders(LimitsTest):
    """Where the launcher is started, and no folder for logs can be made."""

    def expect_without_logs(self, folder, before=None, limits=None):
        result = self.run_in(folder, [LOCKSTEP, "run", "-n", "2", "sh", "-c", "echo ran"], before=before, limits=limits)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] ran", "[1] ran"], result.stderr)
        self.assertRegex(result.stderr, r"lockstep: no log files: cannot .*; --log-dir chooses another place")
        self.assertNotIn("filesystem error", result.stderr)

    def test_that_is_gone(self):
        gone = self.folder / "gone"
        gone.mkdir()
        self.expect_without_logs(gone, before=lambda: gone.rmdir() if os.access(self.folder, os.W_OK) else None)

    def test_that_may_not_be_entered(self):
        closed = self.folder / "closed"
        closed.mkdir(0o700)
        if os.geteuid() == 0:  # root's, as behind sudo -u
            self.expect_without_logs(closed)
        else:
            self.expect_without_logs(closed, before=lambda: closed.chmod(0))
            closed.chmod(0o700)

    def test_that_may_only_be_read(self):
        closed = self.folder / "closed"
        closed.mkdir(0o755)
        if os.geteuid() != 0:
            closed.chmod(0o555)
        self.expect_without_logs(closed)

    def test_that_has_a_loop_of_links_in_the_way(self):
        (self.folder / "runs").symlink_to("runs")
        self.expect_without_logs(self.folder)

    def test_whose_disk_takes_no_log_of_a_rank(self):
        # The launcher's own descriptors are enough for the folder; its files are refused by their size alone.
        result = self.launch("-n", "2", "echo", "ran", limits={resource.RLIMIT_FSIZE: (0, 0)})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] ran", "[1] ran"])
        self.assertIn("the log of rank 1 is not complete, it could not be written: File too large", result.stderr)

    def test_on_path_that_may_not_be_searched_holds_no_program(self):
        closed = self.folder / "closed"
        closed.mkdir(0o700 if os.geteuid() == 0 else 0)  # root's, or nobody's
        result = self.run_in(self.folder, ["env", f"PATH={closed}:/usr/bin:/bin", LOCKSTEP, "run", "no-such-program"])
        self.assertEqual(result.returncode, 127, result.stderr)
        self.assertIn('there is no program "no-such-program" on PATH', result.stderr)

    def test_asked_for_is_an_error_that_names_it(self):
        result = self.launch("--log-dir", "/proc/no/logs", "echo", "ran")
        self.assertEqual((result.returncode, result.stdout), (70, ""))
        self.assertRegex(result.stderr, r"^lockstep: cannot make the folder /proc/no")

    def test_that_is_gone_holds_no_trace_folder_either(self):
        gone = self.folder / "gone"
        gone.mkdir()
        result = self.run_in(gone, [LOCKSTEP, "run", "--trace-dir", "traces", "echo", "ran"], before=gone.rmdir)
        self.assertEqual(result.returncode, 64)
        self.assertRegex(result.stderr, r"--trace-dir traces is below a current folder that is gone; give an absolute path")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main()
