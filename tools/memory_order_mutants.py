#!/usr/bin/env python3
"""Relaxes each acquire and release of the shared-memory protocol in turn; ThreadSanitizer, with ranks as threads on one mapping,
must notice every time.

    tools/memory_order_mutants.py                  # all; about a minute each on two cores
    tools/memory_order_mutants.py --list           # the places, numbered
    tools/memory_order_mutants.py --only 3,7

Works on a copy of the tree, in a temporary folder or in --folder, which is kept for the next time. A place that no test notices must
be in UNOBSERVABLE below, with the reason why it is there all the same; anything else that survives is a hole in the tests or an
order that nobody needs: exit status 1. Tests of three and four ranks run where those of two notice nothing and no reason is known.
--record keeps the answers in tools/memory_order_mutants.txt, each as it comes."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ("lockstep/comm/backends/shared/*.h", "lockstep/comm/backends/shared/*.cpp", "lockstep/comm/backends/segment/*.h",
         "lockstep/comm/backends/segment/*.cpp")
ORDER = re.compile(r"std::memory_order_(acquire|release|acq_rel|seq_cst)")
RECORD = ROOT / "tools/memory_order_mutants.txt"
STAGES = ((2,), (3, 4))  # ranks

# A piece of the line -> why its order is needed although no test can show it on the machines at hand.
UNOBSERVABLE = {
    "atomic_thread_fence(std::memory_order_acquire)": "a read of lent memory that passes the look at the failure behind it: needs a "
                                                      "rank that fails in that very moment, and ThreadSanitizer does not know fences",
    "control_.header().failure_state.load": "that what was complete before a failure is seen to be complete: the machine's own order hides it",
    "std::memory_order_release, std::memory_order_relaxed)) {": "the other half of that",
    "while (header.failure_state.load": "that the text of a failure is there: whoever comes here has seen the failure, nearly always when "
                                        "the text was written; needed in the nanoseconds before",
    "atomic_thread_fence": "against sleeping through a ring (a store that passes a load): costs one sleep of at most 10 ms, which "
                           "is no wrong result, and ThreadSanitizer does not know fences",
    "sleepers": "as the fence",
    "doorbell": "the condition is checked again after every sleep, through other atomics; the order only saves a sleep",
    "last_, std::memory_order_seq_cst": "Dekker's pattern between two ranks that post different calls at the same moment: "
                                            "relaxed, both may overlook the other; the machine's own order hides it",
    "letter.lent.load": "orders the sender's next use of a letter behind the receiver's last look at it, when the receiver could not "
                        "read the sender's memory; ranks that are threads always can, and the read is a system call",
    "word(Lending::STAGED)), std::memory_order_release": "the other half of that",
}


def places(root):
    """[(file, line number, column, order, line)]"""
    found = []
    for pattern in FILES:
        for path in sorted(root.glob(pattern)):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for match in ORDER.finditer(line):
                    found.append((path.relative_to(root), number, match.start(), match.group(1), line.strip()))
    return found


def copy_tree(target):
    """What git knows, as it is in the working tree."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        source, copy = ROOT / name, target / name
        if not source.is_file() or (copy.exists() and copy.read_bytes() == source.read_bytes()):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def build(root):
    return subprocess.run(["ninja", "-C", root / "build", "lockstep_core_ranks_tests"], capture_output=True, text=True, check=False)


def configure(root):
    subprocess.run(["cmake", "-G", "Ninja", "-S", root, "-B", root / "build", "-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_WITH_TORCH=OFF",
                    "-DLOCKSTEP_SANITIZE=thread", "-DLOCKSTEP_BUILD_EXAMPLES=OFF", "-DLOCKSTEP_UNITY=OFF"], check=True, stdout=subprocess.DEVNULL)
    done = build(root)
    if done.returncode != 0:
        sys.exit(done.stdout[-4000:])


def verdict(root, sizes, patience):
    """(noticed, by what) of one run of the tests with so many ranks as threads, which hangs if it takes more than `patience` seconds."""
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1 exitcode=66"}
    filters = ":".join(f"*.thread_{size}" for size in sizes) + ":-*AnswersAreThoseOfTorch*"
    command = [root / "build/testing/lockstep_core_ranks_tests", f"--gtest_filter={filters}", "--gtest_fail_fast", "--gtest_brief=1"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=patience)
    except subprocess.TimeoutExpired:
        return True, "a test hangs"
    if done.returncode == 0:
        return False, "nothing"
    output = done.stdout + done.stderr
    failed = re.search(r"\[  FAILED  \] (\S+)", output)
    return True, f"{failed.group(1) if failed else 'a test'} fails"


def mutate(path, number, column, order):
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    line = lines[number - 1]
    lines[number - 1] = line[:column] + line[column:].replace(f"memory_order_{order}", "memory_order_relaxed", 1)
    path.write_text("".join(lines))
    return text


def reason(line):
    return next((why for piece, why in UNOBSERVABLE.items() if piece in line), None)


def record(found, rows):
    """Rows of places that were not tried this time stay as they were."""
    known = RECORD.read_text().splitlines() if RECORD.exists() else []
    known = {line.split("`: ")[0] + "`": line for line in known if "`: " in line} | {row.split("`: ")[0] + "`": row for row in rows}
    kept = [known[key] for key in (key_of(*place) for place in found) if key in known]
    RECORD.write_text("Written by tools/memory_order_mutants.py --record\n\n" + "\n".join(kept) + "\n")


def key_of(path, _number, _column, order, line):
    """What stays the same when other lines come and go."""
    return f"{path.parent.name}/{path.name} {order} `{line}`"


def seconds_unchanged(root, sizes):
    start = time.monotonic()
    noticed, by = verdict(root, sizes, None)
    if noticed:
        sys.exit(f"the tests fail without any change: {by}")
    return time.monotonic() - start


def try_without(root, place, patience):
    """(noticed, the line of the record)"""
    path, number, column, order, line = place
    original = mutate(root / path, number, column, order)
    compiled = build(root)
    noticed, by = (False, "") if compiled.returncode == 0 else (True, "the compiler")
    for sizes, seconds in zip(STAGES, patience):
        if not noticed and (sizes == STAGES[0] or reason(line) is None):
            noticed, by = verdict(root, sizes, seconds)
    (root / path).write_text(original)
    return noticed, f"{key_of(*place)}: " + (f"noticed, {by}" if noticed else f"not noticed; {reason(line) or 'NO REASON KNOWN'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    parser.add_argument("--folder", type=pathlib.Path, help="work there, and keep it")
    parser.add_argument("--patience", type=float, default=5, help="times as long as without any change: then the tests count as hanging")
    args = parser.parse_args()
    wanted = {int(number) for number in filter(None, args.only.split(","))}
    rows, survivors, start = [], 0, time.monotonic()
    with contextlib.ExitStack() as stack:
        root = args.folder or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-mutants-")))
        copy_tree(root)
        found = places(root)
        if args.list:
            for index, (path, number, _, order, line) in enumerate(found):
                print(f"{index:3} {path.parent.name}/{path.name}:{number} {order}: {line}")
            return
        configure(root)
        seconds = args.patience * seconds_unchanged(root, STAGES[0])
        patience = (seconds, 4 * seconds)
        for index, place in enumerate(found):
            if wanted and index not in wanted:
                continue
            noticed, row = try_without(root, place, patience)
            survivors += not noticed and reason(place[-1]) is None
            rows.append(row)
            print(row, flush=True)
            if args.record:
                record(found, rows)
    summary = f"{len(rows)} orders relaxed in turn, {survivors} survived without a known reason, {time.monotonic() - start:.0f} s"
    print(summary)
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
