#!/usr/bin/env python3
"""Backend mpi under both mpiruns and srun: who meets over what, and what is said when something is wrong."""
import glob
import re
import time
import unittest

from launchers_test import PROGRAM, LauncherTest, mpirun
from slurm import Slurm

OTHER = {"openmpi": "mpich", "mpich": "openmpi"}
SOURCE = {"openmpi": "Open MPI", "mpich": "MPICH"}


class Mpi(LauncherTest):
    def setUp(self):
        super().setUp()
        self.environment |= {"LOCKSTEP_BACKEND": "mpi", "LOCKSTEP_TIMEOUT": "30"}

    def launch(self, which, ranks, **environment):
        return self.run_command([*mpirun(self, which), "-n", ranks, PROGRAM], environment)

    def test_one_to_four_ranks(self):
        for which in SOURCE:
            for ranks in (1, 2, 3, 4):
                self.check(self.launch(which, ranks), ranks, SOURCE[which], backend="mpi")

    def test_ranks_that_share_no_machine_meet_over_mpi(self):
        """No launcher says that all ranks are on this machine, there is no MASTER_ADDR and no secret."""
        for which in SOURCE:
            unset = {"openmpi": "OMPI_COMM_WORLD_LOCAL_SIZE", "mpich": "MPI_LOCALNRANKS"}[which]
            command = [*mpirun(self, which), "-n", 3, "env", "-u", unset, PROGRAM]
            self.check(self.run_command(command), 3, SOURCE[which], backend="mpi")
            self.check(self.run_command(command, {"LOCKSTEP_BACKEND": "hierarchical+mpi"}), 3, SOURCE[which], backend="shm")
            rank = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}[which]
            command[-1:] = ["sh", "-c", f"LOCKSTEP_NODE=$(({rank} / 2)) exec $0", PROGRAM]
            self.check(self.run_command(command, {"LOCKSTEP_BACKEND": "hierarchical+mpi"}), 3, SOURCE[which], backend="hierarchical+mpi")

    def test_a_killed_rank_ends_the_job(self):
        """MPI's launchers kill the others, often before these can say who is dead; Open MPI's names the rank, MPICH's the process.
        Where another rank was quicker, its error names the dead one."""
        for which in SOURCE:
            started = time.monotonic()
            result = self.launch(which, 3, LOCKSTEP_FAIL_POINT="comm.posted@1=kill")
            self.assertNotEqual(result.returncode, 0)
            self.assertLess(time.monotonic() - started, 20, "the launcher does not wait for the deadline")
            said = result.stdout + result.stderr
            self.assertRegex(said, {"openmpi": r"process rank 1 with PID .*signal 9|error: .*rank 1 .*is dead",
                                    "mpich": r"KILLED BY SIGNAL: 9|EXIT CODE: 9|error: .*rank 1 .*is dead"}[which])
            self.assertNotIn("sum", result.stdout)

    def test_a_stopped_rank_is_named_and_the_job_ends(self):
        for which in SOURCE:
            result = self.launch(which, 3, LOCKSTEP_FAIL_POINT="comm.posted@1=stop", LOCKSTEP_TIMEOUT="2")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("waiting for rank 1", result.stdout + result.stderr)

    def test_a_rank_that_left_is_named(self):
        for which, rank in (("openmpi", "OMPI_COMM_WORLD_RANK"), ("mpich", "PMI_RANK")):
            for backend in ("mpi", "hierarchical+mpi"):
                command = [*mpirun(self, which), "-n", 3, "sh", "-c", f"LOCKSTEP_NODE=$(({rank} / 2)) exec $0 --leaves 1", PROGRAM]
                result = self.run_command(command, {"LOCKSTEP_BACKEND": backend})
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                told = re.findall(r"told: (.*)", result.stdout)
                self.assertEqual(len(told), 2, result.stdout)
                for line in told:  # a rank that another one told may still be in the barrier before
                    self.assertRegex(line, r"barrier #[23] .*rank 1 \(pid .*\) has left the group while rank \d was in barrier #3")

    def test_the_wrong_mpi_is_refused(self):
        for which in SOURCE:
            mpirun(self, OTHER[which])
            result = self.launch(which, 2, LOCKSTEP_MPI=OTHER[which], LOCKSTEP_TIMEOUT="5")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("has 1 process(es), and the group has 2 ranks; start the job with the mpirun of this MPI", result.stdout)

    def test_without_an_mpi_launcher(self):
        result = self.run_command([PROGRAM], {"RANK": "0", "WORLD_SIZE": "1", "LOCKSTEP_MPI": "/nowhere/lockstep_mpi.so"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot load /nowhere/lockstep_mpi.so", result.stdout)

    def test_srun(self):
        if not Slurm.is_installed():
            self.skipTest("slurmctld, slurmd or srun is not installed")
        if not glob.glob("/usr/lib/*/slurm-wlm/mpi_pmi2.so"):
            self.skipTest("this Slurm starts no MPI jobs: it has no plugin pmi2")
        with Slurm(nodes=2) as slurm:
            mine = {**self.environment, "RANK": "", "WORLD_SIZE": "", "LOCKSTEP_MPI": "mpich"}
            result = slurm.run(["--mpi=pmi2", "-N2", "-n2"], [PROGRAM], mine)
            self.check(result, 2, "Slurm", backend="mpi", local_ranks=[0, 0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
