#!/usr/bin/env python3
"""A job of Slurm that is requeued: docs/clusters/requeue.sh with a program that counts and goes on where it was."""
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from slurm import Slurm, free_ports

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "docs/clusters/requeue.sh"
LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
PROGRAM = os.environ["RESUMED_TEST_PROGRAM"]
PATIENCE = 60
STEP_TIME = 2000  # microseconds


class Requeue(unittest.TestCase):
    def setUp(self):
        if not Slurm.is_installed():
            self.skipTest("slurmctld, slurmd or srun is not installed")
        folder = tempfile.TemporaryDirectory(prefix="r-")  # short: paths of sockets have an end
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "job.secret").write_bytes(os.urandom(32))
        (self.folder / "job.secret").chmod(0o600)
        foreign = ("RANK", "WORLD_SIZE", "MASTER_", "LOCKSTEP_", "SLURM_", "OMPI_", "PMI")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.environment |= {"XDG_RUNTIME_DIR": folder.name, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_ports(1)[0]),
                             "PATH": f"{pathlib.Path(LOCKSTEP).parent}:{os.environ['PATH']}"}

    def call(self, *words):
        return subprocess.run([str(word) for word in words], cwd=self.folder, env=self.environment, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def wait_for(self, condition, slurm, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                logs = "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))
                self.fail(f"not within {PATIENCE} s: {what}\n{logs}\n{slurm.logs()}")
            time.sleep(0.05)

    def state(self, job):
        return dict(re.findall(r"(JobState|Restarts|ExitCode)=(\S+)", self.call("scontrol", "show", "job", job).stdout))

    def submit(self, slurm, steps, *options):
        self.environment["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
        said = self.call("sbatch", "--parsable", *options, SCRIPT, PROGRAM, self.folder, steps, STEP_TIME).stdout
        self.assertRegex(said.strip(), r"^\d+$", slurm.logs())
        return said.strip()

    def count(self):
        try:
            return int((self.folder / "count").read_text())
        except (OSError, ValueError):
            return 0

    def starts(self, restarts, size=4):
        lines = (self.folder / "starts").read_text().splitlines() if (self.folder / "starts").exists() else []
        return sum(line.split()[1] == str(restarts) for line in lines) >= size

    def await_requeue(self, slurm, job, restarts):
        """Slurm lets a requeued job wait for two minutes, until no credential of the run before is valid: not here."""
        self.wait_for(lambda: self.state(job) | {"ExitCode": ""} == {"JobState": "PENDING", "Restarts": str(restarts), "ExitCode": ""},
                      slurm, "the requeue")
        self.call("scontrol", "update", f"JobId={job}", "StartTime=now")

    def check_end(self, slurm, job, steps, restarts):
        self.wait_for(lambda: self.state(job).get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"), slurm, "the job's end")
        self.assertEqual(self.state(job), {"JobState": "COMPLETED", "Restarts": str(restarts), "ExitCode": "0:0"}, slurm.logs())
        self.assertEqual(self.count(), steps)
        log = "".join(path.read_text() for path in self.folder.glob("lockstep-*.log"))
        done = re.findall(r"rank (\d) of 4 counted from (\d+) to (\d+) after (\d+) restarts", log)
        self.assertEqual(sorted(rank for rank, *_ in done), ["0", "1", "2", "3"], log)
        self.assertEqual({(int(to), int(again)) for _, _, to, again in done}, {(steps, restarts)}, log)
        return {int(first) for _, first, *_ in done}

    def test_a_job_preempted_twice_goes_on_where_it_was(self):
        with Slurm(nodes=2) as slurm:
            steps = 1500
            job = self.submit(slurm, steps)
            counts = []
            for restarts in range(2):
                at = self.count()
                self.wait_for(lambda restarts=restarts, at=at: self.starts(restarts) and self.count() > at + 20, slurm, "steps")
                self.assertEqual(self.call("scontrol", "requeue", job).returncode, 0)
                self.await_requeue(slurm, job, restarts + 1)
                counts.append(self.count())
            first = self.check_end(slurm, job, steps, 2)
            self.assertEqual(len(first), 1)
            self.assertGreaterEqual(first.pop(), counts[-1])
            ends = [line.split() for line in (self.folder / "ends").read_text().splitlines()]
            self.assertEqual([int(said) for said, _ in ends], [15, 15], "each time all ranks agreed to stop")

    def test_a_job_warned_before_its_time_limit_requeues_itself(self):
        """scancel --signal=USR1 is what #SBATCH --signal=USR1@60 does when the limit comes near."""
        with Slurm(nodes=2) as slurm:
            steps = 1000
            job = self.submit(slurm, steps)
            self.wait_for(lambda: self.count() > 20, slurm, "steps")
            self.call("scancel", "--signal=USR1", job)
            self.await_requeue(slurm, job, 1)
            self.check_end(slurm, job, steps, 1)
            self.assertEqual((self.folder / "ends").read_text().split()[0], "10")


if __name__ == "__main__":
    unittest.main()
