"""What training takes of memory, as the kernel counts it, beside the formulas of docs/zero.md and `lockstep plan`.

    memory_test.py LOCKSTEP TRIAL [--print]       # --print: the figures of docs/zero.md

Of a GPT-2 with AdamW, over shm: the means over the ranks of the kernel's Pss, after two steps. With P bytes of parameters and N ranks:

    DistributedDataParallel   4 P               parameters, gradients, two of state
    ShardedDataParallel       P + 3 P / N       gradients; parameters and state are shared out
    the same, stage 2         4 P / N           and two buckets, each as large as the largest parameter
    construction              with meta_init(): P / N, gradients, and one parameter or two
"""
import contextlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP, TRIAL = sys.argv[1:3]
PRINTS = "--print" in sys.argv
WIDTH, LARGE = 704, 768  # about 94 and 113 MB of parameters, beside some 5 MB that a rank takes for any model
MIB = 1 << 20
CGROUP = pathlib.Path("/sys/fs/cgroup/memory")


def run(ranks, wrapper, width=WIDTH, **options):
    with tempfile.TemporaryDirectory() as folder:
        command = [LOCKSTEP, "run", "-n", str(ranks), TRIAL, wrapper, str(width), folder]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)


def lines_of(done):
    """What each rank says."""
    lines = [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if '"pss"' in line]
    return sorted(lines, key=lambda line: line["rank"])


def mean(lines, key):
    return sum(line[key] for line in lines) / len(lines)


def planned(ranks, stage, lines):
    count = int(lines[0]["bytes"]) // 4
    done = subprocess.run([LOCKSTEP, "plan", "--params", str(count), "--ranks", str(ranks), "--precision", "fp32", "--form", "shared",
                           "--json"], capture_output=True, text=True, check=True)
    return next(row["total"] for row in json.loads(done.stdout)["rows"] if row["stage"] == stage)


class Memory(unittest.TestCase):
    def measured(self, ranks, wrapper, width=WIDTH):
        done = run(ranks, wrapper, width)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = lines_of(done)
        self.assertEqual(len(lines), ranks, done.stdout)
        if PRINTS:
            print(f"{ranks} {wrapper:8} P {lines[0]['bytes'] / MIB:6.1f}  pss {mean(lines, 'pss') / MIB:6.1f}  "
                  f"shared {mean(lines, 'shared') / MIB:6.1f}  private {mean(lines, 'private') / MIB:6.1f}  "
                  f"peaks {[round(line['peak'] / MIB, 1) for line in lines]}  "
                  f"written {[round(line.get('written', 0) / MIB, 1) for line in lines]}")
        return lines

    def within(self, lines, expected):
        self.assertLess(abs(mean(lines, "pss") / expected - 1), 0.05, (expected, lines))

    def test_replicas(self):
        for ranks in (1, 2, 4) if PRINTS else (1, 2):
            lines = self.measured(ranks, "ddp")
            size = lines[0]["bytes"]
            self.assertEqual(planned(ranks, 0, lines), 4 * size)
            if ranks == 1:
                self.within(lines, 4 * size)
                continue
            # Gradients lie in group memory. That of the buckets before the plan followed backward stays with the group.
            self.assertLess(abs(mean(lines, "private") / (3 * size) - 1), 0.05, lines)
            self.assertGreater(mean(lines, "shared"), 0.95 * size)
            self.assertLess(mean(lines, "shared"), 2.05 * size)

    def test_shards(self):
        for ranks in (1, 2, 4):
            lines = self.measured(ranks, "meta")
            size, unit = lines[0]["bytes"], lines[0]["largest"]
            self.within(lines, size + 3 * size / ranks)
            self.within(lines, planned(ranks, 1, lines))
            # Rank 0 fills the one copy. Each rank's generator goes through one parameter at a time. The wrapper has
            # memory for gradients, too.
            self.assertLess(mean(lines, "peak"), 1.05 * (size / ranks + size) + 2 * unit)
            # Rank 0 writes 3 P. It holds one tensor, and each other rank's group memory two pieces on their way.
            self.assertLess(max(line["written"] for line in lines), (1 + 2 * ranks) * unit)
            if ranks != 2 and not PRINTS:
                continue
            whole = self.measured(ranks, "sharded")
            self.within(whole, size + 3 * size / ranks)
            self.assertEqual(lines[0]["sum"], whole[0]["sum"])  # the same training

    def test_shards_of_stage_2(self):
        for ranks, width in ((2, WIDTH), (4, 1024)) if PRINTS else ((2, WIDTH),):  # with 4 ranks the 5 MB count for more
            lines = self.measured(ranks, "stage2", width)
            buckets = 2 * lines[0]["largest"]
            self.within(lines, 4 * lines[0]["bytes"] / ranks + buckets)
            self.within(lines, planned(ranks, 2, lines) + buckets)
            self.assertEqual(lines[0]["sum"], self.measured(ranks, "meta", width)[0]["sum"])  # the same training


@contextlib.contextmanager
def cgroup(limit):
    """A group of processes that have so many bytes together."""
    folder = CGROUP / f"lockstep-memory-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit))
        (folder / "memory.swappiness").write_text("0")
        yield folder
    finally:
        folder.rmdir()


def number_in(path, name=""):
    return int(next(line for line in path.read_text().splitlines() if line.startswith(name)).split()[-1])


class Limit(unittest.TestCase):
    """Two ranks, and a machine or a limit that is too small for replicas."""

    def test_of_a_machine(self):
        if not os.access(CGROUP, os.W_OK):
            self.skipTest(f"{CGROUP} is not there, or another user's: a control group of memory (version 1) cannot be made")
        with cgroup(1 << 40) as group:
            small = run(2, "meta", 64, preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
            self.assertEqual(small.returncode, 0, small.stderr)
            base = number_in(group / "memory.max_usage_in_bytes")
        outcomes = {}
        size = 4 * (12 * LARGE * LARGE * 4)  # of the blocks' weights
        for wrapper in ("ddp", "meta"):  # 8 and 5 times the size of the parameters
            with cgroup(base + int(6.5 * size)) as group:
                done = run(2, wrapper, LARGE, preexec_fn=lambda to=group: (to / "cgroup.procs").write_text(str(os.getpid())))
                outcomes[wrapper] = (done.returncode, number_in(group / "memory.oom_control", "oom_kill "), done.stderr)
                if PRINTS:
                    print(wrapper, "limit", (base + 6.5 * size) / MIB, "base", base / MIB, "peak",
                          number_in(group / "memory.max_usage_in_bytes") / MIB, outcomes[wrapper])
        self.assertNotEqual(outcomes["ddp"][0], 0)
        self.assertGreater(outcomes["ddp"][1], 0, outcomes["ddp"])  # killed by the kernel
        self.assertIn("SIGKILL", outcomes["ddp"][2])
        self.assertEqual(outcomes["meta"][:2], (0, 0), outcomes["meta"])

    def test_of_a_process(self):
        """RLIMIT_DATA counts private memory: state and parameters of replicas, and half of the state of shards."""
        environment = {**os.environ, "LOCKSTEP_ALLOCATOR": "off"}  # which reserves a GiB of addresses
        base = max(line["data"] for line in lines_of(run(2, "ddp", 64, env=environment)))
        size = 4 * (12 * LARGE * LARGE * 4)
        limit = int(base + 2 * size)
        limited = {"env": environment, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))}
        replicas, shards = run(2, "ddp", LARGE, **limited), run(2, "meta", LARGE, **limited)
        if PRINTS:
            print("RLIMIT_DATA", limit / MIB, "base", base / MIB, replicas.returncode, replicas.stderr[-500:], shards.returncode)
        self.assertNotEqual(replicas.returncode, 0)
        self.assertRegex(replicas.stderr, "(?i)memory|bad_alloc")
        self.assertEqual(shards.returncode, 0, shards.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + ["-v"])
