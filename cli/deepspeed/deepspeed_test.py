#!/usr/bin/env python3
"""`lockstep deepspeed` from outside: ranks, hostfiles, filters, what reaches the program, errors in one line.

    LAUNCHER_TEST_COMMAND=build/lockstep cli/deepspeed/deepspeed_test.py -v"""
import os
import pathlib
import subprocess
import tempfile
import unittest

LOCKSTEP = str(pathlib.Path(os.environ["LAUNCHER_TEST_COMMAND"]).resolve())
SHOW = ["sh", "-c", 'echo "$RANK of $WORLD_SIZE: $CUDA_VISIBLE_DEVICES $*"', "show"]


class DeepSpeed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "hostfile").write_text("w1 slots=2  # the first\nw2 slots=3\n")

    def run_command(self, *arguments):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("CUDA_VISIBLE_DEVICES", "LOCKSTEP_SECRET_FILE")}
        return subprocess.run([LOCKSTEP, "deepspeed", *map(str, arguments)], cwd=self.folder, env=environment,
                              capture_output=True, text=True, check=False, timeout=600)

    def lines(self, *arguments):
        result = self.run_command(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return sorted(result.stdout.splitlines())

    def complaint(self, *arguments):
        result = self.run_command(*arguments)
        self.assertEqual((result.returncode, result.stdout), (64, ""))
        return result.stderr

    def test_options_behind_the_program_reach_it(self):
        self.assertEqual(self.lines("--num_gpus", 2, *SHOW, "--deepspeed", "--deepspeed_config", "ds_config.json"),
                         [f"[{rank}] {rank} of 2:  --deepspeed --deepspeed_config ds_config.json" for rank in (0, 1)])

    def test_one_host_of_the_file_is_this_one(self):
        self.assertEqual(self.lines("--hostfile", "hostfile", "--include", "w2:0,2", *SHOW),
                         [f"[{rank}] {rank} of 2: 0,2 " for rank in (0, 1)])
        self.assertEqual(self.lines("-H", "hostfile", "--num_nodes=1", *SHOW), [f"[{rank}] {rank} of 2:  " for rank in (0, 1)])
        self.assertEqual(self.lines("-H", "hostfile", "-e", "w1:0@w2", *SHOW), ["[0] 0 of 1: 1 "])

    def test_the_exit_code_is_the_failing_rank_s(self):
        self.assertEqual(self.run_command("--num_gpus=2", "--enable_each_rank_log", "logs", "sh", "-c", "exit 7").returncode, 7)
        self.assertTrue(list((self.folder / "logs").iterdir()))

    def test_several_hosts_are_started_one_by_one(self):
        commands = ["  w1: lockstep run --nproc-per-node 2 --nnodes 2 --node-rank 0 --master-addr w1 --master-port 29500 ./train",
                    "  w2: lockstep run --nproc-per-node 3 --nnodes 2 --node-rank 1 --master-addr w1 --master-port 29500 ./train"]
        self.assertEqual(self.lines("-H", "hostfile", "--dry-run", "./train"), commands)
        said = self.complaint("-H", "hostfile", "./train")
        self.assertIn("there are 2 hosts, and nothing is started on other machines", said)
        self.assertEqual(said.splitlines()[1:3], commands)
        self.assertIn("a secret that only they know", self.complaint("-H", "hostfile", "--node_rank", 1, "--no_ssh", "./train"))

    def test_two_nodes_of_one_machine_meet(self):
        secret = self.folder / "secret"
        secret.touch(0o600)
        secret.write_bytes(bytes(range(32)))
        (self.folder / "here").write_text("127.0.0.1 slots=1\nlocalhost slots=2\n")
        port = 20000 + os.getpid() % 10000
        nodes = [subprocess.Popen([LOCKSTEP, "deepspeed", "-H", "here", "--node_rank", str(node), "--master_port", str(port),
                                   "--secret_file", str(secret), *SHOW], cwd=self.folder, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for node in (0, 1)]
        outputs = [node.communicate(timeout=600) for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], outputs)
        self.assertEqual(sorted(line.split("] ")[1] for output, _ in outputs for line in output.splitlines()),
                         [f"{rank} of 3:  " for rank in (0, 1, 2)])

    def test_mistakes_are_one_line(self):
        for arguments, says in [
                (["--num_gpu", 2, "./x"], "lockstep deepspeed has no option --num_gpu; did you mean --num-gpus?"),
                (["--num_gpus", 0, "./x"], "--num_gpus must be a number from 1 to 4096, not \"0\""),
                (["--num_gpus", 2], "a program to run is needed"),
                (["--include", "w1", "--num_gpus", 2, "./x"], "do not go with --include"),
                (["-H", "hostfile", "--include", "w3", "./x"], "the hostfile has no host \"w3\""),
                (["-H", "hostfile", "--num_nodes", 3, "./x"], "--num_nodes is 3, but there are 2 hosts"),
                (["-H", "hostfile", "--node_rank", 2, "./x"], "--node_rank is 2, but the hosts have numbers from 0 to 1")]:
            with self.subTest(says):
                said = self.complaint(*arguments)
                self.assertIn(says, said)
                self.assertEqual(said.count("\n"), 1)
        self.assertIn("missing", self.run_command("-H", "missing", "./x").stderr)


if __name__ == "__main__":
    unittest.main()
