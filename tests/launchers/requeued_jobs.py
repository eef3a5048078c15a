"""Jobs of docs/clusters/requeue.sh in a Slurm of their own, for tests that have them requeued."""
import pathlib
import re
import subprocess
import time
import unittest

from script_jobs import prepare_script_test
from slurm import Slurm

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "docs/clusters/requeue.sh"
PATIENCE = 600


class RequeuedJobs(unittest.TestCase):
    def setUp(self):
        if not Slurm.is_installed():
            self.skipTest("slurmctld, slurmd or srun is not installed")
        prepare_script_test(self)

    def call(self, *words):
        return subprocess.run([str(word) for word in words], cwd=self.folder, env=self.environment, text=True, timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def log(self):
        """What the ranks of all starts and the script have printed."""
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("lockstep-*.log"))

    def wait_for(self, condition, slurm, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                self.fail(f"not within {PATIENCE} s: {what}\n{self.log()}\n{slurm.logs()}")
            time.sleep(0.05)

    def state(self, job):
        return dict(re.findall(r"(JobState|Restarts|ExitCode)=(\S+)", self.call("scontrol", "show", "job", job).stdout))

    def submit(self, slurm, *words):
        """Options of sbatch come from the script; `words` are the program and its arguments."""
        self.environment["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
        said = self.call("sbatch", "--parsable", SCRIPT, *words).stdout
        self.assertRegex(said.strip(), r"^\d+$", slurm.logs())
        return said.strip()

    def await_requeue(self, slurm, job, restarts):
        """Slurm lets a requeued job wait for two minutes, until no credential of the run before is valid. Here it waits for another
        second of the clock: slurmd compares whole seconds, and refuses a credential of that in which the run before ended."""
        self.wait_for(lambda: self.state(job) | {"ExitCode": ""} == {"JobState": "PENDING", "Restarts": str(restarts), "ExitCode": ""},
                      slurm, "the requeue")
        self.call("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def await_end(self, slurm, job, restarts):
        self.wait_for(lambda: self.state(job).get("JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"), slurm, "the job's end")
        self.assertEqual(self.state(job), {"JobState": "COMPLETED", "Restarts": str(restarts), "ExitCode": "0:0"},
                         self.log() + slurm.logs())
