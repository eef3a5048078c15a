#!/usr/bin/env python3
"""Two epochs of the MNIST example with four ranks under every launcher that is not ours.

It learns, all ranks end with the same weights, and the bits do not depend on who started the ranks. The data are the first images
of MNIST or Fashion-MNIST (mnist_data.py); LAUNCHERS_TEST_IMAGES="60000 10000" takes so many for training and for the test.
That the weights are right, and not only the same, is the business of end_to_end/mnist_test.py.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from launchers_test import LauncherTest, finish, mpirun, torchrun  # noqa: E402
from mnist_data import cut_all  # noqa: E402
from slurm import Slurm, free_ports  # noqa: E402

MNIST = os.environ["LAUNCHERS_TEST_MNIST"]
TRAIN_IMAGES, TEST_IMAGES = map(int, os.environ.get("LAUNCHERS_TEST_IMAGES", "900 300").split())
NCCL, CUDA = os.environ["LAUNCHERS_TEST_NCCL"], os.environ["LAUNCHERS_TEST_CUDA"]
LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
PATIENCE = 600 + TRAIN_IMAGES // 50
RANKS = 4
FILES = ("model.safetensors", "model.pt")


class Mnist(LauncherTest):
    weights = {}  # by launcher: what its job saved

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-launchers-mnist-")
        cls.addClassCleanup(folder.cleanup)
        cls.data = pathlib.Path(folder.name)
        cut_all(cls.data, TRAIN_IMAGES, TEST_IMAGES)

    def command(self):
        return [MNIST, "--data", self.data, "--epochs", 2, "--save-dir", self.folder, "--metrics", self.folder / "metrics.jsonl"]

    def check_job(self, result, same_bits=True):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        *epochs, final = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        self.assertEqual([epoch["epoch"] for epoch in epochs], [1, 2])
        self.assertEqual((final["processes"], final["epochs"]), (RANKS, 2), "one job of all ranks, not a job each")
        self.assertIs(final["parameters_identical"], True)
        self.assertGreater(final["test_accuracy"], 0.5, "it learns something: guessing gives 0.1")
        print(f"accuracy {100 * final['test_accuracy']:.2f} %, {final['images_per_second']:.0f} images/s, sha256 of all ranks "
              f"{final['parameters_sha256']}")
        self.weights[self.id()] = tuple((self.folder / name).read_bytes() for name in FILES)
        if not same_bits:
            return
        first, *others = self.weights
        for other in others:
            self.assertTrue(self.weights[first] == self.weights[other], f"{first} and {other} saved different weights")

    def test_by_hand(self):
        started = [subprocess.Popen([str(word) for word in self.command()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    env={**self.environment, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank),
                                         "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                   for port in free_ports(1) for rank in range(RANKS)]
        self.check_job(finish(self, started, PATIENCE))

    def test_torchrun(self):
        self.check_job(self.run_command([*torchrun(self), "--standalone", f"--nproc-per-node={RANKS}", "--no-python", *self.command()],
                                        patience=PATIENCE))

    def test_open_mpi(self):
        self.check_job(self.run_command([*mpirun(self, "openmpi"), "-n", RANKS, *self.command()], patience=PATIENCE))

    def test_mpich(self):
        self.check_job(self.run_command([*mpirun(self, "mpich"), "-n", RANKS, *self.command()], patience=PATIENCE))

    # Their modules are built where the development packages of the MPIs are.
    def test_open_mpi_over_mpi(self):
        self.environment |= {"LOCKSTEP_BACKEND": "mpi"}
        self.check_job(self.run_command([*mpirun(self, "openmpi"), "-n", RANKS, *self.command()], patience=PATIENCE))

    def test_mpich_over_mpi(self):
        self.environment |= {"LOCKSTEP_BACKEND": "mpi"}
        self.check_job(self.run_command([*mpirun(self, "mpich"), "-n", RANKS, *self.command()], patience=PATIENCE))

    def test_nccl(self):
        """Over the library that stands in for NCCL; its variables and its lines go through our launcher. NCCL has its own order of sums."""
        if not NCCL:
            self.skipTest("there is no stand-in for NCCL in a build with a sanitizer")
        self.environment |= {"LOCKSTEP_BACKEND": "nccl", "LOCKSTEP_NCCL": NCCL, "NCCL_DEBUG": "INFO"}
        result = self.run_command([LOCKSTEP, "run", "-n", RANKS, "--no-logs", *self.command()], patience=PATIENCE)
        self.check_job(result, same_bits=False)
        del self.weights[self.id()]
        for rank in range(RANKS):
            self.assertRegex(result.stdout, rf"NCCL INFO comm \S+ rank {rank} nranks {RANKS} .*Init COMPLETE")

    def test_nccl_on_gpus(self):
        """On the devices that tests/cuda stands in for. Convolutions have another kernel there, so the bits are others."""
        if not CUDA:
            self.skipTest("there is no stand-in for CUDA in a build with a sanitizer")
        self.environment |= {"LOCKSTEP_NCCL": NCCL}
        result = self.run_command([LOCKSTEP, "run", "-n", RANKS, "--no-logs", "env", f"LD_PRELOAD={CUDA}", *self.command(), "--device", "cuda",
                                   "--compare"], patience=PATIENCE)
        self.check_job(result, same_bits=False)
        del self.weights[self.id()]
        difference = re.search(r"largest difference of a parameter (\S+)", result.stdout)
        self.assertLess(float(difference[1]), 1e-3, "from plain libtorch in one process on the CPU")

    def test_srun(self):
        """Two nodes, which count as two machines: they are told apart by their numbers."""
        if not Slurm.is_installed():
            self.skipTest("slurmctld, slurmd or srun is not installed")
        with Slurm(nodes=2) as slurm:
            variables = {**self.environment, **self.secret(), "RANK": "", "WORLD_SIZE": "", "MASTER_ADDR": "127.0.0.1",
                         "MASTER_PORT": str(free_ports(1)[0]), "LOCKSTEP_BACKEND": "hierarchical"}
            command = ["sh", "-c", 'LOCKSTEP_NODE=$SLURM_NODEID exec "$@"', "sh", *self.command()]
            self.check_job(slurm.run(["-N2", "-n", str(RANKS), "--ntasks-per-node=2"], command, variables, patience=PATIENCE))


if __name__ == "__main__":
    unittest.main(verbosity=2)
