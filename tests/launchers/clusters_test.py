#!/usr/bin/env python3
"""The scripts of docs/clusters/ as they are there, on this machine: two nodes of Slurm, hosts by their loopback addresses, pods as
processes. What stands in for ssh is a shell that does not inherit anything."""
import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import unittest

from script_jobs import prepare_script_test
from slurm import Slurm

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "docs/clusters"
PROGRAM = os.environ["LAUNCHERS_TEST_PROGRAM"]
SSH = """#!/bin/sh
echo "$1" >> hosts
shift
exec env -i PATH="$PATH" HOME="$HOME" XDG_RUNTIME_DIR="$(mktemp -d -p "$PWD")" sh -c "$*"
"""


class Clusters(unittest.TestCase):
    def setUp(self):
        prepare_script_test(self, own_commands=True)  # an ssh

    def check(self, output, size, source, backends):
        said = re.findall(r"rank (\d+) of (\d+), local rank (\d+), started by (.*?), over (\w+): sum (\d+)", output)
        self.assertEqual(sorted((int(rank), int(of), by, int(total)) for rank, of, _, by, _, total in said),
                         [(rank, size, source, size * (size + 1) // 2) for rank in range(size)], output)
        self.assertIn({backend for *_, backend, _ in said}, [{backend} for backend in backends], output)

    def run_script(self, *words, fails=False, **variables):
        done = subprocess.run([str(word) for word in words], cwd=self.folder, env=self.environment | variables, text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout

    def run_slurm(self, **options):
        """What the job's log says."""
        if not Slurm.is_installed():
            self.skipTest("slurmctld, slurmd or srun is not installed")
        with Slurm(nodes=2) as slurm:
            self.environment["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
            said = self.run_script("sbatch", "--wait", SCRIPTS / "slurm.sh", PROGRAM, **options)
            logs = list(self.folder.glob("lockstep-*.log"))
            self.assertEqual(len(logs), 1, said + slurm.logs())
            return logs[0].read_text()

    def test_slurm(self):
        self.check(self.run_slurm(), 4, "Slurm", ["hierarchical", "shm"])

    def test_slurm_names_a_killed_rank(self):
        log = self.run_slurm(fails=True, LOCKSTEP_FAIL_POINT="comm.posted@2=kill")
        self.assertRegex(log, r"task 2: Killed|error: .*rank 2 .*is dead", log)
        self.assertNotIn("sum", log)

    def run_mpirun(self, which, program, **options):
        mpirun = shutil.which(f"mpirun.{which}")
        if not mpirun:
            self.skipTest(f"mpirun.{which} is not installed")
        return self.run_script(SCRIPTS / "mpirun.sh", "127.0.0.1:3", *program, MPIRUN=mpirun, OMPI_ALLOW_RUN_AS_ROOT="1",
                               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1", **options)

    def test_open_mpi(self):
        self.check(self.run_mpirun("openmpi", [PROGRAM]), 3, "Open MPI", ["shm"])

    def test_mpich(self):
        self.check(self.run_mpirun("mpich", [PROGRAM]), 3, "MPICH", ["shm"])

    def test_mpirun_names_a_killed_rank(self):
        """Open MPI passes no variable on that is not named, so each rank sets it itself. It reports the rank that it sees end first:
        that may be one that Lockstep has told of the death, and then it is Lockstep's error that names the killed one."""
        program = ["env", "LOCKSTEP_FAIL_POINT=comm.posted@1=kill", PROGRAM]
        for which, named in (("openmpi", r"process rank 1 with PID .*signal 9|error: .*rank 1 \(pid \d+\) is dead"),
                             ("mpich", r"rank 1 failed: exit code 137|error: .*rank 1 \(pid \d+\) is dead")):
            output = self.run_mpirun(which, program, fails=True)
            self.assertRegex(output, named)
            self.assertNotIn("sum", output)

    def test_ssh(self):
        (self.folder / "ssh").write_text(SSH)
        (self.folder / "ssh").chmod(0o700)
        output = self.run_script(SCRIPTS / "ssh.sh", "127.0.0.2,127.0.0.3", "2", PROGRAM, "two words")
        self.assertEqual(sorted((self.folder / "hosts").read_text().split()), ["127.0.0.2", "127.0.0.3"])
        self.assertEqual(output.count("two words"), 4, output)
        self.check(output, 4, "lockstep", ["hierarchical"])

    def test_ssh_passes_on_that_a_rank_failed(self):
        (self.folder / "ssh").write_text(SSH)
        (self.folder / "ssh").chmod(0o700)
        done = subprocess.run([SCRIPTS / "ssh.sh", "127.0.0.2,127.0.0.3", "1", "sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; exit 7"],
                              cwd=self.folder, env=self.environment, text=True, timeout=600, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 7, done.stdout)
        self.assertIn("node 1: rank 1 failed first: exit code 7", done.stdout)

    def test_kubernetes(self):
        """The pods' command with the variables of the manifest, but for what names hosts and files of the image."""
        manifest = (SCRIPTS / "kubernetes.yaml").read_text()
        script = textwrap.dedent(re.search(r"args:\n +- \|\n(.*?)\n +volumeMounts", manifest, re.S).group(1))
        variables = dict(re.findall(r'\{name: (\w+), value: "?(.*?)"?\}', manifest))
        self.assertEqual(set(variables), {"NODES", "MASTER_ADDR", "MASTER_PORT", "SECRET", "PROGRAM"})
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.environment["MASTER_PORT"], "PROGRAM": PROGRAM,
                      "SECRET": str(self.folder / "job.secret")}
        pods = []
        for index in range(int(variables["NODES"])):
            home = self.folder / f"train-{index}"
            home.mkdir(mode=0o700)
            pod = subprocess.Popen(["sh", "-c", script], cwd=home, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env=self.environment | variables | {"JOB_COMPLETION_INDEX": str(index), "XDG_RUNTIME_DIR": str(home)})
            self.addCleanup(lambda pod=pod: (pod.kill(), pod.communicate()))
            pods.append(pod)
        outputs = [pod.communicate(timeout=600)[0] for pod in pods]
        self.assertEqual([pod.returncode for pod in pods], [0, 0], outputs)
        self.check("".join(outputs), 4, "lockstep", ["hierarchical"])


if __name__ == "__main__":
    unittest.main()
