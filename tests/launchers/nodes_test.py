#!/usr/bin/env python3
"""lockstep run --nnodes: several launchers on this machine, as on several machines."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from slurm import free_ports

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
PROGRAM = os.environ["LAUNCHERS_TEST_PROGRAM"]
BLAME = os.environ["BLAME_TEST_PROGRAM"]


def child_process(process, name, state=""):
    """The number of the child of that name, once it is in that state."""
    while process.poll() is None:
        for number in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            found, _, rest = pathlib.Path(f"/proc/{number}/stat").read_text().partition("(")[2].rpartition(") ")
            if found == name and rest.startswith(state):
                return int(number)
    raise AssertionError(f"there is no {name}: {process.communicate()[0]}")


class Nodes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lockstep-nodes-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.secret = self.folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)
        self.port = free_ports(1)[0]
        self.processes = []
        self.addCleanup(self.end)

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()

    def start(self, node, ranks, command, nodes=2, options=(), runtime=None, variables=None):
        runtime = self.folder / (runtime or "shared")
        runtime.mkdir(exist_ok=True, mode=0o700)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD_SIZE", "LOCKSTEP_"))}
        environment |= {"XDG_RUNTIME_DIR": str(runtime), "OMP_NUM_THREADS": "1", **(variables or {})}
        words = [LOCKSTEP, "run", "--nnodes", nodes, "--node-rank", node, "--master-addr", "127.0.0.2", "--master-port", self.port,
                 "--nproc-per-node", ranks, "--secret-file", self.secret, "--no-logs", *options, *command]
        process = subprocess.Popen([str(word) for word in words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True)
        self.processes.append(process)
        return process

    def finish(self):
        return self.finish_of(self.processes)

    def finish_of(self, processes):
        outputs = [process.communicate(timeout=600)[0] for process in processes]
        return [process.returncode for process in processes], outputs

    def check_ranks(self, counts, backend, runtimes):
        for node, ranks in enumerate(counts):
            self.start(node, ranks, [PROGRAM], nodes=len(counts), runtime=runtimes[node])
        codes, outputs = self.finish()
        self.assertEqual(codes, [0] * len(counts), outputs)
        size = sum(counts)
        first = 0
        for ranks, output in zip(counts, outputs):
            for local in range(ranks):
                rank = first + local
                self.assertIn(f"[{rank}] rank {rank} of {size}, local rank {local}, started by lockstep, over {backend}: "
                              f"sum {size * (size + 1) // 2}\n", output)
            first += ranks

    def test_ranks_are_numbered_node_by_node_and_share_memory_where_it_is_proved(self):
        self.check_ranks([2, 1], "shm", ["shared", "shared"])

    def test_without_the_proof_they_talk_over_tcp(self):
        self.check_ranks([1, 1], "tcp", ["a", "b"])

    def test_ranks_of_which_some_share_memory_use_it(self):
        self.check_ranks([1, 2], "hierarchical", ["a", "b"])

    def test_three_nodes(self):
        self.check_ranks([1, 2, 1], "hierarchical", ["a", "a", "b"])

    def test_a_failing_rank_stops_the_job_on_all_nodes_and_everybody_says_which(self):
        self.start(0, 1, ["sleep", "1000"])
        self.start(1, 2, ["sh", "-c", "[ $RANK != 2 ] && exec sleep 1000; exit 7"])
        codes, outputs = self.finish()
        self.assertEqual(codes, [7, 7], outputs)
        self.assertIn("node 1: rank 2 failed first: exit code 7", outputs[0])
        self.assertIn("rank 2 of 3 failed first: exit code 7", outputs[1])
        self.assertIn("on node 1", outputs[1])

    def test_the_only_rank_of_a_node_fails_and_everybody_says_which(self):
        self.start(0, 2, ["sleep", "1000"])
        self.start(1, 1, ["sh", "-c", "exit 7"])
        codes, outputs = self.finish()
        self.assertEqual(codes, [7, 7], outputs)
        self.assertIn("node 1: rank 2 failed first: exit code 7", outputs[0])

    def check_last_lines(self, outputs, pattern):
        """Every launcher's last line tells of the first cause, in the same words."""
        last = [output.splitlines()[-1].removeprefix("lockstep: ").removeprefix("the job failed on another machine: ")
                for output in outputs]
        self.assertRegex(last[0], pattern, outputs)
        self.assertEqual(len(set(last)), 1, outputs)

    def test_the_first_cause_is_on_every_launchers_last_line_with_its_last_words(self):
        """Whichever rank notices and whichever process ends first: all programs catch their errors and return 1."""
        for cause in range(4):
            with self.subTest(cause=cause):
                self.port = free_ports(1)[0]
                launchers = [self.start(node, 2, [BLAME, f"throw@{cause}"], runtime="ab"[node]) for node in range(2)]
                codes, outputs = self.finish_of(launchers)
                self.assertEqual(codes, [1, 1], outputs)
                self.check_last_lines(outputs, rf"^node {cause // 2}: rank {cause} failed first: exit code 1, pid \d+ on \S+, after "
                                               rf"\d+\.\d s; its last words: the file of rank {cause} is gone$")
                self.assertIn(f"rank {cause} of 4 failed first: exit code 1", outputs[cause // 2])

    def test_a_stopped_rank_is_named_on_its_own_machine_and_on_the_other(self):
        for cause in (0, 1):
            with self.subTest(cause=cause):
                self.port = free_ports(1)[0]
                launchers = [self.start(node, 1, [BLAME, f"stop@{cause}"], runtime="ab"[node], variables={"LOCKSTEP_TIMEOUT": "2"})
                             for node in range(2)]
                codes, outputs = self.finish_of(launchers)
                self.assertEqual(codes, [1, 1], outputs)
                self.check_last_lines(outputs, rf"^node {cause}: rank {cause} failed first: it was stopped \(SIGSTOP\) while other "
                                               rf"ranks waited for it, pid \d+ on \S+, after ")

    def test_a_rank_that_returns_early_is_named_though_its_launcher_may_be_content(self):
        """Whether the launcher of node 1 hears of the failure depends on whether it still runs."""
        launchers = [self.start(node, 1, [BLAME, "return@1"], runtime="ab"[node]) for node in range(2)]
        codes, outputs = self.finish_of(launchers)
        self.assertIn(codes, ([1, 0], [1, 1]), outputs)
        self.assertIn("node 1: rank 1 ended first: exit code 0, while other ranks needed it", outputs[0].splitlines()[-1])

    def test_a_killed_launcher_ends_the_job_on_the_other_node(self):
        for killed in (0, 1):
            self.port = free_ports(1)[0]
            processes = [self.start(node, 1, ["sh", "-c", "echo started; exec sleep 1000"]) for node in range(2)]
            for process in processes:
                while "started" not in process.stdout.readline():
                    self.assertIsNone(process.poll())
            processes[killed].send_signal(signal.SIGKILL)
            output = processes[1 - killed].communicate(timeout=600)[0]
            processes[killed].communicate(timeout=600)
            self.assertNotEqual(processes[1 - killed].returncode, 0)
            self.assertIn(f"node {killed}: the launcher of node {killed}", output)

    def test_a_launcher_that_dies_before_it_has_started_its_ranks_is_told_to_the_other_node(self):
        self.start(0, 1, ["sleep", "1000"])
        self.start(1, 1, ["sleep", "1000"], variables={"LOCKSTEP_FAIL_POINT": "launch.guardian@0=kill"})
        codes, outputs = self.finish()
        self.assertEqual(codes, [1, 137], outputs)
        self.assertIn("node 1: the launcher of node 1 is gone", outputs[0])

    def test_a_second_launcher_with_the_same_number_is_refused_and_harms_nobody(self):
        launchers = [self.start(node, 1, ["sh", "-c", f"echo started; while [ ! -e {self.folder}/enough ]; do sleep 0.05; done"])
                     for node in range(2)]
        for process in launchers:
            while "started" not in process.stdout.readline():
                self.assertIsNone(process.poll())
        second = self.start(1, 1, ["true"])
        self.assertIn("there are two launchers with --node-rank 1", second.communicate(timeout=600)[0])
        self.assertNotEqual(second.returncode, 0)
        (self.folder / "enough").touch()
        codes, outputs = self.finish_of(launchers)
        self.assertEqual(codes, [0, 0], outputs)

    def test_ctrl_c_on_one_node_stops_both(self):
        processes = [self.start(node, 1, ["sh", "-c", "echo started; exec sleep 1000"]) for node in range(2)]
        for process in processes:
            while "started" not in process.stdout.readline():
                self.assertIsNone(process.poll())
        processes[1].send_signal(signal.SIGINT)
        codes, outputs = self.finish()
        self.assertEqual(codes, [130, 130], outputs)

    def test_a_store_that_is_late_ends_nothing(self):
        """As on a machine that stands still for a while. The launcher of node 0 stops itself when all have met and it has not
        turned to the store yet."""
        launchers = [self.start(0, 1, [PROGRAM], variables={"LOCKSTEP_FAIL_POINT": "launch.guardian@0=stop"}),
                     self.start(1, 1, [PROGRAM])]
        guardian = child_process(launchers[0], "lockstep-guard", "T")
        store = child_process(launchers[0], "lockstep-store")
        os.kill(store, signal.SIGSTOP)
        try:
            os.kill(guardian, signal.SIGCONT)
            with self.assertRaises(subprocess.TimeoutExpired):
                launchers[0].wait(timeout=3)
        finally:
            os.kill(store, signal.SIGCONT)
        codes, outputs = self.finish()
        self.assertEqual(codes, [0, 0], outputs)

    def test_nobody_else_sees_the_secret(self):
        self.start(0, 1, ["sh", "-c", "tr '\\0' '\\n' < /proc/self/environ; cat /proc/$PPID/cmdline"], nodes=1)
        self.start(0, 1, ["sh", "-c", "env; tr '\\0' ' ' < /proc/self/cmdline"], nodes=2)
        self.start(1, 1, ["true"], nodes=2)
        codes, outputs = self.finish()
        self.assertEqual(codes, [0, 0, 0], outputs)
        for form in (self.secret.read_bytes().hex(), self.secret.read_bytes().decode("latin-1")):
            self.assertNotIn(form, "".join(outputs))
        self.assertIn("LOCKSTEP_SECRET_FD=", outputs[1])

    def test_mistakes_are_named_before_anything_starts(self):
        self.secret.chmod(0o644)
        self.start(0, 1, ["true"])
        _, outputs = self.finish()
        self.assertIn("chmod 600", outputs[0])

    def test_an_address_that_is_none_is_refused_with_its_option(self):
        done = subprocess.run([LOCKSTEP, "run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "no-such-host.invalid",
                               "--secret-file", str(self.secret), "--no-logs", "true"], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn('--master-addr: cannot connect to "no-such-host.invalid": ', done.stderr)

    def test_a_node_that_does_not_come_is_named(self):
        self.processes.append(subprocess.Popen(
            [LOCKSTEP, "run", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.2", "--master-port", str(self.port),
             "--secret-file", str(self.secret), "--no-logs", "true"],
            env={**os.environ, "LOCKSTEP_TIMEOUT": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        codes, outputs = self.finish()
        self.assertNotEqual(codes, [0])
        self.assertIn("node(s) 1 did not come", outputs[0])


if __name__ == "__main__":
    unittest.main()
