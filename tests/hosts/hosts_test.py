#!/usr/bin/env python3
"""hosts_test.py CLASS: jobs over two and three hosts with their own addresses (network namespaces).

HOSTS_TEST_COMMAND: build/lockstep. _RANK: build/tests/hosts/host_rank. _MNIST: build/examples/mnist, where there is libtorch.
_SUITE: build/testing/lockstep_core_ranks_tests. _SANITIZER: what they were built with.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from hosts import Hosts, why_not, write_secret  # noqa: E402
from mnist_data import cut_all  # noqa: E402

LOCKSTEP = os.environ["HOSTS_TEST_COMMAND"]
HOST_RANK = os.environ["HOSTS_TEST_RANK"]
MNIST = os.environ.get("HOSTS_TEST_MNIST")
SUITE = os.environ["HOSTS_TEST_SUITE"]
# Hosts of tests that run at the same time have the same addresses, in networks of their own; a job is known by address and port.
PORT = str(20000 + os.getpid() % 10000)
MODULES = pathlib.Path(LOCKSTEP).parent / "modules"
HAS_GLOO = (MODULES / "lockstep_gloo.so").exists()
WHY_NO_GLOO = "no module of backend gloo was built: libgloo-dev is not installed"
REASON = why_not()
DEADLINE = 4  # seconds without progress, LOCKSTEP_TIMEOUT


@unittest.skipIf(REASON, REASON)
class HostsTest(unittest.TestCase):
    def check_all_done(self, hosts, size, backend="tcp"):
        codes = hosts.finish()
        self.assertEqual(codes, [0] * len(codes), hosts.everything())
        for rank in range(size):
            self.assertIn(f"joined as rank {rank} of {size} over {backend}\n", hosts.everything())


class Meeting(HostsTest):
    def start_by_environment(self, hosts, ranks_per_host, steps, variables):
        size = len(hosts.names) * ranks_per_host
        for rank in range(size):
            hosts.start(rank // ranks_per_host, [HOST_RANK, "env", steps],
                        {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank % ranks_per_host),
                         "LOCAL_WORLD_SIZE": str(ranks_per_host), "MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": PORT, **variables})
        return size

    def test_by_environment(self):
        for count, ranks_per_host in ((2, 1), (3, 1), (2, 2)):
            with self.subTest(hosts=count, ranks_per_host=ranks_per_host), Hosts(count) as hosts:
                size = self.start_by_environment(hosts, ranks_per_host, 200, write_secret(hosts.folder))
                self.check_all_done(hosts, size, "hierarchical" if ranks_per_host > 1 else "tcp")

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_over_gloo(self):
        for count, ranks_per_host in ((2, 1), (2, 2), (3, 1)):
            with self.subTest(hosts=count, ranks_per_host=ranks_per_host), Hosts(count) as hosts:
                size = self.start_by_environment(hosts, ranks_per_host, 200, {"LOCKSTEP_BACKEND": "gloo", **write_secret(hosts.folder)})
                self.check_all_done(hosts, size, "gloo")

    def test_each_host_sends_its_share_and_no_more(self):
        self.check_share(2, 2, "hierarchical")
        self.check_share(2, 1, "tcp")
        self.check_share(3, 1, "tcp")

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_each_host_sends_its_share_and_no_more_over_gloo(self):
        self.check_share(2, 2, "hierarchical+gloo")
        self.check_share(3, 1, "gloo")

    def test_sums_of_half_precision_travel_as_float32_and_once(self):
        self.check_share(2, 4, "hierarchical", "bfloat16", 4)

    def check_share(self, machines, ranks_per_host, backend, dtype="float64", bytes_each=8):
        count, steps = 3 << 19, 12
        with self.subTest(hosts=machines, ranks_per_host=ranks_per_host), Hosts(machines) as hosts:
            variables = {"LOCKSTEP_BACKEND": backend, "HOST_RANK_COUNT": str(count), "HOST_RANK_DTYPE": dtype, **write_secret(hosts.folder)}
            size = self.start_by_environment(hosts, ranks_per_host, steps, variables)
            self.check_all_done(hosts, size, backend)
            share = 2 * (machines - 1) / machines * count * bytes_each * steps
            for host in range(machines):
                sent = hosts.bytes_sent(host)
                print(f"\nhost {host} sent {sent / share:.4f} of 2 (M - 1) / M of the bytes")
                self.assertGreaterEqual(sent, share)
                self.assertLessEqual(sent, 1.02 * share)

    def test_large_messages_within_a_host_are_read_out_of_memory(self):
        self.check_messages_within_hosts("hierarchical", {}, at_most=0.01)

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_large_messages_within_a_host_are_read_out_of_memory_over_gloo(self):
        self.check_messages_within_hosts("hierarchical+gloo", {}, at_most=0.01)

    def test_large_messages_within_a_host_that_does_not_let_them_be_read_go_over_its_sockets(self):
        self.check_messages_within_hosts("hierarchical", {"LOCKSTEP_DISABLE": "peer_memory"}, at_least=1)

    def check_messages_within_hosts(self, backend, more, at_least=0, at_most=1.1):
        count, steps = 3 << 19, 12
        with Hosts(2) as hosts:
            variables = {"LOCKSTEP_BACKEND": backend, "HOST_RANK_COUNT": str(count), "HOST_RANK_NEIGHBOURS": "1", **more,
                         **write_secret(hosts.folder)}
            size = self.start_by_environment(hosts, 2, steps, variables)
            self.check_all_done(hosts, size, backend)
            whole = 2 * count * 8 * steps
            for host in range(2):
                for interface in ("lo", "net"):
                    share = hosts.bytes_sent(host, interface) / whole
                    print(f"\nhost {host} sent {share:.4f} of its messages' bytes over {interface}")
                    self.assertLessEqual(share, at_most)
                    self.assertGreaterEqual(share, at_least if interface == "lo" else 0)

    def test_by_address(self):
        for count in (2, 3):
            with self.subTest(hosts=count), Hosts(count) as hosts:
                secret = write_secret(hosts.folder)
                for rank in range(count):
                    hosts.start(rank, [HOST_RANK, f"tcp://{hosts.addresses[0]}:{PORT}", 200, rank, count], secret)
                self.check_all_done(hosts, count)

    def test_without_a_secret_is_refused_with_a_word_on_how_to_make_one(self):
        with Hosts(2) as hosts:
            self.start_by_environment(hosts, 1, 10, {"LOCKSTEP_TIMEOUT": "10"})
            self.assertEqual(hosts.finish(), [3, 3], hosts.everything())
            for process in hosts.processes:
                self.assertIn("LOCKSTEP_SECRET_FILE", hosts.text(process))

    def test_with_different_secrets_is_refused(self):
        with Hosts(2) as hosts:
            (hosts.folder / "other").mkdir()
            for rank, folder in enumerate((hosts.folder, hosts.folder / "other")):
                hosts.start(rank, [HOST_RANK, f"tcp://{hosts.addresses[0]}:{PORT}", 10, rank, 2],
                            {"LOCKSTEP_TIMEOUT": "5", **write_secret(folder)})
            self.assertEqual(hosts.finish(), [3, 3], hosts.everything())
            self.assertIn("secret", hosts.text(hosts.processes[1]))

    def test_by_launchers(self):
        with Hosts(2) as hosts:
            secret = hosts.folder / "secret"
            write_secret(hosts.folder)
            for node in range(2):
                hosts.start(node, [LOCKSTEP, "run", "--nnodes", "2", "--node-rank", node, "--master-addr", hosts.addresses[0],
                                   "--master-port", PORT, "--nproc-per-node", "2", "--secret-file", secret, "--no-logs",
                                   HOST_RANK, "env", 200])
            codes = hosts.finish()
            self.assertEqual(codes, [0, 0], hosts.everything())
            for rank in range(4):
                self.assertIn(f"joined as rank {rank} of 4 over hierarchical", hosts.everything())


class Suite(HostsTest):
    """All tests of the core over a backend, but for those in which ranks die, over links of 1 Gbit/s: each rank is one process, which runs
    one test after the other."""

    # In which all ranks share memory, or one looks at another's process; or what is said once in a process, however many jobs it joins.
    LEFT_OUT = ("Hierarchical/AlikeNodesGiveTheGroupOfSharedMemoryOrOfMessagesAlone.*", "NewGroup/OverShmInAWorldOverTcp.*",
                "AnySource/ARankThatHasLeftIsNotMissed.*", "Connect/*", "UnaveragedSteps/AreSaidOnce.*")

    def check_suite(self, backend, *ranks_of_hosts, **more):
        with Hosts(len(ranks_of_hosts)) as hosts:
            for host in range(len(ranks_of_hosts)):
                hosts.limit(host, "1gbit")
            places = [(host, local) for host, ranks in enumerate(ranks_of_hosts) for local in range(ranks)]
            variables = {"RANKS_TEST_WORLD": backend, "RANKS_TEST_ON_HOSTS": "1", "WORLD_SIZE": str(len(places)),
                         "MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": PORT, **write_secret(hosts.folder), **more}
            for rank, (host, local) in enumerate(places):
                hosts.start(host, [SUITE, "--gtest_filter=-" + ":".join(self.LEFT_OUT)],
                            {"RANK": str(rank), "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(ranks_of_hosts[host]), **variables})
            codes = hosts.finish()
            self.assertEqual(codes, [0] * len(places), hosts.everything())
            passed = re.search(r"\[  PASSED  \] (\d+) tests", hosts.text(hosts.processes[0]))
            self.assertGreater(int(passed[1]), 60, "not most of the tests")
            print(f"\n{passed[1]} tests with {len(places)} ranks on {len(ranks_of_hosts)} hosts over {backend}")

    def test_tcp_on_two_hosts(self):
        self.check_suite("tcp", 1, 1)

    def test_tcp_on_two_hosts_with_four_connections_between_them(self):
        self.check_suite("tcp", 1, 1, LOCKSTEP_TCP_CONNECTIONS="4")

    def test_tcp_on_three_hosts(self):
        self.check_suite("tcp", 1, 1, 1)

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_gloo_on_two_hosts(self):
        self.check_suite("gloo", 1, 1)

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_gloo_on_three_hosts(self):
        self.check_suite("gloo", 1, 1, 1)

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_hierarchical_with_gloo_two_and_two(self):
        self.check_suite("hierarchical+gloo", 2, 2)

    def test_hierarchical_two_and_two(self):
        self.check_suite("hierarchical", 2, 2)

    def test_hierarchical_one_and_two(self):
        self.check_suite("hierarchical", 1, 2)


class UnderMpirun(HostsTest):
    """Two ranks on each of two hosts, which meet and talk over MPI: there is no MASTER_ADDR and no secret."""

    def test_open_mpi(self):
        self.check_mpirun("openmpi", ["--host", "10.90.0.1:2,10.90.0.2:2", "--bind-to", "none", "-x", "LOCKSTEP_BACKEND", "--mca", "plm_rsh_agent"])

    def test_mpich(self):
        self.check_mpirun("mpich", ["-hosts", "10.90.0.1,10.90.0.2", "-ppn", "2", "-bind-to", "none", "-launcher", "rsh", "-launcher-exec"])

    def check_mpirun(self, which, options):
        if os.environ.get("HOSTS_TEST_SANITIZER"):
            self.skipTest("a sanitizer finds faults in MPI's own libraries")
        mpirun = shutil.which(f"mpirun.{which}")
        if not mpirun or not (MODULES / f"lockstep_mpi_{which}.so").exists():
            self.skipTest(f"no mpirun.{which}, or no module of backend mpi for it was built")
        with Hosts(2) as hosts:
            rank = hosts.script("rank", f"export XDG_RUNTIME_DIR={hosts.folder}/$(hostname)", "mkdir -p -m 700 $XDG_RUNTIME_DIR",
                                f"exec {HOST_RANK} env 200")
            variables = {"LOCKSTEP_BACKEND": "hierarchical+mpi", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                         "OMPI_MCA_rmaps_base_oversubscribe": "1"}
            hosts.start(0, [hosts.rsh(), hosts.addresses[0], mpirun, "-n", 4, *options, hosts.rsh(), rank], variables)
            self.check_all_done(hosts, 4, "hierarchical+mpi")


class Failing(HostsTest):
    def start_endless(self, hosts, ranks_per_host=1, variables=None):
        secret = write_secret(hosts.folder)
        size = len(hosts.names) * ranks_per_host
        for rank in range(size):
            hosts.start(rank // ranks_per_host, [HOST_RANK, f"tcp://{hosts.addresses[0]}:{PORT}", 0, rank, size],
                        {"LOCKSTEP_TIMEOUT": str(DEADLINE), **secret, **(variables or {})})
        for process in hosts.processes:
            hosts.wait_for(process, "step 100\n")

    def test_a_killed_rank_is_named_on_the_other_hosts(self):
        self.kill_a_rank({})

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_a_killed_rank_is_named_over_gloo(self):
        self.kill_a_rank({"LOCKSTEP_BACKEND": "gloo"})

    def kill_a_rank(self, variables):
        with Hosts(3) as hosts:
            self.start_endless(hosts, variables=variables)
            victim = hosts.processes[1]
            victim.send_signal(signal.SIGKILL)
            start = time.monotonic()
            self.assertEqual(hosts.finish(), [3, -signal.SIGKILL, 3], hosts.everything())
            self.assertLess(time.monotonic() - start, DEADLINE, "a death is proven by the closed connection, not by the deadline")
            for process in (hosts.processes[0], hosts.processes[2]):
                self.assertIn("PeerLost 1: ", hosts.text(process))
                self.assertIn(hosts.addresses[1], hosts.text(process))

    def test_a_killed_rank_of_a_host_with_two_is_named_on_both_hosts(self):
        self.kill_a_rank_of_a_host_with_two("hierarchical")

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_a_killed_rank_of_a_host_with_two_is_named_over_gloo(self):
        self.kill_a_rank_of_a_host_with_two("hierarchical+gloo")

    def kill_a_rank_of_a_host_with_two(self, backend):
        with Hosts(2) as hosts:
            self.start_endless(hosts, 2, {"LOCKSTEP_BACKEND": backend})
            hosts.processes[3].send_signal(signal.SIGKILL)
            start = time.monotonic()
            self.assertEqual(hosts.finish(), [3, 3, 3, -signal.SIGKILL], hosts.everything())
            self.assertLess(time.monotonic() - start, DEADLINE)
            for process in hosts.processes[:3]:
                self.assertRegex(hosts.text(process), r"PeerLost 3: all_reduce #\d+ on group \"world\"")

    def test_a_link_between_hosts_with_two_ranks_taken_down_is_an_error_that_names_a_peer_beyond_it(self):
        with Hosts(2) as hosts:
            self.start_endless(hosts, 2)
            hosts.cut_link(1)
            self.assertEqual(hosts.finish(DEADLINE + 20), [3, 3, 3, 3], hosts.everything())
            for rank, process in enumerate(hosts.processes):
                there = 2 if rank < 2 else 1
                ranks = "[23]" if rank < 2 else "[01]"
                self.assertRegex(hosts.text(process), rf"(Timeout|PeerLost {ranks}): .*rank {ranks}.*10\.90\.0\.{there}")

    def test_a_link_taken_down_is_an_error_within_the_deadline_that_names_peer_and_direction(self):
        self.take_a_link_down({})

    @unittest.skipUnless(HAS_GLOO, WHY_NO_GLOO)
    def test_a_link_taken_down_is_an_error_over_gloo(self):
        self.take_a_link_down({"LOCKSTEP_BACKEND": "gloo"})

    def test_a_host_that_does_not_answer_is_lost_long_before_the_deadline(self):
        for count in (1000, 1 << 21):  # waiting to receive, and in the middle of sending
            with self.subTest(count=count):
                text = self.take_a_link_down({"LOCKSTEP_TIMEOUT": "600", "LOCKSTEP_HOST_TIMEOUT": "3", "HOST_RANK_COUNT": str(count)}, 3)
                self.assertNotIn("Timeout:", text)
                self.assertRegex(text, r"PeerLost 2: .*cannot be reached \((its machine has not answered for \d|Connection timed out)")

    def test_a_stopped_rank_is_not_a_host_that_does_not_answer(self):
        with Hosts(2) as hosts:
            # Stopped in the middle of a message that is larger than the memory of a connection, which fills.
            message = 64 << 20
            variables = {"LOCKSTEP_HOST_TIMEOUT": "1", "HOST_RANK_COUNT": str(message // 8), "HOST_RANK_NEIGHBOURS": "1",
                         **write_secret(hosts.folder)}
            for rank in range(2):
                hosts.limit(rank, "1gbit")
                hosts.start(rank, [HOST_RANK, f"tcp://{hosts.addresses[0]}:{PORT}", 4, rank, 2], variables)
            hosts.wait_for(hosts.processes[0], "step 0\n")
            while hosts.bytes_sent(0) < 1.3 * message:
                time.sleep(0.01)
            hosts.processes[1].send_signal(signal.SIGSTOP)
            time.sleep(4)
            self.assertIsNone(hosts.processes[0].poll(), hosts.everything())
            hosts.processes[1].send_signal(signal.SIGCONT)
            self.check_all_done(hosts, 2)

    def take_a_link_down(self, variables, deadline=DEADLINE):
        with Hosts(3) as hosts:
            self.start_endless(hosts, variables=variables)
            hosts.cut_link(2)
            start = time.monotonic()
            codes = hosts.finish(deadline + 20)
            seconds = time.monotonic() - start
            self.assertEqual(codes, [3, 3, 3], hosts.everything())
            print(f"\nlink taken down: all three ranks had ended after {seconds:.1f} s, deadline {deadline} s")
            for rank in (0, 1):
                self.assertRegex(hosts.text(hosts.processes[rank]), r"(Timeout|PeerLost 2): .*rank 2.*10\.90\.0\.3")
            for process in hosts.processes:
                self.assertRegex(hosts.text(process), "(to|from) rank|receive|send")
            self.assertRegex(hosts.text(hosts.processes[2]), r"(Timeout|PeerLost [01]): .*rank [01].*10\.90\.0\.[12]")
            return hosts.everything()


@unittest.skipUnless(MNIST, "built without libtorch")
class Training(HostsTest):
    def final(self, folder):
        return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])

    def test_weights_are_those_of_one_host(self):
        ways = [(2, 1, "auto"), (3, 1, "auto"), (2, 2, "auto")] + ([(2, 2, "hierarchical+gloo")] if HAS_GLOO else [])
        for count, ranks_per_host, backend in ways:
            with self.subTest(hosts=count, ranks_per_host=ranks_per_host, backend=backend), Hosts(count) as hosts:
                size = count * ranks_per_host
                data, here, there = (hosts.folder / name for name in ("data", "here", "there"))
                for folder in (data, here, there):
                    folder.mkdir()
                cut_all(data, 900, 300)
                options = ["--data", data, "--epochs", 2]
                subprocess.run([LOCKSTEP, "run", "-n", str(size), "--no-logs", MNIST, *map(str, options), "--save-dir", here,
                                "--metrics", here / "metrics.jsonl"], check=True, capture_output=True, timeout=600)
                variables = {"LOCKSTEP_BACKEND": backend, **write_secret(hosts.folder)}
                for rank in range(size):
                    hosts.start(rank // ranks_per_host, [MNIST, *options, "--save-dir", there, "--metrics", there / "metrics.jsonl"],
                                {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank % ranks_per_host),
                                 "LOCAL_WORLD_SIZE": str(ranks_per_host),
                                 "MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": PORT, **variables})
                codes = hosts.finish()
                self.assertEqual(codes, [0] * size, hosts.everything())
                self.assertEqual(self.final(here)["processes"], size)
                self.assertEqual(self.final(there)["parameters_sha256"], self.final(here)["parameters_sha256"])
                self.assertEqual(self.final(there)["test_accuracy"], self.final(here)["test_accuracy"])


if __name__ == "__main__":
    unittest.main()
