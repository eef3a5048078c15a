#!/usr/bin/env python3
"""Strangers without the secret flood the address at which a job of two nodes meets: it starts, joins and trains all the same.

HOSTS_TEST_COMMAND: build/lockstep. _RANK: build/tests/hosts/host_rank, which checks every bit of its sums. _FLOOD:
build/tests/hosts/flood. STRANGERS_TEST_ROUNDS: how often each flood comes in each phase (1). Everything is on the loopback device, and in a
network namespace of its own where one can be made."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "launchers"))
from slurm import free_ports  # noqa: E402

LOCKSTEP = os.environ["HOSTS_TEST_COMMAND"]
HOST_RANK = os.environ["HOSTS_TEST_RANK"]
FLOOD = os.environ["HOSTS_TEST_FLOOD"]
ROUNDS = int(os.environ.get("STRANGERS_TEST_ROUNDS", "1"))
ADDRESS = "127.0.0.2"
STEPS = "600"
PATIENCE = 600


def child_of(process, name):
    """The number of the child of that name, once there is one; None if the process ends without."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        for number in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            if pathlib.Path(f"/proc/{number}/comm").read_text().strip() == name:
                return int(number)
    return None


class Job:
    """Two launchers with one rank each, which do not share memory, and perhaps a stranger."""

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="lockstep-strangers-")
        self.folder = pathlib.Path(self.temporary.name)
        self.secret = self.folder / "secret"
        self.secret.touch(mode=0o600)
        self.secret.write_text(os.urandom(32).hex())
        self.port = free_ports(1)[0]
        self.nodes = []
        self.flood = None
        return self

    def __exit__(self, *error):
        self.end_flood()
        for process in self.nodes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.temporary.cleanup()

    def start(self, node, command=(HOST_RANK, "env", STEPS)):
        runtime = self.folder / f"runtime{node}"
        runtime.mkdir(mode=0o700)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD_SIZE", "LOCKSTEP_"))}
        variables |= {"XDG_RUNTIME_DIR": str(runtime), "OMP_NUM_THREADS": "1", "LOCKSTEP_TIMEOUT": "60"}
        words = [LOCKSTEP, "run", "--nnodes", "2", "--node-rank", str(node), "--master-addr", ADDRESS, "--master-port", str(self.port),
                 "--nproc-per-node", "1", "--secret-file", str(self.secret), "--no-logs", *command]
        with open(self.output(node), "wb") as output:
            self.nodes.append(subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT))
        return self.nodes[-1]

    def output(self, node):
        return self.folder / f"output{node}"

    def text(self, node):
        return self.output(node).read_text(errors="replace") if self.output(node).exists() else ""

    def everything(self):
        return "\n".join(f"--- node {node}: {process.poll()}\n{self.text(node)}" for node, process in enumerate(self.nodes))

    def wait_for(self, node, words):
        deadline = time.monotonic() + PATIENCE
        while words not in self.text(node):
            if self.nodes[node].poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no {words!r} from node {node}\n{self.everything()}")
            time.sleep(0.005)

    def start_flood(self, way, wait=True):
        self.flood = subprocess.Popen([FLOOD, ADDRESS, str(self.port), way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if wait and self.flood.stdout.readline() != "flooding\n":
            raise AssertionError("the flood met nobody")

    def end_flood(self):
        """What it said."""
        if not self.flood:
            return ""
        said = self.flood.communicate()[0]
        self.flood = None
        return said

    def finish(self):
        deadline = time.monotonic() + PATIENCE
        for process in self.nodes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        return [process.poll() for process in self.nodes]


class Strangers(unittest.TestCase):
    def check(self, job, what):
        self.assertEqual(job.finish(), [0, 0], f"{what}\n{job.everything()}")
        said = job.end_flood()
        self.assertRegex(said, r"[1-9]\d* connections", what)
        for rank in range(2):
            self.assertIn(f"[{rank}] joined as rank {rank} of 2 over tcp\n", job.text(rank), what)
            self.assertIn(f"[{rank}] done\n", job.text(rank), what)
        reports = [line for line in job.everything().splitlines() if "(more of this kind are not reported)" in line]
        self.assertGreaterEqual(len(reports), 1, f"{what}: nobody said a word about the flood\n{job.everything()}")
        self.assertEqual(len(reports), len(set(reports)), f"{what}: said more than once\n{job.everything()}")
        self.assertNotIn("is gone", job.everything(), what)

    def from_the_start(self, way):
        with Job() as job:
            job.start_flood(way, wait=False)
            for node in range(2):
                job.start(node)
            self.check(job, f"{way} from the start")

    def at_the_join(self, way):
        with Job() as job:
            job.start(0)
            job.start_flood(way)
            job.start(1)
            self.check(job, f"{way} at the join")

    def during_training(self, way):
        with Job() as job:
            for node in range(2):
                job.start(node)
            for node in range(2):
                job.wait_for(node, "step 0\n")
            job.start_flood(way)
            self.check(job, f"{way} during training")

    def repeat(self, way):
        for phase in (self.from_the_start, self.at_the_join, self.during_training):
            survived = 0
            for _ in range(ROUNDS):
                phase(way)
                survived += 1
            print(f"\n{way}, {phase.__name__}: {survived} of {ROUNDS} rounds", end="", flush=True)

    def test_connections_as_fast_as_two_threads_can(self):
        self.repeat("connect")

    def test_five_hundred_connections_that_are_reset(self):
        self.repeat("reset")

    def test_a_thousand_idle_connections(self):
        self.repeat("idle")

    def test_hellos_without_a_proof(self):
        self.repeat("hello")


class StoreProcess(unittest.TestCase):
    """The process that serves the store is a child of node 0's launcher, which notices when it ends."""

    def kill_store(self, job):
        store = child_of(job.nodes[0], "lockstep-store")
        self.assertIsNotNone(store, job.everything())
        os.kill(store, signal.SIGKILL)

    def test_its_end_before_all_have_met_is_told_at_once(self):
        with Job() as job:
            launcher = job.start(0)
            self.kill_store(job)
            start = time.monotonic()
            self.assertNotIn(job.finish()[0], (0, None))
            self.assertLess(time.monotonic() - start, 30, "not after the timeout of 60 s")
            self.assertRegex(job.text(0), "the process that serves the job's store at .* ended too early: killed by SIGKILL")
            self.assertIsNotNone(launcher.poll())

    def test_its_end_while_ranks_run_ends_the_job_and_nobody_blames_node_0(self):
        with Job() as job:
            for node in range(2):
                job.start(node, ["sh", "-c", "echo started; exec sleep 1000"])
            for node in range(2):
                job.wait_for(node, "started\n")
            self.kill_store(job)
            self.assertEqual(job.finish(), [1, 1], job.everything())
            self.assertIn("the process that serves the job's store ended too early: killed by SIGKILL", job.text(0))
            self.assertIn("the job failed: node 0: the process that serves the job's store has ended", job.text(0))
            self.assertIn("its process that serves the job's store, has ended or cannot be reached", job.text(1))
            self.assertNotIn("is gone", job.everything())


def in_a_namespace():
    """Starts this test again where the loopback device is its own."""
    words = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    try:
        alone = subprocess.run([*words, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        alone = False
    if alone:
        os.environ["STRANGERS_TEST_INSIDE"] = "1"
        os.execvp(words[0], [*words, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-B", *sys.argv])


if __name__ == "__main__":
    if "STRANGERS_TEST_INSIDE" not in os.environ:
        in_a_namespace()
    unittest.main()
