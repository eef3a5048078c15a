"""What a rank finds when it starts: variables, cores, descriptors, standard input."""
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

from launcher_support import LOCKSTEP, Job, LauncherTest

CORES = len(os.sched_getaffinity(0))


def lines_by_rank(options, script, **keywords):
    """{rank: lines} of a job whose ranks run a shell script."""
    with Job(options, ["sh", "-c", script], **keywords) as job:
        code = job.wait()
        assert code == 0, job.err()
        found = {}
        for line in job.out().splitlines():
            rank, _, text = line.partition("] ")
            found.setdefault(int(rank[1:]), []).append(text)
        return found


def dry_run(options, **environment):
    """{rank: {variable or "cpus": value}} and the first line of a dry run."""
    result = subprocess.run([LOCKSTEP, "run", "--dry-run", *options, "true"], capture_output=True, text=True, check=True,
                            env={**{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}, **environment})
    ranks, current = {}, None
    for line in result.stdout.splitlines()[1:]:
        if match := re.fullmatch(r"rank (\d+)", line):
            current = ranks.setdefault(int(match.group(1)), {})
        elif match := re.fullmatch(r"  (\w+)=(.*)|  (cpus) (.*)", line):
            current[match.group(1) or match.group(3)] = match.group(2) or match.group(4)
    return ranks, result.stdout.splitlines()[0]


class Environment(LauncherTest):
    def test_says_who_each_rank_is(self):
        script = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $LOCKSTEP_JOB_ID"
        found = lines_by_rank(["-n", "3"], script)
        port, job = found[0][0].split()[5:]
        self.assertEqual(found, {rank: [f"{rank} {rank} 3 3 127.0.0.1 {port} {job}"] for rank in range(3)})
        self.assertRegex(job, r"^[0-9a-f]{16}$")
        with socket.socket() as other:
            other.bind(("127.0.0.1", int(port)))  # nobody holds the port

    def test_of_a_surrounding_job_is_replaced(self):
        outer = {"RANK": "7", "WORLD_SIZE": "9", "LOCKSTEP_JOB_ID": "outer", "LOCKSTEP_HUB_FDS": "77", "LOCKSTEP_TERMINAL": "5"}
        script = "env | grep -c -E '^(RANK|WORLD_SIZE|LOCKSTEP_JOB_ID)='; echo $RANK ${LOCKSTEP_HUB_FDS-none} ${LOCKSTEP_TERMINAL-none}"
        self.assertEqual(lines_by_rank(["-n", "1"], script, environment=outer), {0: ["3", "0 none none"]})

    def test_of_the_user_is_passed_on(self):
        self.assertEqual(lines_by_rank(["-n", "2"], "echo \"$MINE\"", environment={"MINE": "a  b"}), {0: ["a  b"], 1: ["a  b"]})

    def test_names_the_backend_that_an_option_chooses(self):
        script = "echo ${LOCKSTEP_BACKEND-none}"
        self.assertEqual(lines_by_rank(["-n", "1", "--backend", "shm"], script, environment={"LOCKSTEP_BACKEND": "tcp"}), {0: ["shm"]})
        self.assertEqual(lines_by_rank(["-n", "1", "--backend=cpu:tcp,cuda:nccl"], script), {0: ["cpu:tcp,cuda:nccl"]})
        self.assertEqual(lines_by_rank(["-n", "1"], script), {0: ["none"]})

    def test_with_a_misspelt_name_is_pointed_at(self):
        with Job(["-n", "1"], ["true"], environment={"LOCKSTEP_TIMOUT": "3"}) as job:
            self.assertEqual(job.wait(), 0)
            self.assertIn("LOCKSTEP_TIMOUT is set but means nothing", job.err())


class Hub(LauncherTest):
    # Rank r > 0 says who it is; rank 0 reads from entry i of its list and must hear rank i + 1.
    PROGRAM = """
import os, socket
fds = [int(fd) for fd in os.environ.get("LOCKSTEP_HUB_FDS", "").split(",") if fd]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert len(fds) == (size - 1 if rank == 0 else 1), fds
sockets = [socket.socket(fileno=fd) for fd in fds]
assert all(s.family == socket.AF_UNIX and s.type == socket.SOCK_SEQPACKET for s in sockets)
told = int(os.environ["LOCKSTEP_FAILURE_FD"].split(":")[0])  # through which ranks tell the launcher what has failed
held = [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and int(fd) not in [*fds, told]
        and os.path.exists("/proc/self/fd/" + fd) and "socket" in os.readlink("/proc/self/fd/" + fd)]
assert not held, held
if rank == 0:
    print([int(s.recv(100)) for s in sockets])
    for s in sockets:
        s.close()
else:
    sockets[0].send(str(rank).encode())
    assert sockets[0].recv(100) == b""  # the end, once rank 0 has closed: nobody else holds its side
    print("end seen")
"""

    def test_connects_rank_0_with_every_other_and_nobody_else(self):
        for ranks in (2, 3, 5):
            with self.subTest(ranks=ranks), Job(["-n", str(ranks)], ["python3", "-c", self.PROGRAM]) as job:
                self.assertEqual(job.wait(), 0, job.err())
                self.assertEqual(sorted(job.out().splitlines()),
                                 [f"[0] {list(range(1, ranks))}"] + [f"[{rank}] end seen" for rank in range(1, ranks)])

    def test_tells_the_survivors_of_a_death(self):
        # Rank 1 dies when rank 0 is there to notice, and rank 0 does not mind that the launcher stops it: Python takes its time to start.
        program = ("import os, signal, socket\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                   "other = socket.socket(fileno=int(os.environ['LOCKSTEP_HUB_FDS']))\n"
                   "if os.environ['RANK'] == '1':\n  other.recv(1)\n  os.kill(os.getpid(), 9)\n"
                   "other.send(b'x')\nassert other.recv(9) == b''\nprint('rank 1 is gone')\n")
        with Job(["-n", "2", "--grace", "20"], ["python3", "-c", program]) as job:
            self.assertEqual(job.wait(), 137)
            self.assertIn("[0] rank 1 is gone", job.out())


class Cores(LauncherTest):
    AFFINITY = "grep Cpus_allowed_list /proc/self/status | cut -f 2; echo $OMP_NUM_THREADS"

    def test_are_split_so_that_no_two_ranks_share_one(self):
        ranks = min(2, CORES)
        found = lines_by_rank(["-n", str(ranks)], self.AFFINITY)
        masks = [parse(found[rank][0]) for rank in range(ranks)]
        self.assertEqual(set().union(*masks), os.sched_getaffinity(0))
        self.assertEqual(sum(map(len, masks)), CORES)

    def test_are_everybodys_when_there_are_more_ranks(self):
        found = lines_by_rank(["-n", str(CORES + 1)], self.AFFINITY)
        for rank in range(CORES + 1):
            self.assertEqual((parse(found[rank][0]), found[rank][1]), (os.sched_getaffinity(0), "1"))

    def test_outside_the_launchers_own_mask_are_never_used(self):
        first = min(os.sched_getaffinity(0))
        found = lines_by_rank(["-n", "2"], self.AFFINITY, preexec_fn=lambda: os.sched_setaffinity(0, {first}))
        self.assertEqual(found, {0: [str(first), "1"], 1: [str(first), "1"]})
        with Job(["-n", "cpu"], ["echo", "x"], preexec_fn=lambda: os.sched_setaffinity(0, {first})) as job:
            job.wait()
            self.assertEqual(job.out(), "[0] x\n")

    def test_are_not_assigned_when_the_user_does_not_want_it(self):
        found = lines_by_rank(["-n", "2", "--no-affinity"], self.AFFINITY)
        self.assertEqual(parse(found[0][0]), os.sched_getaffinity(0))

    def test_of_a_large_machine_are_split_along_its_packages(self):
        machine = {"HWLOC_SYNTHETIC": "pack:2 core:4 pu:2"}  # hwloc then describes that machine in place of this one
        ranks, summary = dry_run(["-n", "4"], **machine)
        self.assertEqual([ranks[rank]["cpus"] for rank in range(4)], ["0-3", "4-7", "8-11", "12-15"])
        self.assertEqual({ranks[rank]["OMP_NUM_THREADS"] for rank in range(4)}, {"2"})
        self.assertEqual(summary, "4 ranks on 8 cores: 2 cores each, OMP_NUM_THREADS=2")

    def test_the_users_number_of_threads_is_kept(self):
        found = lines_by_rank(["-n", "2"], "echo $OMP_NUM_THREADS", environment={"OMP_NUM_THREADS": "7"})
        self.assertEqual(found, {0: ["7"], 1: ["7"]})

    def test_nproc_auto_is_a_rank_per_core_without_gpus(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("this machine has GPUs")
        with Job(["-n", "auto"], ["echo", "x"], environment={"HWLOC_SYNTHETIC": "core:3 pu:1"}) as job:
            job.wait()
            self.assertEqual(len(job.out().splitlines()), 3)


def parse(cpus):
    found = set()
    for part in cpus.split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


class StandardInput(LauncherTest):
    def test_goes_to_rank_0_and_the_others_have_none(self):
        with tempfile.TemporaryFile() as file:
            file.write(b"for rank 0\n")
            file.seek(0)
            found = lines_by_rank(["-n", "3"], "wc -c", stdin=file)
        self.assertEqual(found, {0: ["11"], 1: ["0"], 2: ["0"]})

    def test_may_be_closed(self):
        for fds in ((0,), (0, 1), (0, 1, 2)):
            with self.subTest(closed=fds):
                def close(fds=fds):
                    for fd in fds:
                        os.close(fd)
                with Job(["-n", "2"], ["sh", "-c", "cat; echo x > $RANK; exit 3"], preexec_fn=close) as job:
                    self.assertEqual(job.wait(), 3)
                    self.assertTrue((job.folder / "0").exists() and (job.folder / "1").exists())


class Commands(LauncherTest):
    def run_lockstep(self, *arguments):
        result = subprocess.run([LOCKSTEP, *arguments], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout, result.stderr

    def test_dry_run_starts_and_makes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([LOCKSTEP, "run", "-n", "2", "--dry-run", "touch", "a b"], cwd=folder, capture_output=True,
                                    text=True, check=True)
            self.assertEqual(os.listdir(folder), [])
        self.assertIn("  RANK=1\n", result.stdout)
        self.assertIn("  touch 'a b'\n", result.stdout)

    def test_info_lists_the_variables(self):
        code, out, _ = self.run_lockstep("info")
        self.assertEqual(code, 0)
        for name in ("RANK", "LOCKSTEP_TIMEOUT", "pidfd", "cores"):
            self.assertIn(name, out)

    def test_info_says_which_engines_there_are_and_their_versions(self):
        _, out, _ = self.run_lockstep("info")
        modules = pathlib.Path(LOCKSTEP).parent / "modules"
        for line, module, version in (("MPI +openmpi", "lockstep_mpi_openmpi", r"Open MPI v\d+\.\d+"),
                                      ("MPI +mpich", "lockstep_mpi_mpich", r"MPICH Version:\s+\d+\.\d+"), ("Gloo", "lockstep_gloo", r"Gloo \d+\.\d+")):
            there = (modules / f"{module}.so").exists()
            self.assertRegex(out, rf"(?m)^{line}:? +{version}.*/{module}\.so$" if there else rf"(?m)^{line}:? +no module; install")
        self.assertRegex(out, r"(?m)^NCCL +\S")

    def test_help_and_version_go_to_standard_output(self):
        for arguments in (["--help"], ["run", "--help"], ["run", "-n", "2", "--help", "./x"], ["--version"], ["info", "--help"],
                          ["bench", "--help"], ["trace", "--help"], ["trace", "analyze", "--help"], ["info", "--backends"]):
            with self.subTest(arguments=arguments):
                code, out, err = self.run_lockstep(*arguments)
                self.assertEqual((code, err), (0, ""))
                self.assertTrue(out)

    def test_a_number_of_ranks_may_be_spelt_as_for_mpirun(self):
        for spelling in (["-np", "3"], ["-np3"]):
            self.assertEqual(lines_by_rank(spelling, "echo $WORLD_SIZE"), {rank: ["3"] for rank in range(3)})
        code, out, err = self.run_lockstep("bench", "barrier", "-np", "2", "--no-bound", "--json")
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out.splitlines()[0])["ranks"], 2)

    def test_a_backend_that_is_none_is_64(self):
        code, _, err = self.run_lockstep("run", "-n", "2", "--backend", "shem", "true")
        self.assertEqual(code, 64)
        self.assertIn("shem", err)
        self.assertIn("hierarchical", err)

    def test_an_unknown_command_is_64(self):
        code, _, err = self.run_lockstep("rum", "./x")
        self.assertEqual(code, 64)
        self.assertIn("did you mean run?", err)
        self.assertEqual(self.run_lockstep()[0], 64)


if __name__ == "__main__":
    unittest.main()
