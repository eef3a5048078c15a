#!/usr/bin/env python3
"""Runs the benchmarks beside their peers and writes bench/results/MACHINE/*.json and a table, README.md.

    scripts/setup --bench
    cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_BUILD_BENCH=ON && ninja -C build
    bench/run.py --python .deps/venv/bin/python                # all; or --only train_step,start_up,collectives

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
import statistics
import subprocess
import sys

from c_interface import c_interface
from collective_ratios import collective_ratios, tensor_ratios
from competition import Competition, UNDISTURBED, launch, objects, ratio
from horovod import horovod
from machine import cpu, machine_folder
from python_frameworks import python_frameworks
from python_train import python_train
from results_table import table
from training import STEPS, sharded_step, sharded_train, step_options, step_rows, step_values, train_step, virtual_ranks

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench/peers"


# ---- the machine and its load

def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


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


# ---- the benchmarks

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


def mpi(args, ranks, *options, words=(), program="collectives"):
    """The commands of the MPI peers that were built."""
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    commands = {"openmpi": ["mpirun.openmpi", "-n", str(ranks), *as_root, *(options or ("--bind-to", "core"))],
                "mpich": ["mpirun.mpich", "-n", str(ranks), "-bind-to", "core"]}
    programs = {name: args.build / f"bench/{program}_{name}" for name in commands}
    return {name: command + [programs[name], name, *words] for name, command in commands.items() if programs[name].exists()}


def call_times(commands, args):
    """(report, rows by verb and size of microseconds by column)"""
    def times(output, _):
        return {(o["verb"], o["bytes"], o["memory"]): o["median_us"] for o in objects(output)}

    runs = Competition(commands, times, args)
    median = {key: statistics.median(run[key] for run in values) for values in runs.values.values() for key in values[0]}
    rows = {}
    for (verb, size, memory), value in median.items():
        row = rows.setdefault(verb if size == 0 else f"{verb} {size_name(size)}", {})
        kernel = memory.split()[0] not in ("private", "shared", "span", "tensor", "lockstep", "gloo", "openmpi", "mpich", "read")
        column = "bound" if kernel else memory
        row[column] = min(row.get(column, value), round(value, 2))
    return runs.report() | {"unit": "us", "medians": rows}, rows


def collectives(args):
    """Microseconds of one call by verb and size, two ranks; the median over runs of each run's median. "shared": what is
    given lies in memory of the group's; "span" and "tensor": the calls on spans and on tensors of the same private memory, in turn;
    "bound": the best of the kernels in bench/bound.cpp, the sums alone; "private copies": the bare copies in turn (bench/bare_copies.h);
    "beside": both libraries in one program and the same private memory, in turn (bench/beside_mpi.cpp)."""
    commands = {"lockstep": launch(args) + [args.build / "bench/collectives"],
                "tensors": launch(args) + [args.build / "bench/tensor_collectives"],
                "gloo": launch(args, "--no-affinity") + [args.python, PEERS / "collectives.py"],
                "bound": [args.build / "bench/bound"], **mpi(args, 2), **{
                    f"beside {name}": command for name, command in mpi(args, 2, words=["all_gather,all_to_all"], program="beside").items()}}
    report, rows = call_times(commands, args)
    return report | {"ratios": collective_ratios(rows) | tensor_ratios(rows)}


def four_ranks(args):
    """Microseconds of one all_reduce of four ranks on two cores."""
    words = ["all_reduce", str(1 << 10), str(25 << 20)]
    commands = {"lockstep": launch(args, ranks=4) + [args.build / "bench/collectives", *words],
                "openmpi": mpi(args, 4, "--oversubscribe", words=words)["openmpi"]}
    report, rows = call_times(commands, args)
    small, large = rows["all_reduce 1 KiB"], rows["all_reduce 25 MiB"]
    return report | {"ratios": {
        "1 KiB: private / openmpi": ratio(small["private"] / small["openmpi"], at_most=2),
        "25 MiB: openmpi / shared": ratio(large["openmpi"] / large["shared"], at_least=3.5),
        "25 MiB: openmpi / private": ratio(large["openmpi"] / large["private"])}}


def checkpoint(args):
    """Seconds of a save of 100.7 million float32 parameters by two ranks, with fsync and without, of a load, of the stall of the training
    by a save in the background, and until that is done; each run's median of five (bench/checkpoint.cpp, bench/peers/checkpoint.py).
    Peers but torch.distributed.checkpoint save a half each. Lockstep alone has checksums, and compares them when it loads."""
    torchrun = [args.python.parent / "torchrun", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "29534"]
    peer = PEERS / "checkpoint.py"
    runs = Competition({"lockstep": launch(args) + [args.build / "bench/checkpoint"],
                        **{name: torchrun + [peer, name] for name in ("raw", "dcp", "safetensors", "torch_save")}},
                       lambda output, _: objects(output)[0], args)
    rows = {name: {what.replace("_", " "): round(statistics.median(run[what] for run in values), 4) for what in values[0]}
            for name, values in runs.values.items()}
    ours, raw, dcp = rows["lockstep"], rows["raw"], rows["dcp"]
    return runs.report() | {"unit": "s", "medians": rows, "ratios": {
        "save: lockstep / raw write": ratio(ours["save"] / raw["save"], at_most=1.15),
        "save: lockstep / dcp": ratio(ours["save"] / dcp["save"], at_most=0.9),
        "load: lockstep / dcp": ratio(ours["load"] / dcp["load"], at_most=1),
        "stall of an asynchronous save: lockstep / dcp": ratio(ours["blocked"] / dcp["blocked"], at_most=0.3)}}


def async_checkpoint(args):
    """Milliseconds of a training step of two ranks, one thread each, while save_checkpoint_async() writes and while nothing is written;
    and of the mean step of an interval of 100 steps that begins with such a save, and of one without, the call and its copy included
    (bench/async_checkpoint.cpp). Both in one run, in turn."""
    runs = Competition({"lockstep": launch(args) + [args.build / "bench/async_checkpoint"]}, lambda output, _: objects(output)[0], args)
    row = {what.replace("_", " "): round(statistics.median(run[what] for run in runs.values["lockstep"]), 3)
           for what in runs.values["lockstep"][0]}
    return runs.report() | {"unit": "ms", "medians": {"lockstep": row}, "ratios": {
        "step: while a save is written / without": ratio(row["step while writing"] / row["step"], at_most=1.03),
        "interval of 100 steps: with a save / without": ratio(row["interval step with save"] / row["interval step"])}}


def offload(args):
    """Milliseconds of AdamW's step of 64 million float32 parameters, one rank, one thread: its state in memory, in a file, and the disk's
    bound: the same bytes read from one file and written to another at once, past the page cache (bench/offload.cpp)."""
    runs = Competition({"lockstep": [args.build / "bench/offload", args.build, "5"]}, lambda output, _: objects(output)[0], args)
    row = {way: round(statistics.median(run[way] for run in runs.values["lockstep"]), 1) for way in ("memory", "file", "bound")}
    return runs.report() | {"unit": "ms", "medians": {"AdamW": row}, "ratios": {"the disk's bound / file": ratio(row["bound"] / row["file"])}}


def slices(args):
    """Microseconds from the start of an all_reduce of 25 MiB to its result, by who reduces what (bench/slices.cpp): at rank 0, and
    at both."""
    def times(output, _):
        return {(o["way"], o["load"], rank): o[key] for o in objects(output)
                for rank, key in (("rank 0", "rank_0_us"), ("both", "both_us"))}

    runs = Competition({"slices": [args.build / "bench/slices"]}, times, args)
    rows = {}
    for way, load, rank in runs.values["slices"][0]:
        rows.setdefault(way, {})[f"{load}, {rank}"] = round(runs.medians((way, load, rank))["slices"], 1)
    return runs.report() | {"unit": "us", "medians": rows, "ratios": {
        f"{load}, {rank}: {way} / claims": ratio(rows[way][f"{load}, {rank}"] / rows["claims"][f"{load}, {rank}"])
        for load in ("equal", "skewed") for rank in ("rank 0", "both") for way in ("fixed", "thread")}}


def optimizers(args):
    """Milliseconds of one step on 25 million float32 parameters by one thread; the median over runs of each run's median over 10
    steps. Processor time, which is the time on a quiet machine. "libtorch" is its C++ optimiser, "libtorch, cached" the same
    with Lockstep's allocator, which keeps the temporaries' memory; the others are Python's torch.optim in its three forms."""
    def times(output, _):
        return {o["optimizer"]: o["cpu_ms"] for o in objects(output)}

    program, peer = args.build / "bench/optimizers", PEERS / "optimizers.py"
    alone = launch(args, ranks=1)
    runs = Competition({
        "lockstep": alone + [program, "lockstep", "10"],
        "libtorch": alone + [program, "libtorch", "10"], "libtorch, cached": alone + [program, "cached", "10"],
        **{f"Python, {way}": alone + [args.python, peer, way, "10"] for way in ("loop", "foreach", "fused")},
    }, times, args)
    rows = {}
    for name, values in runs.values.items():
        for what in values[0]:
            rows.setdefault(what, {})[name] = round(statistics.median(run[what] for run in values), 2)
    return runs.report() | {"unit": "ms", "medians": rows, "ratios": {
        f"{what}: {peer} / lockstep": ratio(row[peer] / row["lockstep"],
                                            at_least=1.5 if peer == "libtorch" and what != "SGD" else None)
        for peer in ("libtorch", "Python, fused") for what, row in rows.items() if peer in row}}


def hooks(args):
    """What each communication hook sends (MiB that a rank contributes per step, and as a part of its gradients), costs (ms per step) and
    loses: the error of the first averaged gradient, before any error feedback (bench/hooks.cpp). Two ranks, one thread each."""
    def values(output, _):
        return {(o["hook"] or "no hook", what): o[what] for o in objects(output) for what in o if what != "hook"}

    steps = {"mlp": "10", "resnet18": "5"}
    runs = Competition({model: launch(args) + [args.build / "bench/hooks", model, n] for model, n in steps.items()}, values, args)
    rows = {}
    for model, found in runs.values.items():
        for hook, what in found[0]:
            rows.setdefault(f"{model}: {hook}", {})[what.replace("_", " ")] = statistics.median(v[hook, what] for v in found)
    return runs.report() | {"unit": "per step", "medians": rows, "ratios": {}}


def activation_checkpoint(args):
    """Milliseconds and MB (peak of activations) of a training step of 64 layers by one thread, plain and recomputed in backward
    (bench/activation_checkpoint.cpp). The bound on time is 1 + t_forward / (t_forward + t_backward) of the plain step, and 3 %."""
    def values(output, _):
        return {(o["way"], what): o[what] for o in objects(output) for what in o if what != "way"}

    runs = Competition({"lockstep": launch(args, ranks=1) + [args.build / "bench/activation_checkpoint", "10"]}, values, args)
    rows = {}
    for way, what in runs.values["lockstep"][0]:
        rows.setdefault(way, {})[what] = round(runs.medians((way, what))["lockstep"], 3)
    return runs.report() | {"unit": "ms, MB", "medians": rows, "ratios": {
        f"{way}: {what} / plain": ratio(rows[way][f"{what}_ratio"], at_most=bound)
        for way in ("checkpoint", "checkpoint_sequential")
        for what, bound in (("time", round(rows[way]["time_bound"] + 0.03, 3)), ("memory", 0.3))}}


def loopback(args):
    """Microseconds of one all_reduce of two ranks that send everything over TCP on loopback."""
    words = ["all_reduce", str(64 << 10), str(25 << 20)]
    over_tcp = ["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    commands = {"tcp": ["env", "LOCKSTEP_BACKEND=tcp", *launch(args), args.build / "bench/collectives", *words],
                "gloo": launch(args, "--no-affinity") + [args.python, PEERS / "collectives.py", *words],
                "openmpi": mpi(args, 2, *over_tcp, words=words)["openmpi"]}
    report, rows = call_times(commands, args)
    return report | {"ratios": {f"{size}: {peer} / private": ratio(row[peer] / row["private"], at_least=1 if peer == "gloo" else None)
                                for size, row in rows.items() for peer in ("gloo", "openmpi")}}


def connections(args):
    """Microseconds of one all_reduce of two ranks with so many TCP connections between them: over loopback; between two hosts
    (network namespaces) with so much; and where the link gives each connection a quarter of its 1 Gbit/s, as some clouds do."""
    program = [args.build / "bench/collectives", "all_reduce", str(64 << 10), str(25 << 20)]
    links = {"loopback": launch(args), **{rate: [ROOT / "bench/slow_link.py", rate] for rate in ("1gbit", "10gbit", "250mbit-of-1gbit")}}
    commands = {f"{link}, {n}": ["env", "LOCKSTEP_BACKEND=tcp", f"LOCKSTEP_TCP_CONNECTIONS={n}", *command, *program]
                for link, command in links.items() for n in (1, 2, 4)}
    runs = Competition(commands, lambda output, _: {o["bytes"]: o["median_us"] for o in objects(output) if o["memory"] == "private"}, args)
    rows = {}
    for size in (64 << 10, 25 << 20):
        for name, median in runs.medians(size).items():
            link, number = name.split(", ")
            rows.setdefault(f"{size_name(size)}, {link}", {})[number] = round(median, 1)
    return runs.report() | {"unit": "us", "medians": rows,
                            "ratios": {f"{what}: 1 / {n}": ratio(row["1"] / row[n]) for what, row in rows.items() for n in ("2", "4")}}


def half_sums(args):
    """Microseconds of one all_reduce of bfloat16 of four ranks on each of two hosts (network namespaces): as sums of each node, which
    travel as float32 (hierarchical), and of all ranks' contributions (tcp)."""
    sizes = (64 << 10, 25 << 20)
    commands = {f"{rate}, {backend}": ["env", f"LOCKSTEP_BACKEND={backend}", ROOT / "bench/slow_link.py", f"{rate}*4",
                                       args.build / "bench/half_sums", *map(str, sizes)]
                for rate in ("1gbit", "10gbit") for backend in ("hierarchical", "tcp")}
    runs = Competition(commands, lambda output, _: {o["bytes"]: o["median_us"] for o in objects(output)}, args)
    rows = {}
    for size in sizes:
        for name, median in runs.medians(size).items():
            rate, backend = name.split(", ")
            rows.setdefault(f"{size_name(size)}, {rate}", {})[backend] = round(median, 1)
    return runs.report() | {"unit": "us", "medians": rows,
                            "ratios": {f"{what}: tcp / hierarchical": ratio(row["tcp"] / row["hierarchical"]) for what, row in rows.items()}}


def two_nodes(args):
    """Microseconds of one call of two ranks on each of two nodes, which are one machine: over loopback between nodes. The send is
    from one rank of a node to the other."""
    sizes = [str(64 << 10), str(25 << 20)]
    words = ["all_reduce,broadcast,all_gather,reduce_scatter,all_to_all,send", *sizes]
    commands = {backend: [ROOT / "bench/two_nodes.py", args.build, backend, args.build / "bench/collectives", *words]
                for backend in ("hierarchical", "tcp")}
    commands["gloo"] = launch(args, "--no-affinity", ranks=4) + [args.python, PEERS / "collectives.py", "all_reduce,broadcast,all_gather,all_to_all,send", *sizes]
    runs = Competition(commands, lambda output, _: {(o["verb"], o["bytes"], o["memory"]): o["median_us"] for o in objects(output)}, args)
    rows = {}
    for name, values in runs.values.items():
        for verb, size, memory in values[0]:
            column = name if name == memory else f"{name}, {memory}"
            rows.setdefault(f"{verb} {size_name(size)}", {})[column] = round(statistics.median(v[verb, size, memory] for v in values), 1)
    return runs.report() | {"unit": "us", "medians": rows, "ratios": {
        f"{what}: {peer} / hierarchical, shared": ratio(row[peer] / row["hierarchical, shared"],
                                                        at_least=1.5 if what.startswith("all_reduce") else None)
        for what, row in rows.items() for peer in ("gloo", "tcp, private") if peer in row}}


def slow_link(args):
    """Samples per second of both ranks together of training steps (bench/train_step.cpp), a rank on each of two hosts (network
    namespaces) with 1 Gbit/s between them, and with no limit; beside Python's DistributedDataParallel over Gloo."""
    commands = {}
    for model in ("cnn", "resnet18"):
        steps = str(STEPS[model] // 4)
        for rate in ("1gbit", "unlimited"):
            link = [ROOT / "bench/slow_link.py", rate]
            cpp = [*link, args.build / "bench/train_step", model, "ddp", steps]
            commands |= {f"{model}, {rate}: lockstep": cpp, f"{model}, {rate}: lockstep, fp16_compress": [*cpp, "hook=fp16_compress"],
                         f"{model}, {rate}: Gloo": [*link, args.python, PEERS / "train_step.py", model, "ddp", steps]}
    runs = Competition(commands, step_values, args)
    m = runs.medians("samples/s")
    return runs.report() | {"unit": "samples/s", "medians": step_rows(runs), "ratios": {
        f"{link}: lockstep{ours} / {peer}": ratio(m[f"{link}: lockstep{ours}"] / m[f"{link}: {peer}"])
        for link in dict.fromkeys(name.split(":")[0] for name in commands)
        for ours, peer in (("", "Gloo"), (", fp16_compress", "lockstep"))}}


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"


# ---- from the command to the results

BENCHMARKS = {f.__name__: f for f in (
    train_step, step_options, hooks, start_up, collectives, c_interface, four_ranks, slices, optimizers, offload, activation_checkpoint, checkpoint,
    async_checkpoint, sharded_step, sharded_train, loopback, connections, half_sums, two_nodes, slow_link, virtual_ranks, python_train, python_frameworks, horovod)}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=ROOT / ".deps/venv/bin/python", type=pathlib.Path)
    parser.add_argument("--horovod", default=ROOT / ".deps/horovod/bin/python", type=pathlib.Path, help="a Python with Horovod (bench/peers/build_horovod)")
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=9, help="undisturbed runs of every competitor")
    parser.add_argument("--minutes", type=float, default=20, help="give up on a benchmark after this")
    parser.add_argument("--models", default=",".join(STEPS), help="of train_step")
    parser.add_argument("--disturbance", type=float, default=UNDISTURBED, help="share of the cores that others may use")
    parser.add_argument("--results", default=ROOT / "bench/results", type=pathlib.Path)
    args = parser.parse_args()
    args.python, args.horovod, args.build = args.python.absolute(), args.horovod.absolute(), args.build.absolute()
    return args


def main():
    args = parse_arguments()
    folder = machine_folder(args.results)
    folder.mkdir(parents=True, exist_ok=True)
    about = {"date": datetime.date.today().isoformat(), "cpu": cpu(), "versions": versions(args),
             "command": f"bench/run.py --only {args.only} --rounds {args.rounds}"
                        + (f" --models {args.models}" if args.models != ",".join(STEPS) else "")
                        + (f" --disturbance {args.disturbance}" if args.disturbance != UNDISTURBED else "")}
    for name in args.only.split(","):
        print(name, file=sys.stderr)
        result = {"what": BENCHMARKS[name].__doc__} | about | BENCHMARKS[name](args)
        (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    results = {name: json.loads(file.read_text()) for name in BENCHMARKS if (file := folder / f"{name}.json").exists()}
    (folder / "README.md").write_text(table(results))
    print(table(results))
    sys.exit(any(not q.get("met", True) for name in args.only.split(",") for q in results[name]["ratios"].values()))


if __name__ == "__main__":
    main()
