#!/usr/bin/env python3
"""jobs_test.py [CLASS]: jobs of one user at the same time, under each launcher that is installed. Each rank contributes its job's
number, so every sum says whose ranks have met. LAUNCHERS_TEST_ROUNDS says how often (1), LAUNCHERS_TEST_JOBS how many at once (10)."""
import os
import shutil
import subprocess
import sys
import unittest

from launchers_test import PROGRAM, LauncherTest, finish, mpirun, torchrun
from slurm import Slurm, free_ports

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
ROUNDS = int(os.environ.get("LAUNCHERS_TEST_ROUNDS", "1"))
JOBS = int(os.environ.get("LAUNCHERS_TEST_JOBS", "10"))


class JobsTest(LauncherTest):
    def program(self, job):
        return [PROGRAM, "--job", str(1000 * (job + 1))]

    def start(self, command, environment=None):
        return subprocess.Popen([str(word) for word in command], env={**self.environment, **(environment or {})}, cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def check_sums(self, job, output, size, times=1):
        total = size * 1000 * (job + 1) + size * (size + 1) // 2
        self.assertEqual(output.count(f": sum {total} "), size * times, f"job {job} adds up to {total}:\n{output}")
        self.assertEqual(output.count(": sum "), size * times, output)

    def at_once(self, processes_of, size, jobs=JOBS, rounds=ROUNDS, times=1):
        """`processes_of(job)` starts a job of `size` ranks; all jobs run at the same time."""
        for _ in range(rounds):
            started = [processes_of(job) for job in range(jobs)]
            for job, processes in enumerate(started):
                done = finish(self, processes)
                self.assertEqual(done.returncode, 0, f"job {job}: {done.stdout}")
                self.check_sums(job, done.stdout, size, times)


class AtOnce(JobsTest):
    def test_mpich(self):
        launcher = mpirun(self, "mpich")
        for size in (2, 3):
            self.at_once(lambda job, size=size: [self.start([*launcher, "-n", size, *self.program(job)])], size)

    def test_mpich_with_programs_between_that_close_its_descriptors(self):
        launcher = mpirun(self, "mpich")
        closing = ["sh", "-c", 'exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; "$@"; exit $?', "sh"]
        self.at_once(lambda job: [self.start([*launcher, "-n", 2, *closing, *self.program(job)])], 2, jobs=3)

    def test_mpich_with_the_same_number_of_a_master_port(self):
        launcher = mpirun(self, "mpich")
        same = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        self.at_once(lambda job: [self.start([*launcher, "-n", 2, *self.program(job)], same)], 2, jobs=4)

    def test_open_mpi(self):
        launcher = mpirun(self, "openmpi")
        self.at_once(lambda job: [self.start([*launcher, "-n", 2, *self.program(job)])], 2)

    def test_torchrun(self):
        """Each starts a Python with torch, so there are few unless more are asked for."""
        launcher = torchrun(self)
        jobs = JOBS if "LAUNCHERS_TEST_JOBS" in os.environ else 3
        self.at_once(lambda job: [self.start([*launcher, "--nproc-per-node=2", "--no-python", *self.program(job)])], 2, jobs=jobs)

    def test_lockstep_run(self):
        self.at_once(lambda job: [self.start([LOCKSTEP, "run", "-n", 2, "--no-logs", *self.program(job)])], 2)

    def test_by_hand(self):
        ports = free_ports(JOBS)
        self.at_once(lambda job: [self.start(self.program(job), {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(ports[job])})
                                  for rank in range(2)], 2)

    def test_slurm_steps_side_by_side_in_one_allocation(self):
        if not Slurm.is_installed():
            self.skipTest("slurmctld, slurmd or srun is not installed")
        with Slurm(nodes=1) as slurm:
            steps = " ".join(f"srun --overlap -n2 {' '.join(self.program(job))} > step{job} 2>&1 & " for job in range(JOBS))
            for _ in range(ROUNDS):
                done = subprocess.run(["salloc", "-N1", "-n2", "sh", "-c", f"{steps} wait"], cwd=self.folder, timeout=600, text=True,
                                      env={**self.environment, "SLURM_CONF": slurm.environment["SLURM_CONF"]}, capture_output=True)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                for job in range(JOBS):
                    self.check_sums(job, (self.folder / f"step{job}").read_text(), 2)


class Nested(JobsTest):
    """A launcher as a rank of another."""

    def test_lockstep_run_in_mpirun(self):
        for which in ("mpich", "openmpi"):
            launcher = mpirun(self, which)
            self.at_once(lambda job: [self.start([*launcher, "-n", 2, LOCKSTEP, "run", "-n", 2, "--no-logs", *self.program(job)])], 2,
                         jobs=2, rounds=1, times=2)

    def test_mpirun_in_a_rank_is_refused(self):
        """The inner ranks have RANK and WORLD_SIZE of the outer one, so both are the same rank."""
        launcher = mpirun(self, "mpich")
        outer = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(free_ports(1)[0]), "LOCKSTEP_TIMEOUT": "20"}
        done = finish(self, [self.start([*launcher, "-n", 2, *self.program(0)], outer)])
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"came as rank 0, which process \d+ is already")


class ProcessNamespaces(JobsTest):
    """Containers that share the folder in which ranks meet."""

    def setUp(self):
        super().setUp()
        self.container = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if not shutil.which("unshare") or self.run_command([*self.container, "true"]).returncode != 0:
            self.skipTest("this user may not make process namespaces")

    def test_by_hand_with_the_same_master_port(self):
        script = ("for rank in 0 1; do RANK=$rank WORLD_SIZE=2 MASTER_PORT=29500 \"$@\" & pids=\"$pids $!\"; done; "
                  "for pid in $pids; do wait $pid || exit 1; done")
        self.at_once(lambda job: [self.start([*self.container, "sh", "-c", script, "sh", *self.program(job)])], 2, jobs=5)

    def test_mpich(self):
        launcher = mpirun(self, "mpich")
        self.at_once(lambda job: [self.start([*self.container, *launcher, "-n", 2, *self.program(job)])], 2, jobs=5)


class Refused(JobsTest):
    """What would be a mix is an error on every rank that came, and never a sum."""

    def by_hand(self, *ranks, **variables):
        """Ranks (RANK, WORLD_SIZE, job), a quarter of a second apart, as the order says who finds what."""
        started = []
        for rank, size, job in ranks:
            started.append(self.start(self.program(job), {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCKSTEP_TIMEOUT": "20",
                                                          **variables}))
        outputs = []
        for process in started:
            self.addCleanup(lambda process=process: (process.kill(), process.communicate()))
            outputs.append(process.communicate(timeout=600)[0])
            self.assertNotEqual(process.returncode, 0, outputs)
            self.assertNotIn("sum", outputs[-1])
        return outputs

    def test_nothing_tells_jobs_apart(self):
        for output in self.by_hand((0, 2, 0), (1, 2, 0)):
            self.assertRegex(output, r"rank [01] of 2: rank and world size are given by hand, and nothing distinguishes this job .* Set MASTER_PORT")

    def test_jobs_of_different_sizes_at_one_port(self):
        for output in self.by_hand((0, 2, 0), (2, 3, 1), MASTER_PORT=str(free_ports(1)[0])):
            self.assertRegex(output, "ranks of two jobs have met: .*2 ranks started by hand.*3 ranks started by hand.*MASTER_PORT")

    def test_a_rank_twice(self):
        for output in self.by_hand((0, 3, 0), (1, 3, 0), (1, 3, 1), MASTER_PORT=str(free_ports(1)[0])):
            self.assertRegex(output, r"process \d+ came as rank 1, which process \d+ is already")

    def test_rank_0_twice(self):
        for output in self.by_hand((0, 2, 0), (0, 2, 1), MASTER_PORT=str(free_ports(1)[0])):
            self.assertRegex(output, r"process \d+ came as rank 0, which process \d+ is already")

    def test_two_jobs_at_one_store(self):
        """Two jobs with one secret and one port; the second has no rank 0, as that one cannot serve there."""
        network = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0",
                   **self.secret()}
        outputs = self.by_hand((0, 3, 0), (1, 2, 1), (2, 3, 0), **network)
        self.assertRegex("".join(outputs), "ranks of two jobs have met at one store: .*[23] ranks started by hand.*[23] ranks started by hand")

    def test_a_rank_twice_at_one_store(self):
        network = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0",
                   **self.secret()}
        outputs = self.by_hand((0, 3, 0), (1, 3, 0), (1, 3, 1), **network)
        self.assertRegex("".join(outputs), r"another process has come as rank 1 before: process \d+ of \S+ .*, this is process \d+")


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
