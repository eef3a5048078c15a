#!/usr/bin/env python3
"""launchers_test.py CLASS: the same programs under launchers that are not ours. What a launcher's absence skips is printed."""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from slurm import Slurm, free_ports

PROGRAM = os.environ["LAUNCHERS_TEST_PROGRAM"]  # launched
HELLO = os.environ.get("LAUNCHERS_TEST_HELLO")  # example hello_ranks, where there is libtorch
PYTHON = os.environ.get("LAUNCHERS_TEST_PYTHON")
PLACE = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_", "SLURM_", "PMI", "OMPI_", "TORCHELASTIC_", "LOCKSTEP_")


class LauncherTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-launchers-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(PLACE)}
        self.environment |= {"XDG_RUNTIME_DIR": folder.name, "OMP_NUM_THREADS": "1"}

    def secret(self):
        path = self.folder / "secret"
        path.write_bytes(os.urandom(32))
        path.chmod(0o600)
        return {"LOCKSTEP_SECRET_FILE": str(path)}

    def run_command(self, command, environment=None, patience=600):
        return subprocess.run([str(word) for word in command], env={**self.environment, **(environment or {})}, cwd=self.folder,
                              capture_output=True, text=True, timeout=patience)

    def check(self, result, size, source, backend="shm", local_ranks=None):
        """Every rank says who it is once, and 1 + 2 + ... + size is right."""
        said = re.findall(r"rank (\d+) of (\d+), local rank (\d+), started by (.*?), over (\S+): sum (\d+)", result.stdout)
        local_ranks = local_ranks or list(range(size))
        expected = [(str(rank), str(size), str(local_ranks[rank]), source, backend, str(size * (size + 1) // 2)) for rank in range(size)]
        self.assertEqual(sorted(said), expected, result.stdout + result.stderr)
        self.assertEqual(result.returncode, 0, result.stderr)

    def check_hello(self, result, size):
        said = re.findall(r"rank (\d+) of (\d+) \(shm\): the sum of .* is (\d+)", result.stdout)
        self.assertEqual(sorted(said), [(str(rank), str(size), str(size * (size + 1) // 2)) for rank in range(size)],
                         result.stdout + result.stderr)

    def both(self, command, size, source):
        """`command` starts `size` ranks of whatever follows it."""
        self.check(self.run_command([*command, PROGRAM]), size, source)
        if HELLO:
            self.check_hello(self.run_command([*command, HELLO]), size)


def finish(test, processes, patience=600):
    """What all of them said, and the largest exit code. None outlives the test."""
    for process in processes:
        test.addCleanup(lambda process=process: (process.kill(), process.communicate()))
    said = [process.communicate(timeout=patience) for process in processes]
    return subprocess.CompletedProcess([], max(process.returncode for process in processes), "".join(out or "" for out, _ in said),
                                       "".join(err or "" for _, err in said))


def torchrun(test):
    if not PYTHON or test.run_command([PYTHON, "-c", "import torch.distributed.run"]).returncode != 0:
        test.skipTest("no Python with torch (LOCKSTEP_PYTHON)")
    return [PYTHON, "-m", "torch.distributed.run"]


def mpirun(test, which):
    path = shutil.which(f"mpirun.{which}")
    if not path:
        test.skipTest(f"mpirun.{which} is not installed")
    if which == "mpich":
        return [path]
    test.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # Two of its mpiruns at once both make this folder where it is missing, and the slower one ends with "File exists". mpirun
    # removes it in the end, but for files of such a name that are not empty.
    shared = pathlib.Path(tempfile.gettempdir()) / f"ompi.{socket.gethostname().split('.')[0]}.{os.getuid()}"
    shared.mkdir(mode=0o700, exist_ok=True)
    (shared / "output-kept").write_text("kept")
    return [path, "--oversubscribe"]


class Torchrun(LauncherTest):
    def setUp(self):
        super().setUp()
        self.launcher = torchrun(self)

    def torchrun(self, *options):
        return [*self.launcher, *options, "--no-python"]

    def test_standalone(self):
        self.both(self.torchrun("--standalone", "--nproc-per-node=3"), 3, "torchrun")

    def test_two_at_once_do_not_meet(self):
        """torchrun's own name for both jobs is "none"; both use our Unix sockets at the same time."""
        commands = [[*self.torchrun("--nproc-per-node=2", f"--master-port={port}"), PROGRAM] for port in free_ports(2)]
        started = [subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for command in commands]
        for process in started:
            self.check(finish(self, [process]), 2, "torchrun")

    def test_two_nodes_by_hand(self):
        """Two agents on one machine, each with one rank: the agent of node 0 holds MASTER_PORT, we use the next."""
        port = free_ports(1)[0]
        secret = self.secret()
        started = [subprocess.Popen([*self.torchrun("--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1", "--master-addr=127.0.0.1",
                                                    f"--master-port={port}"), PROGRAM],
                                    env={**self.environment, **secret}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for node in range(2)]
        self.check(finish(self, started), 2, "torchrun", local_ranks=[0, 0])


class Mpirun(LauncherTest):
    def test_open_mpi(self):
        self.both([*mpirun(self, "openmpi"), "-n", "3"], 3, "Open MPI")

    def test_mpich(self):
        self.both([*mpirun(self, "mpich"), "-n", "3"], 3, "MPICH")


class Srun(LauncherTest):
    def setUp(self):
        super().setUp()
        if not Slurm.is_installed():
            self.skipTest("slurmctld, slurmd or srun is not installed")

    def test_one_node_two_nodes_and_an_allocation_without_a_step(self):
        with Slurm(nodes=2) as slurm:
            mine = {**{name: "" for name in ("RANK", "WORLD_SIZE")}, "XDG_RUNTIME_DIR": str(self.folder)}
            self.check(slurm.run(["-N1", "-n2"], [PROGRAM], mine), 2, "Slurm")
            if HELLO:
                self.check_hello(slurm.run(["-N1", "-n2"], [HELLO], mine), 2)
            variables = {**mine, **self.secret(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
            self.check(slurm.run(["-N2", "-n4", "--ntasks-per-node=2"], [PROGRAM], variables), 4, "Slurm", local_ranks=[0, 1, 0, 1])
            without = slurm.run(["-N2", "-n2"], [PROGRAM], mine)
            self.assertIn("MASTER_ADDR is not set", without.stdout + without.stderr)

    def test_an_allocation_without_a_step_runs_alone(self):
        allocation = {"SLURM_JOB_ID": "17", "SLURM_JOBID": "17", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_NNODES": "2",
                      "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
        in_a_batch_script = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
        for variables in (allocation, allocation | in_a_batch_script):
            self.check(self.run_command([PROGRAM], variables), 1, "none", backend="self")


class ByHand(LauncherTest):
    def start(self, count, variables):
        started = [subprocess.Popen([PROGRAM], env={**self.environment, **variables, "RANK": str(rank), "WORLD_SIZE": str(count)},
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(count)]
        return finish(self, started)

    def test_rank_world_size_and_a_port_that_names_the_job(self):
        self.check(self.start(3, {"MASTER_PORT": "29500"}), 3, "env")

    def test_rank_and_world_size_alone_are_refused(self):
        """Nothing would tell two such jobs apart."""
        done = self.start(2, {})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.count("Set MASTER_PORT"), 2, done.stdout)

    def test_after_su_or_sudo(self):
        """XDG_RUNTIME_DIR is missing, somebody else's, read-only or long: the ranks meet in /tmp."""
        somebodys = self.folder / "somebodys"
        somebodys.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(somebodys, 4711, 4711)
        for folder in (self.folder / "missing", somebodys, "/proc/self", self.folder / ("x" * 90)):
            self.check(self.start(2, {"MASTER_PORT": str(free_ports(1)[0]), "XDG_RUNTIME_DIR": str(folder)}), 2, "env")

    def test_with_a_loopback_address_no_secret_is_needed(self):
        self.check(self.start(3, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}), 3, "env")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
