"""An example prints what the comment at its top says: under the launcher, and in C++ with --spawn.

    examples_test.py examples/04_basic_operations.cpp build/lockstep build/examples/basic_operations

The comment has the launcher's command and below it one line per line of output, "[rank] text". Lines of different ranks may
come in any order. Process ids are written N; a line that ends with " ..." may go on in any way.
"""
import pathlib
import re
import subprocess
import sys

SOURCE, LOCKSTEP, PROGRAM = sys.argv[1:]


def expected():
    """(number of ranks, lines with their rank) as the source has them."""
    comment = re.split("#include|\nprogram ", pathlib.Path(SOURCE).read_text())[0]
    lines = [line.lstrip("/!")[3:] for line in comment.splitlines() if re.match("(//|!)   ", line)]
    command = next(i for i, line in enumerate(lines) if "lockstep run -n" in line)
    ranks = int(re.search(r"-n (\d+)", lines[command]).group(1))
    output = [line for line in lines[command + 1:] if line.startswith("[")]
    assert output, f"{SOURCE} does not say what it prints"
    return ranks, output


def printed(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return [re.sub(r"\bpid \d+", "pid N", line) for line in done.stdout.splitlines()]


def check(what, actual, wanted):
    for start in (line[:-3] for line in wanted if line.endswith(" ...")):
        actual = [start + "..." if line.startswith(start) else line for line in actual]
    assert sorted(actual) == sorted(wanted), "\n".join([f"{what} printed", *actual, "instead of", *wanted])


ranks, lines = expected()
check("the job under the launcher", printed(LOCKSTEP, "run", "-n", str(ranks), "--no-logs", PROGRAM), lines)
if SOURCE.endswith(".cpp"):
    check("the spawned job", printed(PROGRAM, "--spawn", str(ranks)), [line.split("] ", 1)[1] for line in lines])
