#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed (torch.testing._internal.distributed.distributed_test, part of every torch) over Lockstep and
over Gloo. Run by hand, because it takes minutes; tests/python/UPSTREAM.md is its last outcome.

    pip install expecttest psutil
    export PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so
    tests/python/upstream.py                                   # all; or: --ranks 3 --as lockstep --only test_all_reduce_sum

Three ways     gloo: Gloo itself. lockstep: under our own name, for which torch skips the tests that ask for the name "gloo".
               lockstep as gloo: presented under that name, so that these run too. torch's code then believes that it has Gloo.
Ranks          are forks of one process that has imported torch; torch's own runner starts an interpreter for each.
Not run        tests that need a GPU, which skip themselves.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest

HERE = pathlib.Path(__file__).resolve()
WAYS = ("gloo", "lockstep", "lockstep as gloo")
SECONDS_A_TEST = 60


# ---- within the process of one way and number of ranks

def present_as_gloo():
    """Makes torch's code for Gloo make our groups. The type stays CUSTOM: for Gloo's, DDP's logger would read Gloo's own members."""
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    import lockstep.torch._backend as ours

    class Given:
        """What torch's extended API would have passed, from the frame of the function that makes groups."""

        def __init__(self, store, rank, size, timeout):
            here = sys._getframe(2).f_locals
            self.store, self.group_rank, self.group_size, self.timeout = store, rank, size, timeout
            self.group_id, self.global_ranks_in_group = here["group_name"], here["global_ranks_in_group"]

    class Presented(type):
        def __instancecheck__(cls, other):
            return isinstance(other, torch._C._distributed_c10d.Backend)

        def __call__(cls, store, rank, size, timeout):
            if "group_name" not in sys._getframe(1).f_locals:  # the group with which torch's debug level DETAIL checks calls
                return gloo(store, rank, size, timeout=timeout)
            return ours.create(Given(store, rank, size, timeout), called="gloo")

    gloo = c10d.ProcessGroupGloo
    torch._C._distributed_c10d.Backend.options = types.SimpleNamespace()  # into which torch writes names
    c10d.ProcessGroupGloo = Presented("ProcessGroupGloo", (), {})
    custom = dist.ProcessGroup.BackendType.CUSTOM
    dist.ProcessGroup.BackendType.GLOO = custom
    dist.Backend.backend_type_map["gloo"] = custom


def one_way(way, only, report):
    import torch
    torch.set_num_threads(1)
    from torch.testing._internal import common_distributed
    common_distributed.TIMEOUT_DEFAULT = SECONDS_A_TEST
    common_distributed.TIMEOUT_OVERRIDE.clear()
    if way != "gloo":
        import lockstep.torch  # noqa: F401
    if way == "lockstep as gloo":
        present_as_gloo()
    for feature in ("ddp", "subgroup", "plugin"):
        common_distributed.DistTestCases.backend_feature[feature].add("lockstep")
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class Upstream(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    outcomes = {}

    class Result(unittest.TestResult):
        def stopTest(self, test):
            super().stopTest(test)
            outcomes.setdefault(test.id().split(".")[-1], ["passed", ""])
            report.write_text(json.dumps(outcomes))

        def addSkip(self, test, reason):
            outcomes[test.id().split(".")[-1]] = ["skipped", reason]

        def addFailure(self, test, error):
            outcomes[test.id().split(".")[-1]] = ["failed", self._exc_info_to_string(error, test)]

        addError = addFailure

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Upstream)
    chosen = unittest.TestSuite(test for test in suite if not only or any(word in test.id() for word in only))
    chosen.run(Result())


# ---- the process that starts them and compares

def outcomes_of(way, ranks, only):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(f"{folder}/{name}")
        report = pathlib.Path(folder) / "report.json"
        environment = {**os.environ, "BACKEND": "lockstep" if way == "lockstep" else "gloo", "WORLD_SIZE": str(ranks), "TEMP_DIR": folder,
                       "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "LOCKSTEP_UPSTREAM": str(report),
                       "INIT_METHOD": f"file://{folder}/init_dir/shared"}
        log = pathlib.Path(folder) / "log"
        with log.open("w") as output:
            subprocess.run([sys.executable, HERE, "--as", way, *[word for one in only for word in ("--only", one)]], env=environment,
                           stdout=output, stderr=subprocess.STDOUT)
        if not report.exists():
            sys.exit(f"{way}, {ranks} ranks: no outcome\n{log.read_text()[-3000:]}")
        return json.loads(report.read_text())


def counts(outcomes):
    kinds = [kind for kind, _ in outcomes.values()]
    return " / ".join(str(kinds.count(kind)) for kind in ("passed", "skipped", "failed"))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--as", dest="ways", action="append", choices=WAYS)
    options.add_argument("--ranks", type=int, action="append")
    options.add_argument("--only", action="append", default=[], help="tests whose name has this part")
    options.add_argument("--write", action="store_true", help="write UPSTREAM.md")
    given = options.parse_args()
    if report := os.environ.get("LOCKSTEP_UPSTREAM"):
        return one_way(given.ways[0], given.only, pathlib.Path(report))
    lines, worlds = [], given.ranks or [3, 4]
    for ranks in worlds:
        found = {}
        for way in given.ways or WAYS:
            began = time.monotonic()
            found[way] = outcomes_of(way, ranks, given.only)
            lines.append(f"| {ranks} | {way} | {counts(found[way])} |")
            print(lines[-1], f"{time.monotonic() - began:.0f} s", flush=True)
        for way, outcomes in found.items():
            for name, (kind, text) in sorted(outcomes.items()):
                theirs = found.get("gloo", {}).get(name, ["?"])[0]
                if kind == "failed" or (theirs == "passed" and kind != "passed" and way != "lockstep"):
                    errors = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): .*", text, re.MULTILINE) or [""]
                    last = errors[-1][:200].replace("|", "/")
                    lines.append(f"| {ranks} | {way} | `{name}` {kind}, over Gloo {theirs}: {last} |")
                    print(lines[-1], flush=True)
        if given.write:
            import torch
            (HERE.parent / "UPSTREAM.md").write_text(
                f"# PyTorch's own tests over Lockstep\n\n`tests/python/upstream.py --write`, torch {torch.__version__}: tests passed,\n"
                "skipped and failed; then each test that failed, or that passed over Gloo and not over Lockstep under that name. Most of\n"
                "what is skipped needs a GPU; under its own name Lockstep is not asked what is asked of \"gloo\". `test_ddp_logging_data_cpu`\n"
                "wants the backend's name in DDP's log, where torch calls every backend that is not its own `custom`.\n\n"
                "| ranks | over | outcome |\n| ---: | --- | --- |\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
