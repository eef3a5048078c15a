"""Starts ranks of tests/faults/meet_trial.cpp, under `lockstep run` and by hand, and looks at what all of them say."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from launcher_support import LOCKSTEP, children_of, state_of, wait_until

PROGRAM = os.environ["MEET_TEST_PROGRAM"]
PAUSE = 4    # seconds
ALONE = 0.5  # seconds that ranks wait before they are stopped
NODES_ADDRESS = "127.0.0.2"


def descendants(pid):
    return [pid] + [one for child in children_of(pid) for one in descendants(child)]


class MeetingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-meet-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.processes = []
        self.addCleanup(self.end)
        self.base = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD_SIZE", "LOCKSTEP_"))}
        self.base |= {"XDG_RUNTIME_DIR": str(self.folder), "OMP_NUM_THREADS": "1"}
        self.secret = self.folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)

    def end(self):
        for process in self.processes:
            for pid in reversed(descendants(process.pid)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.wait()

    def start(self, *words, **variables):
        with open(self.folder / f"out{len(self.processes)}", "wb") as out:
            self.processes.append(subprocess.Popen(list(map(str, words)), env=self.base | variables, stdout=out,
                                                   stderr=out, stdin=subprocess.DEVNULL, cwd=self.folder))

    def output(self):
        return "".join((self.folder / f"out{i}").read_text(errors="replace") for i in range(len(self.processes)))

    def ranks(self):
        return [int(pid) for pid in re.findall(r"here (\d+)", self.output())]

    def pause(self, count):
        """Stops everything that was started, once `count` ranks run, and continues it later."""
        wait_until(lambda: len(self.ranks()) == count, "ranks run")
        time.sleep(ALONE)
        pids = [pid for process in self.processes for pid in descendants(process.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            wait_until(lambda: state_of(pid) == "T", f"process {pid} is stopped")
        time.sleep(PAUSE)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def finish(self, count):
        codes = [process.wait(timeout=600) for process in self.processes]
        self.assertEqual(codes, [0] * len(codes), self.output())
        self.assertEqual(self.output().count("done"), count, self.output())

    def start_node(self, node, port, *words, nodes=2):
        self.start(LOCKSTEP, "run", "--no-logs", "--nnodes", nodes, "--node-rank", node, "--master-addr", NODES_ADDRESS,
                   "--master-port", port, "-n", 1, "--secret-file", self.secret, PROGRAM, *words)

    def by_hand(self, *words, size=2):
        for rank in range(size):
            self.start(PROGRAM, *words, RANK=str(rank), WORLD_SIZE=str(size), MASTER_PORT="29511")
