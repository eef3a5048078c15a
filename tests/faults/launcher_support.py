"""Starts the real `lockstep run` with shell scripts as ranks, and looks in /proc for what it leaves behind.

Every process of a job carries a tag in its environment and in the arguments of its `sleep`, so that living() finds it
wherever setsid, a double fork or a new parent has put it."""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LOCKSTEP = pathlib.Path(os.environ.get("LAUNCHER_TEST_COMMAND") or pathlib.Path(__file__).parents[2] / "build/lockstep").resolve()
PATIENCE = 200.0  # seconds until a condition that must come true counts as never: generous, the machine may be busy
BOUND = 5.0      # seconds that no measured time may exceed; what is usual is printed

# Ways in which a program and its children can be hard to get rid of. {sleep} is a sleep that never ends by itself.
SHAPES = {
    "plain": "exec {sleep}",
    "background": "{sleep} & wait",
    "session": "setsid {sleep} & wait",
    "daemon": "(setsid {sleep} &) ; {sleep}",
    "deep": "sh -c 'sh -c \"{sleep} & wait\" & wait' & wait",
    "deaf": "trap '' TERM INT HUP; {sleep} & wait; {sleep}",
    "bare": "env -i {sleep} & wait",
}


def wait_until(condition, what, patience=PATIENCE):
    """Polls until condition() is true and returns its value."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.002)


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def state_of(pid):
    """R, S, T, Z, ... or "" when there is no such process."""
    text = read(f"/proc/{pid}/stat").decode(errors="replace")
    return text[text.rfind(")") + 2:][:1]


def children_of(pid):
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


class Job:
    """One `lockstep run`. Standard output and error go to files, so that nobody blocks on them."""

    def __init__(self, options, command, fail_point=None, environment=None, **popen):
        self.tag = f"{os.getpid()}{random.SystemRandom().randrange(10**9):09}"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.environment = dict(os.environ, LAUNCHER_TEST_TAG=self.tag, **(environment or {}))
        for name in ("OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "LOCKSTEP_JOB_ID"):
            if name not in (environment or {}):
                self.environment.pop(name, None)
        if fail_point:
            self.environment["LOCKSTEP_FAIL_POINT"] = fail_point
        command = [word.replace("{sleep}", f"sleep 1000.{self.tag}") for word in command]
        popen.setdefault("stdin", subprocess.DEVNULL)
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            popen.setdefault("stdout", out)
            popen.setdefault("stderr", err)
            self.process = subprocess.Popen([LOCKSTEP, "run", *options, *command], env=self.environment,
                                            cwd=self.folder, **popen)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for pid in self.living():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self, patience=PATIENCE):
        return self.process.wait(timeout=patience)

    def out(self):
        return (self.folder / "out").read_text(errors="backslashreplace")

    def err(self):
        return (self.folder / "err").read_text(errors="backslashreplace")

    def logs(self):
        """The folder of the run's log files."""
        return next((self.folder / "runs").iterdir())

    def living(self):
        """Pids of every process of this job that has not ended."""
        tag = self.tag.encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            if tag in read(f"/proc/{entry}/environ") or tag in read(f"/proc/{entry}/cmdline"):
                if state_of(entry) not in ("", "Z", "X"):
                    found.append(int(entry))
        return found

    def sleepers(self):
        return [pid for pid in self.living() if read(f"/proc/{pid}/comm") == b"sleep\n"]

    def guardian(self):
        return next(iter(children_of(self.pid)), None)

    def seconds_until_gone(self, resume=None):
        """`resume`: a process that a fail point stops, as often as it gets there."""
        start = time.monotonic()
        while left := self.living():
            if resume is not None and state_of(resume) == "T":
                os.kill(resume, signal.SIGCONT)
            if time.monotonic() - start > PATIENCE:
                raise AssertionError(f"not gone within {PATIENCE} s: {[(pid, read(f'/proc/{pid}/cmdline')) for pid in left]}")
        gone = time.monotonic() - start
        assert not self.living()  # a scan of /proc could miss one that was just starting another
        return gone


class LauncherTest(unittest.TestCase):
    """Nothing may stay in /dev/shm, whatever the test does."""

    def setUp(self):
        before = set(os.listdir("/dev/shm"))
        self.addCleanup(lambda: self.assertEqual([name for name in set(os.listdir("/dev/shm")) - before
                                                  if "lockstep" in name], []))


def show_times(title, seconds):
    """Prints a distribution: a bound in a test must be generous, the usual time belongs in the log."""
    ordered = sorted(seconds)
    pick = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000
    print(f"\n{title}: {len(ordered)} trials, p50 {pick(0.5):.0f} ms, p99 {pick(0.99):.0f} ms, max {ordered[-1] * 1000:.0f} ms")
    edges = [0, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, float("inf")]
    for low, high in zip(edges, edges[1:]):
        count = sum(low <= value * 1000 < high for value in ordered)
        if count:
            print(f"  {low:>5} - {high:>5} ms {count:>4} {'#' * min(count, 60)}")
    sys.stdout.flush()


def seeded(count, first=1):
    """(seed, generator) pairs; LAUNCHER_TEST_SEED runs one seed alone, LAUNCHER_TEST_TRIALS multiplies the trials
    (0.1: a tenth of them)."""
    if "LAUNCHER_TEST_SEED" in os.environ:
        seeds = [int(os.environ["LAUNCHER_TEST_SEED"])]
    else:
        seeds = range(first, first + max(1, round(count * float(os.environ.get("LAUNCHER_TEST_TRIALS", "1")))))
    return [(seed, random.Random(seed)) for seed in seeds]
