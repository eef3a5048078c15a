"""Starts the ranks of tests/faults/trial.cpp or ddp_trial.cpp as `lockstep run` would, but alone, so that nobody else ends the survivors."""
import ctypes
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

PROGRAM = pathlib.Path(os.environ["PEERS_TEST_PROGRAM"]).resolve()
BACKEND = os.environ.get("PEERS_TEST_BACKEND", "shm")
STEPS = 12  # of a trial
PATIENCE = 200.0  # seconds after which a rank counts as hanging; the machine may be busy


# What tests beside this one have in /dev/shm for a while: Open MPI's and MPICH's segments, Python's and torch's, folders of the save trials.
OTHERS = ("vader_segment", "mpich_shar_tmp", "psm_", "sem.", "torch_", "save-faults-")


def leftovers():
    return sorted(name for name in os.listdir("/dev/shm") if not name.startswith(OTHERS))


class Copy:
    """A process that Copies started, as far as a trial needs subprocess.Popen."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self, flags=os.WNOHANG):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        return self.poll(0)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


class Copies:
    """Starts ranks as copies of one process that has loaded its libraries (tests/faults/copies.h). This process is their parent."""

    def __init__(self, program):
        PR_SET_CHILD_SUBREAPER = 36
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen([program, "--copies", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                            env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL)  # read while loading

    def start(self, command, fds, environment, folder, output):
        variables = [f"{name}={value}" for name, value in environment.items() if name != "LOCKSTEP_HUB_FDS"]  # they get other numbers
        words = [str(len(command)), *map(str, command), str(folder), *variables]
        socket.send_fds(self.connection, ["\0".join(words).encode()], [output.fileno(), *fds])
        pid = int(self.connection.recv(64))
        assert pid > 0, f"{self.process.args} made no copy"
        return Copy(pid)

    def close(self):
        self.connection.close()
        self.process.wait()


class Ranks:
    """The processes of one trial. Output goes to files; the ranks are not waited for until the end, so a dead one is a zombie
    for its peers, as it is under many launchers."""

    def __init__(self, size, steps=STEPS, ending=None, variables=None, program=PROGRAM, copies=None, large=0):
        """large: in so many steps each rank sends a message so large that it takes its time, and a way of its own."""
        self.size = size
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-trial-"))
        self.stamps = self.folder / "stamps"
        self.stamps.write_bytes(bytes(4096))
        arguments = [str(self.stamps), str(steps), *([f"large={large}"] if large else []), *([ending] if ending else [])]
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(size - 1)]
        self.processes = []
        for rank in range(size):
            mine = [pair[0] for pair in pairs] if rank == 0 else [pairs[rank - 1][1]]
            fds = [end.fileno() for end in mine]
            environment = self.environment(rank, fds, variables or {})
            with open(self.folder / f"rank{rank}", "wb") as output:
                if copies:
                    self.processes.append(copies.start([program, *arguments], fds, environment, self.folder, output))
                else:
                    self.processes.append(subprocess.Popen([program, *arguments], pass_fds=fds, env=environment, cwd=self.folder,
                                                           stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        self.pidfds = [os.pidfd_open(process.pid) for process in self.processes]
        for pair in pairs:
            for end in pair:
                end.close()

    def environment(self, rank, fds, variables):
        base = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        if BACKEND.startswith("hierarchical"):
            base["LOCKSTEP_NODE"] = "first" if rank < self.size // 2 else "second"
        return {**base, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.size),
                "LOCAL_WORLD_SIZE": str(self.size), "LOCKSTEP_JOB_ID": os.urandom(8).hex(), "OMP_NUM_THREADS": "1",
                "LOCKSTEP_HUB_FDS": ",".join(map(str, fds)), "LOCKSTEP_BACKEND": BACKEND, **variables}

    def send(self, rank, number):
        """A signal; not through Popen, which would reap a rank that has ended."""
        signal.pidfd_send_signal(self.pidfds[rank], number)

    def output(self, rank):
        return (self.folder / f"rank{rank}").read_text(errors="replace")

    def stamp(self, rank):
        """Monotonic clock in ns before the last thing this rank did."""
        return struct.unpack_from("q", self.stamps.read_bytes(), 8 * rank)[0]

    def wait_for(self, rank, text, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while text not in self.output(rank):
            assert time.monotonic() < deadline, f"rank {rank} never printed {text!r}:\n{self.everything()}"
            time.sleep(0.0005)

    def finish(self, patience=PATIENCE):
        """Waits for all ranks without reaping any. Returns those that hang."""
        poll = select.poll()
        waiting = {fd: rank for rank, fd in enumerate(self.pidfds)}
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + patience
        while waiting and time.monotonic() < deadline:
            for fd, _ in poll.poll(max(0, deadline - time.monotonic()) * 1000):
                poll.unregister(fd)
                del waiting[fd]
        hanging = sorted(waiting.values())
        for rank in hanging:
            self.send(rank, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        strays = self.strays()
        assert not strays, f"these processes are left: {strays}\n{self.everything()}"
        return hanging

    def strays(self):
        """Processes of this trial that still exist: those that work in its folder, as all its children and theirs do."""
        found = []
        folder = str(self.folder.resolve())
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == folder:
                    words = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(name), words))
            except OSError:  # it has ended meanwhile, or is another user's
                pass
        return found

    def code(self, rank):
        return self.processes[rank].returncode

    def everything(self):
        return "".join(f"--- rank {rank}, exit code {self.code(rank)}\n{self.output(rank)}" for rank in range(self.size))

    def error(self, rank):
        """(time in ns, type, peer, message) of the error this rank printed; None if it printed none."""
        found = re.search(r"^error (\d+) (\w+) (-?\d+) (.*)$", self.output(rank), re.MULTILINE)
        return (int(found[1]), found[2], int(found[3]), found[4]) if found else None

    def checksums(self):
        return {rank: found[1] for rank in range(self.size) if (found := re.search(r"^done (\w+)$", self.output(rank), re.M))}

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for fd in self.pidfds:
            os.close(fd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Histogram:
    """Times to notice, in milliseconds, collected over trials and printed in powers of two."""

    def __init__(self):
        self.times = {}

    def add(self, phase, nanoseconds):
        self.times.setdefault(phase, []).append(nanoseconds / 1e6)

    @staticmethod
    def percentile(times, share):
        ordered = sorted(times)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def print(self, title):
        if not self.times:
            return
        everything = [t for times in self.times.values() for t in times]
        print(f"\n{title}\n{'':28}{'survivors':>10}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
        for phase, times in [*self.times.items(), ("all", everything)]:
            print(f"  {phase:26}{len(times):10}{self.percentile(times, .5):9.1f}{self.percentile(times, .99):9.1f}{max(times):9.1f}")
        low = 0.0
        high = 1.0
        while low < max(everything):
            count = sum(low <= t < high for t in everything)
            print(f"  {low:6.0f} to {high:5.0f} ms {count:6} {'#' * (60 * count // len(everything))}")
            low, high = high, 2 * high
