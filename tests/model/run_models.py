#!/usr/bin/env python3
"""Checks the models of the shared-memory protocol with SPIN, every state of them, and that SPIN finds each rule that is broken on purpose.

    tests/model/run_models.py                       # all; about a minute on two cores, 2 GB of memory
    tests/model/run_models.py protocol              # what has this in its name
    tests/model/run_models.py --trail MUTANT_...    # how it comes to the error, step by step

A mutant that passes fails the test, and so does one that is in a model and not in the table below."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def kinds(first_and_third, second):
    return f"-DKIND={first_and_third} -DKIND_OF_2={second}"


SLICES = kinds("STAGED", "INLINE")
SLICES_IN_PLACE = kinds("IN_PLACE", "INLINE")
COPIES = kinds("GATHER", "LENT")
LENT = kinds("LENT", "INLINE")
LINES = kinds("INLINE", "LENT")

RIGHT = [(model, f"{fault} {setting}".strip()) for model, settings in [
    ("protocol", [SLICES, SLICES_IN_PLACE, COPIES, LENT, LINES]),
    ("window", ["-DPER_CALL=4", "-DPER_CALL=2"]),
    ("passage", ["", "-DUNEVEN"]),
    ("sleeping", [""]),
    ("lending", [""]),
    ("ring", [""]),
] for setting in settings for fault in ("-DDEATH", "-DDELAY")]

MUTANTS = [
    ("protocol", "COUNTED_BEFORE_WRITTEN", f"-DDELAY {SLICES}"),
    ("protocol", "COUNTED_AFTER_FAILURE", f"-DDELAY {SLICES_IN_PLACE}"),
    ("protocol", "CLAIM_WITHOUT_CAS", f"-DDELAY {SLICES}"),
    ("protocol", "WORDS_WITHOUT_SEQUENCE", f"-DDELAY {SLICES}"),
    ("protocol", "SLOT_USED_AGAIN_AT_ONCE", f"-DDELAY {LINES}"),
    ("protocol", "FINISHED_BEFORE_READING", f"-DDELAY {COPIES}"),
    ("protocol", "BLOCK_FREED_BY_OWN_FINISH", f"-DDELAY {COPIES}"),
    ("protocol", "LENT_RETURNED_AT_ONCE", f"-DDELAY {LENT}"),
    ("protocol", "LENT_AND_NOT_LOOKED_AT_AGAIN", f"-DDELAY {LENT}"),
    ("protocol", "FREED_INSTEAD_OF_CONDEMNED", f"-DDELAY {SLICES_IN_PLACE}"),
    ("protocol", "FREED_INSTEAD_OF_RETIRED", f"-DDELAY {COPIES}"),
    ("protocol", "FAILURE_READ_BEFORE_WRITTEN", f"-DDEATH {LINES}"),
    ("protocol", "FAILURE_RECORDED_WITHOUT_CAS", f"-DDEATH {LINES}"),
    ("protocol", "FAILURE_LOOKED_AT_LAST", f"-DDELAY {SLICES}"),
    ("window", "INPUT_OVERWRITTEN", "-DDELAY -DPER_CALL=4"),
    ("window", "REDUCED_TOO_EARLY", "-DDELAY -DPER_CALL=4"),
    ("window", "COPIED_OUT_TOO_EARLY", "-DDELAY -DPER_CALL=4"),
    ("window", "IN_COUNTED_BEFORE_COPIED", "-DDELAY -DPER_CALL=4"),
    ("window", "REDUCED_COUNTED_BEFORE_WRITTEN", "-DDELAY -DPER_CALL=4"),
    ("window", "FREED_AFTER_FAILURE", "-DDELAY -DPER_CALL=4"),
    ("passage", "SLOT_FILLED_TOO_SOON", "-DDELAY"),
    ("passage", "TAKEN_TOO_SOON", "-DDELAY"),
    ("passage", "GIVEN_COUNTED_BEFORE_COPIED", "-DDELAY"),
    ("passage", "TAKEN_COUNTED_BEFORE_COPIED", "-DDELAY"),
    ("passage", "END_NOT_TOLD", "-DDELAY -DUNEVEN"),
    ("passage", "NEXT_CALL_TOO_SOON", "-DDELAY"),
    ("sleeping", "RUNG_WITHOUT_FENCE", "-DDELAY"),
    ("sleeping", "RUNG_WITHOUT_COUNTING", "-DDELAY"),
    ("sleeping", "SLEPT_WITHOUT_A_SECOND_LOOK", "-DDELAY"),
    ("sleeping", "ADDED_TO_SLEEPERS_TOO_LATE", "-DDELAY"),
    ("sleeping", "DOORBELL_READ_TOO_LATE", "-DDELAY"),
    ("lending", "LETTER_USED_AGAIN_AT_ONCE", "-DDELAY"),
    ("lending", "WITHDRAWN_WITHOUT_CAS", "-DDELAY"),
    ("lending", "STAGED_BEFORE_COPIED", "-DDELAY"),
    ("lending", "TAKEN_BEFORE_COPIED", "-DDELAY"),
    ("lending", "FAILURE_NOT_LOOKED_AT_AGAIN", "-DDELAY"),
    ("ring", "WITHDRAWN_WITHOUT_CAS", "-DDELAY"),
    ("ring", "RING_FILLED_TOO_SOON", "-DDELAY"),
    ("ring", "POURED_BEFORE_COPIED", "-DDELAY"),
    ("ring", "EMPTIED_BEFORE_COPIED", "-DDELAY"),
]


def check(model, defines, show_trail=False):
    """(number of states, what is wrong): every state is visited unless something is wrong, which ends the search."""
    with tempfile.TemporaryDirectory(prefix="lockstep-model-") as folder:
        def run(*command):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

        shutil.copy(HERE / f"{model}.pml", folder)
        code, output = run("spin", "-a", *defines.split(), f"{model}.pml")
        if code == 0:  # SAFETY: no cycles are looked for; NOCLAIM: no temporal formula
            code, output = run("gcc", "-O1" if "MUTANT" not in defines else "-O0", "-w", "-DSAFETY", "-DNOCLAIM", "-DMEMLIM=3000",
                               "-o", "pan", "pan.c")
        if code != 0:
            return 0, f"cannot be built: {output}"
        _, output = run("./pan", "-m100000", "-w22" if "MUTANT" not in defines else "-w18")
        found = re.search(r"errors: (\d+)\n\s*(\S+) states, stored", output)
        if found is None or "Search not completed" in output and found[1] == "0" or "max search depth too small" in output:
            return 0, f"was not searched whole: {output}"
        if show_trail:
            print(run("spin", "-t", "-p", "-g", *defines.split(), f"{model}.pml")[1])
        problem = re.search(r"pan:\d+: (.*) \(at depth", output)
        return int(float(found[2])), problem[1] if problem else "" if found[1] == "0" else output


def all_listed():
    """Whether the table names exactly the mutants that the models have."""
    listed = {(model, name) for model, name, _ in MUTANTS}
    present = {(path.stem, name) for path in HERE.glob("*.pml") for name in re.findall(r"#ifn?def MUTANT_(\w+)", path.read_text())}
    for model, name in sorted(listed ^ present):
        print(f"FAILED  {model} MUTANT_{name} is " + ("not in the model" if (model, name) in listed else "not in the table"))
    return listed == present


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="?", default="")
    parser.add_argument("--trail", action="store_true")
    args = parser.parse_args()
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            print(f"skipped: there is no {tool} (Debian package {tool})")
            return SKIPPED
    jobs = [(model, defines, False) for model, defines in RIGHT]
    jobs += [(model, f"{defines} -DMUTANT_{name}", True) for model, name, defines in MUTANTS]
    jobs = [job for job in jobs if args.wanted in f"{job[0]} {job[1]}"]
    good = all_listed() and bool(jobs)
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda job: check(job[0], job[1], args.trail), jobs)
        for (model, defines, is_mutant), (states, problem) in zip(jobs, results):
            right = bool(problem) == is_mutant and not problem.startswith(("cannot", "was not"))
            good = good and right
            print(f"{'ok      ' if right else 'FAILED  '}{model} {defines}: {states} states, {problem or 'nothing is wrong'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
