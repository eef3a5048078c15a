#!/usr/bin/env python3
"""Runs the benchmarks beside their peers, interleaved, and writes bench/results/CPU.json and a table.

    cmake -S . -B build -DLOCKSTEP_BUILD_BENCH=ON && ninja -C build
    bench/run.py --python .deps/venv/bin/python [--rounds 9] [--steps 100] [--build build]

One thread a process, each process on a core of its own (the launcher's affinity, for the peers too). In every round each
competitor runs once, in rotating order; a round's run is dropped when other processes used more than 5 % of the cores
meanwhile. Reported are medians over rounds and the ratios of medians. Standard library only.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def busy_seconds():
    fields = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command):
    """(output, seconds, share of the cores that others used)"""
    busy, own, start = busy_seconds(), own_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=ROOT)
    seconds = time.monotonic() - start
    foreign = (busy_seconds() - busy) - (own_seconds() - own)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout, seconds, max(0.0, foreign / seconds / os.cpu_count())


def compete(competitors, rounds, value_of):
    """competitors: name -> command. Returns name -> list of values of undisturbed rounds."""
    names = list(competitors)
    values = {name: [] for name in names}
    dropped = 0
    for i in range(rounds):
        for name in names[i % len(names):] + names[:i % len(names)]:
            output, seconds, foreign = run(competitors[name])
            if foreign > LIMIT:
                dropped += 1
                continue
            values[name].append(value_of(output, seconds))
        print(f"  round {i + 1}/{rounds}, {dropped} runs dropped", file=sys.stderr)
    return values, dropped


def summary(values):
    return {name: {"median": statistics.median(v), "min": min(v), "max": max(v), "runs": len(v)} if v else None
            for name, v in values.items()}


def objects(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def main():
    global LIMIT
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=ROOT / ".deps/venv/bin/python", type=pathlib.Path)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--disturbance", type=float, default=0.05, help="share of the cores that others may use")
    args = parser.parse_args()
    LIMIT = args.disturbance
    launch = [args.build / "lockstep", "run", "-n", "2", "--no-logs", "--no-prefix"]
    torchrun = [args.python.parent / "torchrun", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "29533"]

    def pair_speed(output, _):
        return sum(o["images_per_second"] for o in objects(output))

    step, peer = args.build / "bench/mnist_step", ROOT / "bench/peers/mnist_step.py"
    mnist, mnist_dropped = compete({
        "a: C++, two processes that never talk": launch + [step, "alone", str(args.steps)],
        "a': Python, two processes that never talk": launch + [args.python, peer, "alone", str(args.steps)],
        "b: Python DDP, Gloo": launch + [args.python, peer, "ddp", str(args.steps)],
        "c: Lockstep DDP": launch + [step, "ddp", str(args.steps)],
    }, args.rounds, pair_speed)
    startup, startup_dropped = compete({
        "lockstep run, hello_ranks": launch + [args.build / "examples/hello_ranks"],
        "torchrun, one all_reduce over Gloo": torchrun + [ROOT / "bench/peers/one_all_reduce.py"],
    }, args.rounds, lambda _, seconds: seconds)
    reduce_rounds, reduce_dropped = compete({
        "lockstep": launch + [args.build / "bench/all_reduce"],
        "gloo": launch + [args.python, ROOT / "bench/peers/all_reduce.py"],
    }, max(3, args.rounds // 3), lambda output, _: objects(output))
    sizes = {}
    for runs in reduce_rounds.values():
        for one in runs:
            for o in one:
                sizes.setdefault((o["bytes"], o["memory"]), []).append(o["median_us"])

    result = {
        "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform(),
        "command": "bench/run.py " + " ".join(a for a in sys.argv[1:] if "/" not in a),
        "dropped_runs": mnist_dropped + startup_dropped + reduce_dropped,
        "mnist_images_per_second": summary(mnist), "startup_seconds": summary(startup),
        "all_reduce_median_us": [{"bytes": b, "memory": m, "us": statistics.median(v)} for (b, m), v in sorted(sizes.items())],
    }
    median = {k[0:2].strip(": "): v["median"] for k, v in result["mnist_images_per_second"].items() if v}
    starts = [v["median"] for v in result["startup_seconds"].values() if v]
    result["ratios"] = {
        "c / a (floor 0.88)": round(median["c"] / median["a"], 3), "c / b (floor 1.12)": round(median["c"] / median["b"], 3),
        "b / a'": round(median["b"] / median["a'"], 3), "start-up, lockstep / torchrun (floor 0.5)": round(starts[0] / starts[1], 3),
    }
    name = "".join(c if c.isalnum() else "-" for c in result["cpu"]).strip("-").lower()
    path = ROOT / "bench/results" / f"{name}-{result['cores']}-cores.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


main()
