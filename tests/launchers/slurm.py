"""A Slurm cluster on this machine: one controller and virtual nodes, started and ended by their process numbers."""
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

CONFIGURATION = """ClusterName=lockstep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
TmpFS={folder}/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdTimeout=30
KillWait=5
"""


def free_ports(count):
    """Below those that the kernel gives to outgoing connections (32768 and up), so that nobody's takes one in between."""
    found = set()
    while len(found) < count:
        port = random.randrange(20000, 32767)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                found.add(port)
            except OSError:
                pass  # somebody listens there
    return list(found)


class Slurm:
    """with Slurm(nodes=2) as slurm: slurm.run(["-N2", "-n4"], [program])"""

    def __init__(self, nodes):
        self.names = [f"n{number + 1}" for number in range(nodes)]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-slurm-"))
        self.daemons = []

    @staticmethod
    def is_installed():
        return all(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") for name in ("slurmctld", "slurmd", "srun"))

    def __enter__(self):
        host = socket.gethostname().split(".")[0]
        controller, *ports = free_ports(1 + len(self.names))
        for name in ["state", "log"] + [f"{kind}.{node}" for kind in ("spool", "tmp") for node in self.names]:
            (self.folder / name).mkdir()
        text = CONFIGURATION.format(host=host, port=controller, user=subprocess.check_output(["id", "-un"], text=True).strip(),
                                    folder=self.folder)
        for number, (node, port) in enumerate(zip(self.names, ports)):
            text += (f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.{number + 2} Port={port} CPUs=2 RealMemory=100 "
                     "State=UNKNOWN\n")
        text += f"PartitionName=test Nodes={','.join(self.names)} Default=YES MaxTime=10 State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.start(["/usr/sbin/slurmctld", "-D"])
        for node in self.names:
            self.start(["/usr/sbin/slurmd", "-D", "-N", node])
        self.wait_until_idle()
        return self

    def start(self, command):
        with open(self.folder / "log" / f"{len(self.daemons)}.out", "w") as output:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=output, stderr=output, start_new_session=True))

    def wait_until_idle(self):
        end = time.monotonic() + 600
        while True:
            states = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=self.environment, capture_output=True, text=True).stdout
            if states.split().count("idle") == len(self.names):
                return
            if time.monotonic() > end:
                raise RuntimeError(f"the Slurm nodes did not come up: {states!r}\n" + self.logs())
            time.sleep(0.1)

    def logs(self):
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-2000:]}" for path in sorted((self.folder / "log").iterdir()))

    def run(self, options, command, environment=None, patience=600):
        return subprocess.run(["srun", *options, *map(str, command)], env={**self.environment, **(environment or {})},
                              capture_output=True, text=True, timeout=patience)

    def steps(self):
        """The slurmstepd processes of this cluster, told by their environment."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                name = (process / "cmdline").read_bytes()
                if name.startswith(b"slurmstepd") and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(timeout=5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self.steps():  # a step outlives its slurmd
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
