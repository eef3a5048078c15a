"""Says what tests that have run for long wait for, before CTest ends them: their processes, and the stacks of these where gdb is installed.
./test runs it beside CTest: python3 tools/hung_tests.py [SECONDS], which ends with the process that started it.

A test is a child of any ctest below that process, so those within tsan_core count by themselves. Its processes are its descendants and
all others that hold its output: run_case's case is the child of a fork server (testing/fork_server.h)."""
import os
import pathlib
import shutil
import subprocess
import sys
import time

PROC = pathlib.Path("/proc")
SECONDS = 600     # the longest of the tests takes three minutes on two cores
LINES = 60        # of stacks, of each process
PROCESSES = 24    # of each test


def read(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # it has ended meanwhile


def processes():
    """Parent and start, in ticks since the machine's, of all processes that have not ended."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        fields = read(folder / "stat").rpartition(")")[2].split()
        if fields and fields[0] not in "ZX":
            found[int(folder.name)] = (int(fields[1]), int(fields[19]))
    return found


def below(pid, every):
    """The process and its descendants, each behind its parent."""
    found = [pid]
    for one in found:
        found += [child for child, (parent, _) in every.items() if parent == one]
    return found


def outputs(pid):
    links = set()
    for descriptor in (1, 2):
        try:
            links.add(os.readlink(PROC / str(pid) / "fd" / str(descriptor)))
        except OSError:
            pass
    return {link for link in links if link.startswith("pipe:")}


def is_ctest(pid):
    return read(PROC / str(pid) / "comm").strip() == "ctest"


def tests_below(pid, every):
    """Those that any ctest runs, but for a ctest itself, and for the compilers of one that builds first (tsan_core)."""
    ctests = [one for one in below(pid, every) if is_ctest(one) and "--build-and-test" not in command_of(one)]
    return [child for child, (parent, _) in every.items() if parent in ctests and not is_ctest(child)]


def processes_of(test, every):
    found = below(test, every)
    pipes = outputs(test)
    return found + [pid for pid in every if pid not in found and not is_ctest(pid) and outputs(pid) & pipes]


def command_of(pid):
    return read(PROC / str(pid) / "cmdline").replace("\0", " ").strip()[:300]


def description(pid):
    """One line of the process, one of each thread, and what gdb says."""
    folder = PROC / str(pid)
    lines = [f"{pid}: {command_of(pid)}"]
    for thread in sorted(folder.glob("task/*")):
        state = (read(thread / "stat").rpartition(")")[2].split() or ["?"])[0]
        lines.append(f"  thread {thread.name} {read(thread / 'comm').strip()}: {state} {read(thread / 'wchan') or '?'}")
    if shutil.which("gdb"):
        try:
            said = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set debuginfod enabled off", "-ex",
                                   "thread apply all bt 16"], capture_output=True, text=True, errors="replace", timeout=60, check=False,
                                  stdin=subprocess.DEVNULL).stdout
            lines += ["  " + line for line in said.splitlines() if line.startswith(("#", "Thread"))][:LINES]
        except subprocess.TimeoutExpired:
            lines.append("  gdb did not answer within a minute")
    return lines


def report(test, every, seconds):
    lines = [f"hung_tests: this test has run for more than {seconds} s: {command_of(test)}"]
    for pid in processes_of(test, every)[:PROCESSES]:
        lines += ["  " + line for line in description(pid)]
    return "\n".join(lines)


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    parent = os.getppid()
    told = set()
    while os.getppid() == parent:
        every = processes()
        now = float(read(PROC / "uptime").split()[0])
        for test in tests_below(parent, every):
            begin = every[test][1]
            if now - begin / os.sysconf("SC_CLK_TCK") > seconds and (test, begin) not in told:
                told.add((test, begin))
                print(report(test, every, seconds), flush=True)
        time.sleep(5)


if __name__ == "__main__":
    main()
