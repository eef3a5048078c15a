"""Running benchmarks and comparing them, for bench/run.py."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from machine import busy_seconds, own_seconds

UNDISTURBED = 0.05  # share of all cores that others may use during a run


def run(command, folder):
    """(output, seconds, share of all cores that others used meanwhile)"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    busy, own, start = busy_seconds(), own_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder,
                          env=environment)
    seconds = time.monotonic() - start
    foreign = (busy_seconds() - busy) - (own_seconds() - own)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout, seconds, max(0.0, foreign / seconds / os.cpu_count())


class Competition:
    """Interleaved runs of named commands, until each has enough undisturbed ones."""

    def __init__(self, commands, value_of, args):
        self.values = {name: [] for name in commands}  # of undisturbed runs: what was measured -> value
        self.dropped = {name: 0 for name in commands}
        self.foreign = []  # of the runs that count
        end = time.monotonic() + 60 * args.minutes
        turn = 0
        with tempfile.TemporaryDirectory() as folder:
            for command in commands.values():
                run(command, folder)
            while min(map(len, self.values.values())) < args.rounds and time.monotonic() < end:
                names = list(commands)
                names = names[turn % len(names):] + names[:turn % len(names)]
                turn += 1
                for name in names:
                    self.one_run(name, commands[name], value_of, args, folder)
        missing = [name for name, values in self.values.items() if not values]
        if missing:
            sys.exit(f"no undisturbed run of {', '.join(missing)} in {args.minutes:g} minutes: nothing written")
        self.complete = min(map(len, self.values.values())) >= args.rounds and args.disturbance <= UNDISTURBED

    def one_run(self, name, command, value_of, args, folder):
        output, seconds, foreign = run(command, folder)
        kept = foreign <= args.disturbance
        if kept:
            self.values[name].append(value_of(output, seconds))
            self.foreign.append(foreign)
        else:
            self.dropped[name] += 1
        shown = ", ".join(f"{what} {value:.4g}" for what, value in list(value_of(output, seconds).items())[:2] if isinstance(value, float))
        print(f"  {name:40} others {foreign:6.1%}{'' if kept else ' dropped'}  {shown}", file=sys.stderr)

    def report(self):
        return {"preliminary": not self.complete, "dropped_runs": sum(self.dropped.values()),
                "largest_share_of_others": round(max(self.foreign, default=0.0), 3)}

    def medians(self, what):
        return {name: statistics.median(v[what] for v in values) for name, values in self.values.items()}

    def table(self, what):
        rows = {}
        for name, median in self.medians(what).items():
            values = [v[what] for v in self.values[name]]
            rows[name] = {"median": round(median, 3), "min": round(min(values), 3), "max": round(max(values), 3),
                          "runs": len(values)}
        return rows


def objects(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def ratio(value, at_least=None, at_most=None):
    bounds = {name: bound for name, bound in (("at least", at_least), ("at most", at_most)) if bound is not None}
    met = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    return {"value": round(value, 3), **bounds, **({"met": met} if bounds else {})}


def launch(args, *options, ranks=2):
    return [args.build / "lockstep", "run", "-n", str(ranks), "--no-logs", "--no-prefix", *options]
