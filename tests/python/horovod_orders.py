#!/usr/bin/env python3
"""Operations by name, submitted in an order of its own for each rank and round: 200 tensors, 1,000 rounds, each result compared with its
formula. In C++ (lockstep/named/engine_ranks_test.cpp: two threads of each rank submit) and in Python (horovod_test.py). Run by hand,
because CTest has a few rounds of the same; --write makes tests/python/ORDERS.md, its last outcome.

    scripts/build --tests core_tests lockstep_core_shared lockstep_cli
    tests/python/horovod_orders.py [--rounds 1000] [--python .deps/venv/bin/python] [--write]
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2]
CPP, PYTHON = "NamedEngine/AnyOrderOfSubmissionsGivesTheSameSums", "Operations.test_any_order_of_submissions"


def jobs(given):
    """(language, over, ranks, command, environment) of each."""
    for backend in ("shm", "tcp"):
        for ranks in (2, 3, 4):
            yield ("C++", backend, ranks, [given.build / "testing/lockstep_core_ranks_tests", f"--gtest_filter={CPP}.{backend}_{ranks}"], {})
    for backend, ranks in (("shm", 2), ("shm", 3), ("shm", 4), ("tcp", 3)):
        yield ("Python", backend, ranks, [given.build / "lockstep", "run", "-n", str(ranks), "--no-logs", given.python,
                                          HERE.parent / "horovod_test.py", PYTHON], {"LOCKSTEP_BACKEND": backend})


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=1000)
    options.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    options.add_argument("--python", type=pathlib.Path, default=ROOT / ".deps/venv/bin/python")
    options.add_argument("--write", action="store_true", help="write ORDERS.md")
    given = options.parse_args()
    environment = {**os.environ, "NAMED_TEST_ROUNDS": str(given.rounds), "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1",
                   "LOCKSTEP_CORE_LIBRARY": str(given.build / "library/liblockstep_core.so")}
    rows, failed = [], 0
    for language, backend, ranks, command, more in jobs(given):
        began = time.monotonic()
        done = subprocess.run(list(map(str, command)), env=environment | more, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        passed = done.returncode == 0 and ("[  PASSED  ] 1 test" in output or "Ran 1 test" in output)
        failed += not passed
        rows.append(f"| {language} | {backend} | {ranks} | {'equal' if passed else 'FAILED'} | {time.monotonic() - began:.0f} |")
        print(rows[-1] if passed else f"{rows[-1]}\n{output[-3000:]}", flush=True)
    if given.write:
        (HERE.parent / "ORDERS.md").write_text(
            f"# Any order of submissions\n\n`tests/python/horovod_orders.py --rounds {given.rounds} --write`: 200 named tensors a round, in an order of"
            " its own for each rank and round. Every result was compared with its formula.\n\n"
            "| program | backend | ranks | results | seconds |\n| --- | --- | ---: | --- | ---: |\n" + "\n".join(rows) + "\n")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
