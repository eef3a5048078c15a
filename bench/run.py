#!/usr/bin/env python3
"""Runs the benchmarks beside their peers and writes bench/results/MACHINE/*.json and a table, README.md.

    scripts/setup --bench
    cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_BUILD_BENCH=ON && ninja -C build
    bench/run.py --python .deps/venv/bin/python                # all; or --only mnist_step,start_up,collectives

How: one thread a process. In each round every competitor runs once, in rotating order; one unmeasured round goes before. A
run during which processes other than its own used more than 5 % of the cores (/proc/stat, against the time of our own
children) is dropped, and rounds go on until every competitor has --rounds undisturbed runs or --minutes are over. Figures
are medians over runs, ratios are of medians. What falls short of that is marked preliminary. Exit status 1: a floor was
missed, or nothing was measured.

What runs where: `lockstep run` gives every rank a core of its own, and the processes that never talk are started by it
too. Gloo has threads of its own; a training step is measured both without pinning, as torchrun leaves it, and pinned, and
the better counts. Peers over MPI run if `scripts/setup --bench` had been run before the build. Standard library only; the
Python given needs torch.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench/peers"
UNDISTURBED = 0.05  # share of all cores that others may use during a run


# ---- the machine and its load

def busy_seconds():
    """Of all cores since boot; time stolen by the hypervisor counts as busy."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, open("/proc/stat").readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cpu():
    fields = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*: (.*)$", open("/proc/cpuinfo").read(), re.M))
    return {"name": fields.get("model name", platform.machine()), "cores": os.cpu_count(),
            "family_model_stepping": [fields.get(k) for k in ("cpu family", "model", "stepping")]}


def versions(args):
    cache = (args.build / "CMakeCache.txt").read_text()
    if "CMAKE_BUILD_TYPE:STRING=Release" not in cache:
        sys.exit(f"{args.build} is not a Release build: nothing to measure there")
    compiler = next(args.build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")).read_text()
    git = ["git", "-C", ROOT]
    changed = output_of(*git, "status", "--porcelain", "--", "lockstep", "cli", "bench/*.cpp", "bench/peers")
    return {"lockstep": output_of(*git, "rev-parse", "--short", "HEAD") + (" with changes" if changed else ""),
            "torch": output_of(args.python, "-c", "import torch; print(torch.__version__)"),
            "python": output_of(args.python, "-c", "import platform; print(platform.python_version())"),
            "compiler": "g++ " + re.search(r'CMAKE_CXX_COMPILER_VERSION "(.*?)"', compiler).group(1),
            "kernel": platform.release()}


# ---- running and comparing

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
        shown = ", ".join(f"{what} {value:.4g}" for what, value in list(value_of(output, seconds).items())[:2])
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


# ---- the three benchmarks

def launch(args, *options):
    return [args.build / "lockstep", "run", "-n", "2", "--no-logs", "--no-prefix", *options]


ALONE, DDP, DDP_PLAIN, PY_ALONE, GLOO, GLOO_PINNED = (
    "(a) C++, two processes that never talk", "(c) Lockstep DDP", "(c') Lockstep DDP, LOCKSTEP_ALLOCATOR=off",
    "(a') Python, two that never talk", "(b) Python DDP, Gloo", "(b) Python DDP, Gloo, pinned")


def mnist_step(args):
    """Images per second of the pair."""
    def pair(output, _):
        ranks = objects(output)
        return {"images/s": sum(r["images_per_second"] for r in ranks),
                "CPU ms/step": statistics.mean(r["cpu_ms_per_step"] for r in ranks)}

    program, peer, steps = args.build / "bench/mnist_step", PEERS / "mnist_step.py", str(args.steps)
    runs = Competition({
        ALONE: launch(args) + [program, "alone", steps],
        DDP: launch(args) + [program, "ddp", steps],
        DDP_PLAIN: ["env", "LOCKSTEP_ALLOCATOR=off"] + launch(args) + [program, "ddp", steps],
        GLOO: launch(args, "--no-affinity") + [args.python, peer, "ddp", steps],
        PY_ALONE: launch(args) + [args.python, peer, "alone", steps],
        GLOO_PINNED: launch(args) + [args.python, peer, "ddp", steps],
    }, pair, args)
    m, rows = runs.medians("images/s"), runs.table("images/s")
    for name, cpu_time in runs.medians("CPU ms/step").items():
        rows[name]["CPU ms/step"] = round(cpu_time, 2)
    gloo = max(m[GLOO], m[GLOO_PINNED])
    return runs.report() | {
        "unit": "images/s of the pair", "steps_per_run": args.steps, "medians": rows,
        "ratios": {"(c) / (a)": ratio(m[DDP] / m[ALONE], 0.88), "(c) / (b)": ratio(m[DDP] / gloo, 1.12),
                   "(c') / (a)": ratio(m[DDP_PLAIN] / m[ALONE]), "(c') / (b)": ratio(m[DDP_PLAIN] / gloo),
                   "(b) / (a)": ratio(gloo / m[ALONE]), "(b) / (a')": ratio(gloo / m[PY_ALONE])}}


def start_up(args):
    """Seconds from the command to its end, for a program that joins, adds up one tensor and leaves."""
    torchrun = [args.python.parent / "torchrun", "--nproc-per-node", "2"]
    static = torchrun + ["--master-addr", "127.0.0.1", "--master-port", "29533"]
    standalone = torchrun + ["--standalone", "--local-addr", "127.0.0.1"]
    hello, peer = args.build / "examples/hello_ranks", PEERS / "one_all_reduce.py"
    runs = Competition({
        "lockstep run, hello_ranks": [args.build / "lockstep", "run", "-n", "2", hello],
        "torchrun, Gloo": static + [peer],
        "torchrun --standalone, Gloo": standalone + [peer],
        "torchrun --no-python, hello_ranks": static + ["--no-python", hello],
    }, lambda _, seconds: {"seconds": seconds}, args)
    m = list(runs.medians("seconds").values())
    return runs.report() | {
        "unit": "s", "medians": runs.table("seconds"),
        "ratios": {"lockstep run / torchrun": ratio(m[0] / min(m[1:3]), at_most=0.5),
                   "lockstep run / torchrun, same program": ratio(m[0] / m[3])}}


def collectives(args):
    """Microseconds of one call by verb and size, two ranks; the median over runs of each run's median. "shared" is memory of the
    group's; "bound" is the best of the kernels in bench/bound.cpp that do the sums of an all_reduce and nothing else."""
    def times(output, _):
        return {(o["verb"], o["bytes"], o["memory"]): o["median_us"] for o in objects(output)}

    commands = {"lockstep": launch(args) + [args.build / "bench/collectives"],
                "gloo": launch(args, "--no-affinity") + [args.python, PEERS / "collectives.py"],
                "bound": [args.build / "bench/bound"]}
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if (args.build / "bench/collectives_openmpi").exists():
        commands["openmpi"] = ["mpirun.openmpi", "-n", "2", "--bind-to", "core", *as_root, args.build / "bench/collectives_openmpi", "openmpi"]
    if (args.build / "bench/collectives_mpich").exists():
        commands["mpich"] = ["mpirun.mpich", "-n", "2", "-bind-to", "core", args.build / "bench/collectives_mpich", "mpich"]
    runs = Competition(commands, times, args)
    median = {key: statistics.median(run[key] for run in values) for values in runs.values.values() for key in values[0]}
    rows = {}
    for (verb, size, memory), value in median.items():
        row = rows.setdefault(verb if size == 0 else f"{verb} {size_name(size)}", {})
        kernel = memory not in ("private", "shared", "gloo", "openmpi", "mpich", "read")
        column = "bound" if kernel else memory
        row[column] = min(row.get(column, value), round(value, 2))
    return runs.report() | {"unit": "us", "medians": rows, "ratios": collective_ratios(rows)}


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"


def collective_ratios(rows):
    floors = [("all_reduce 8 B", "private", "openmpi", 1.5),
              *(("all_reduce " + size, "shared", "openmpi", floor)
                for size, floor in (("64 KiB", 4), ("1 MiB", 3.5), ("25 MiB", 4.5), ("100 MiB", 6))),
              ("all_reduce 25 MiB", "shared", "gloo", 10), ("all_reduce 25 MiB", "shared", "mpich", 5),
              *(("all_reduce " + size, "private", "openmpi", floor)
                for size, floor in (("64 KiB", 1.3), ("1 MiB", 1.2), ("25 MiB", 1.4), ("100 MiB", 2.5))),
              ("reduce_scatter 25 MiB", "private", "mpich", 3),
              *((verb + " 25 MiB", "private", "openmpi", 1) for verb in ("broadcast", "all_gather", "all_to_all", "send"))]
    ratios = {f"{what}: {peer} / {memory}": ratio(rows[what][peer] / rows[what][memory], at_least=floor)
              for what, memory, peer, floor in floors if peer in rows[what]}
    bucket = rows["all_reduce 25 MiB"]
    ratios["all_reduce 25 MiB: shared / bound"] = ratio(bucket["shared"] / bucket["bound"], at_most=1.15)
    return ratios


# ---- results

def table(results):
    lines = ["# Measured here", "", "Written by `bench/run.py`, whose head says how.", ""]
    for name, r in results.items():
        lines += [f"## {name}{' (preliminary)' if r['preliminary'] else ''}", "",
                  f"{' '.join(r['what'].split())} {r['date']}, {r['cpu']['cores']} cores of {r['cpu']['name']}, "
                  + ", ".join(f"{k} {v}" for k, v in r["versions"].items())
                  + f"; {r['dropped_runs']} disturbed runs dropped. `{r['command']}`", ""]
        columns = list(dict.fromkeys(c for row in r["medians"].values() for c in row))
        lines += [f"| {r['unit']} | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
        for row, values in r["medians"].items():
            lines += [f"| {row} | " + " | ".join(f"{values[c]:g}" if c in values else "" for c in columns) + " |"]
        lines += [""]
        for what, q in r["ratios"].items():
            bound = [f" (floor: {k} {q[k]}: {'met' if q['met'] else 'MISSED'})" for k in ("at least", "at most") if k in q]
            lines += [f"* {what} = {q['value']}{''.join(bound)}"]
        lines += [""]
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=ROOT / ".deps/venv/bin/python", type=pathlib.Path)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--only", default="mnist_step,start_up,collectives")
    parser.add_argument("--rounds", type=int, default=9, help="undisturbed runs of every competitor")
    parser.add_argument("--minutes", type=float, default=20, help="give up on a benchmark after this")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--disturbance", type=float, default=UNDISTURBED, help="share of the cores that others may use")
    parser.add_argument("--results", default=ROOT / "bench/results", type=pathlib.Path)
    args = parser.parse_args()
    args.python, args.build = args.python.absolute(), args.build.absolute()
    return args


def main():
    args = parse_arguments()
    machine = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", cpu()["name"]).lower()).strip("-")
    folder = args.results / f"{machine}-{os.cpu_count()}-cores"
    folder.mkdir(parents=True, exist_ok=True)
    about = {"date": datetime.date.today().isoformat(), "cpu": cpu(), "versions": versions(args),
             "command": f"bench/run.py --only {args.only} --rounds {args.rounds} --steps {args.steps}"
                        + (f" --disturbance {args.disturbance}" if args.disturbance != UNDISTURBED else "")}
    benchmarks = {f.__name__: f for f in (mnist_step, start_up, collectives)}
    for name in args.only.split(","):
        print(name, file=sys.stderr)
        result = {"what": benchmarks[name].__doc__} | about | benchmarks[name](args)
        (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    files = {name: folder / f"{name}.json" for name in benchmarks}
    results = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    (folder / "README.md").write_text(table(results))
    print(table(results))
    sys.exit(any(not q.get("met", True) for name in args.only.split(",") for q in results[name]["ratios"].values()))


if __name__ == "__main__":
    main()
