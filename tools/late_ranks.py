#!/usr/bin/env python3
"""Runs a command, and stops test processes below it (SIGSTOP) at random times, each for a moment: whatever a test or the library takes for
granted about who comes first is late now and then, as on a busy machine.

    tools/late_ranks.py ctest --test-dir build -j 4 -L ranks --output-on-failure
    tools/late_ranks.py --longest 0.5 --pause 0.2 -- ctest --test-dir build -R NcclFailures --repeat until-fail:20

Most tests are hit with -j twice the number of cores. Tests that stop ranks themselves (trace, peers_Stopped, launchers_Nodes) may fail
under it. The command's exit status, or 1 if nothing was stopped."""

import argparse
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

NAMES = "lockstep|trial|.*_trial|host_rank|launched"  # of processes that are ranks, or watch over ranks
AT_ONCE = (1, 1, 2, 3)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=float, default=0.12, help="seconds that one is stopped, at most")
    parser.add_argument("--pause", type=float, default=0.03, help="seconds until others are stopped, at most")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.command[:1] == ["--"]:
        del arguments.command[0]
    if not arguments.command:
        parser.error("which command?")
    return arguments


def processes_below(root):
    """[(pid, name)] of what `root` has started, directly or not."""
    children = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            text = pathlib.Path("/proc", pid, "stat").read_text(errors="replace")
            name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            children.setdefault(int(fields[1]), []).append((int(pid), name))
    found, left = [], [root]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += [pid for pid, _ in below]
    return found


@contextlib.contextmanager
def open_process(pid):
    """A descriptor, which never means another process that got the number since."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def send_signal(processes, number):
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, number)


def stop_some(root, longest):
    """Returns how many."""
    candidates = [pid for pid, name in processes_below(root) if re.match(NAMES, name)]
    with contextlib.ExitStack() as opened:
        chosen = []
        for pid in random.sample(candidates, min(len(candidates), random.choice(AT_ONCE))):
            with contextlib.suppress(ProcessLookupError):
                chosen.append(opened.enter_context(open_process(pid)))
        try:
            send_signal(chosen, signal.SIGSTOP)
            time.sleep(random.uniform(0, longest) if chosen else 0)
        finally:  # also when the user interrupts
            send_signal(chosen, signal.SIGCONT)
    return len(chosen)


def main():
    arguments = read_arguments()
    random.seed(arguments.seed)
    stops = 0
    with subprocess.Popen(arguments.command) as process:
        while process.poll() is None:
            stops += stop_some(process.pid, arguments.longest)
            time.sleep(random.uniform(0, arguments.pause))
    print(f"late_ranks: stopped {stops} times", file=sys.stderr)
    return process.returncode or (stops == 0)


if __name__ == "__main__":
    sys.exit(main())
