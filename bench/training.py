"""Training steps beside their peers, for bench/run.py."""
import pathlib
import platform
import statistics
import sys

from competition import Competition, launch, objects, ratio

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
STEPS = {"cnn": 100, "resnet18": 20, "mlp": 20}
SHARDED_STEPS = {"mlp": 20, "resnet18": 20, "gpt2": 10}
# Of the sharded wrapper to: processes that never talk, our DDP, ZeroRedundancyOptimizer, FSDP2, FSDP2 that keeps, the best stage of DeepSpeed
SHARDED_FLOORS = {"mlp": (1.0, 1.08, 2.0, 3.5, None, 4.5), "resnet18": (None, 1.03, None, None, None, None),
                  "gpt2": (None, None, 1.1, 1.3, 1.2, 1.3)}
DDP_FLOORS = {"cnn": (0.97, 1.4, 1.2), "resnet18": (0.96, 1.4, 1.1), "mlp": (0.90, 1.65, 1.25)}
COLUMNS = {"CPU ms/step": "cpu_ms_per_step", "faults/step": "faults_per_step", "Rss MiB": "rss_mib", "Pss MiB": "pss_mib",
           "communication ms": "communication_ms", "exposed ms": "exposed_ms", "MiB sent": "mib_sent"}
JEMALLOC = pathlib.Path(f"/usr/lib/{platform.machine()}-linux-gnu/libjemalloc.so.2")


def train_step(args):
    """Samples per second of all processes together; batch 64 a process, SGD with momentum; the MNIST CNN, torchvision's
    ResNet-18 on 32x32 images, six linear layers of 2048x2048 and a head. "one" is a process alone, "(a)" two that never
    talk, "(a')" the same with one barrier a step, "(b)" Python DDP over Gloo, "(c)" the same with jemalloc and
    gradient_as_bucket_view, "(d)" Lockstep's DDP; "plain" is libtorch's own allocator, "ours" Lockstep's; SGD is libtorch's (in
    (b) and (c) Python's), with "our SGD" Lockstep's, with "fused" Python's with fused=True. Of memory and page faults: of one process. A Pss page of two processes counts half for each."""
    results = [one_model(model, args) for model in args.models.split(",")]
    merged = {"preliminary": any(r["preliminary"] for r in results),
              "dropped_runs": sum(r["dropped_runs"] for r in results),
              "largest_share_of_others": max(r["largest_share_of_others"] for r in results),
              "unit": "samples/s", "steps_per_run": STEPS}
    return merged | {part: {k: v for r in results for k, v in r[part].items()} for part in ("medians", "ratios")}


def one_model(model, args):
    program, peer, steps = args.build / "bench/train_step", PEERS / "train_step.py", str(STEPS[model])
    if not JEMALLOC.exists():
        sys.exit(f"no {JEMALLOC}: scripts/setup --bench installs it")
    plain = ["env", "LOCKSTEP_ALLOCATOR=off"]
    jemalloc = plain + [f"LD_PRELOAD={JEMALLOC}", "MALLOC_CONF=thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1"]
    ours = []

    def cpp(mode, allocator, *options, ranks=2):
        return launch(args, ranks=ranks) + [*allocator, program, model, mode, steps, *options]

    def python(mode, allocator, *options, sgd=()):
        return launch(args, *options) + [*allocator, args.python, peer, model, mode, steps, *sgd]

    runs = Competition({
        "one, plain": cpp("alone", plain, ranks=1), "one, ours": cpp("alone", ours, ranks=1),
        "one, ours, our SGD": cpp("alone", ours, "sgd", ranks=1),
        "(a) plain": cpp("alone", plain), "(a) jemalloc": cpp("alone", jemalloc), "(a) ours": cpp("alone", ours),
        "(a') jemalloc": cpp("barrier", jemalloc), "(a') ours": cpp("barrier", ours),
        "(a') jemalloc, our SGD": cpp("barrier", jemalloc, "sgd"), "(a') ours, our SGD": cpp("barrier", ours, "sgd"),
        "(b) Gloo": python("ddp", plain, "--no-affinity"), "(b) Gloo, pinned": python("ddp", plain),
        "(c) Gloo": python("bucket_view", jemalloc, "--no-affinity"), "(c) Gloo, pinned": python("bucket_view", jemalloc),
        "(c) Gloo, fused": python("bucket_view", jemalloc, "--no-affinity", sgd=["fused"]),
        "(d) plain": cpp("ddp", plain), "(d) ours": cpp("ddp", ours), "(d) ours, our SGD": cpp("ddp", ours, "sgd"),
    }, step_values, args)
    return runs.report() | {"medians": {f"{model}: {name}": row for name, row in step_rows(runs).items()},
                            "ratios": {f"{model}: {k}": v for k, v in step_ratios(model, runs.medians("samples/s")).items()}}


def step_values(output, _):
    ranks = objects(output)
    return {"samples/s": sum(r["samples_per_second"] for r in ranks)} | {
        what: statistics.mean(r[key] for r in ranks) for what, key in COLUMNS.items() if key in ranks[0]}


def step_rows(runs):
    rows = runs.table("samples/s")
    for name, values in runs.values.items():
        for what in COLUMNS:
            if what in values[0]:
                rows[name][what] = round(statistics.median(v[what] for v in values), 2)
    return rows


def step_ratios(model, m):
    """Of like with like: what is beside (a), (a') and one process has the same SGD. Beside Python's: each as its users have it."""
    def best(kind, sgd):
        return max(value for name, value in m.items() if name.startswith(kind + " ") and name.endswith(", our SGD") == (sgd != ""))

    of_limit, of_gloo, alone = DDP_FLOORS[model]
    found = {"(d) / (b)": ratio(m["(d) ours, our SGD"] / best("(b)", ""), at_least=of_gloo),
             "(d) / (c)": ratio(m["(d) ours, our SGD"] / best("(c)", "")),
             "one process, ours / plain": ratio(m["one, ours, our SGD"] / m["one, plain"], at_least=alone),
             "one process, our allocator alone / plain": ratio(m["one, ours"] / m["one, plain"]),
             **{f"{kind} / (a)": ratio(best(kind, "") / best("(a)", "")) for kind in ("(b)", "(c)")}}
    for sgd, words in (("", "libtorch's SGD"), (", our SGD", "our SGD")):
        found[f"(d) / (a'), {words}"] = ratio(m["(d) ours" + sgd] / best("(a')", sgd), at_least=of_limit)
    return found | {"(a') / (a), libtorch's SGD": ratio(best("(a')", "") / best("(a)", "")),
                    "(d) / (b), libtorch's SGD": ratio(m["(d) ours"] / best("(b)", ""))}


OPTIONS = {"ddp": [], "AdamW": ["adamw"], "find_unused_parameters": ["unused"], "4 micro-batches": ["accumulate=4"], "bf16": ["bf16"],
           **{f"{hook} hook": [f"hook={hook}"] for hook in ("allreduce", "fp16_compress", "bf16_compress", "int8", "topk", "powerSGD", "noop")}}


def step_options(args):
    """The steps of train_step with the options of DistributedDataParallel, two ranks, and with three and four ranks on the same
    cores beside as many processes that never talk; bf16 (autocast) beside Python's DistributedDataParallel over Gloo. Samples
    per second of all processes together. "communication": from the first bucket's start to the last average; "exposed": the
    part of it that backward did not hide; "MiB sent": what a rank contributes to averages. All per step and of the mean rank."""
    medians, ratios, reports = {}, {}, []
    for model in args.models.split(","):
        def cpp(mode, ranks, *options, model=model):
            return launch(args, ranks=ranks) + [args.build / "bench/train_step", model, mode, str(STEPS[model] // 2), *options]

        commands = {name: cpp("ddp", 2, *options) for name, options in OPTIONS.items()}
        commands |= {"AdamW, never talk": cpp("alone", 2, "adamw"), "4 micro-batches, never talk": cpp("alone", 2, "accumulate=4")}
        for name, options in (("Python, bf16", ["--no-affinity"]), ("Python, bf16, pinned", [])):
            commands[name] = launch(args, *options) + [args.python, PEERS / "train_step.py", model, "ddp", str(STEPS[model] // 2), "bf16"]
        for ranks in (3, 4):
            commands |= {f"ddp, {ranks} ranks": cpp("ddp", ranks), f"never talk, {ranks} ranks": cpp("alone", ranks)}
        runs = Competition(commands, step_values, args)
        reports.append(runs.report())
        medians |= {f"{model}: {name}": row for name, row in step_rows(runs).items()}
        ratios |= {f"{model}: {name}": ratio(value) for name, value in option_ratios(runs).items()}
    return {"preliminary": any(r["preliminary"] for r in reports), "dropped_runs": sum(r["dropped_runs"] for r in reports),
            "largest_share_of_others": max(r["largest_share_of_others"] for r in reports),
            "unit": "samples/s", "medians": medians, "ratios": ratios}


def sharded_train(args):
    """Samples per second of all processes together, AdamW, batch 64 a process (of gpt2, six layers of width 384, 8 of 128 tokens), two
    processes of one thread: ShardedDataParallel, our DistributedDataParallel, and processes that never talk, all with our allocator;
    Python's ZeroRedundancyOptimizer and FSDP2 over Gloo, with AdamW's fused form, and DeepSpeed 0.19.8 over Gloo with torch's AdamW, as
    torchrun leaves them and pinned. "DeepSpeed": the best of its stages 1 to 3."""
    medians, ratios, reports = {}, {}, []
    chosen = SHARDED_STEPS if args.models == ",".join(STEPS) else args.models.split(",")
    for model, steps in ((model, steps) for model, steps in SHARDED_STEPS.items() if model in chosen):
        commands = {mode: launch(args) + [args.build / "bench/train_step", model, mode, str(steps), "adamw"] for mode in ("sharded", "ddp", "alone")}
        for mode in ("zero", "fsdp2", "fsdp2_keep", "deepspeed1", "deepspeed2", "deepspeed3"):
            for name, options in ((mode, ["--no-affinity"]), (f"{mode}, pinned", [])):
                commands[name] = launch(args, *options) + [args.python, PEERS / "train_step.py", model, mode, str(steps), "adamw", "fused"]
        runs = Competition(commands, step_values, args)
        reports.append(runs.report())
        medians |= {f"{model}: {name}": row for name, row in step_rows(runs).items()}
        m = runs.medians("samples/s")

        def best(*modes, m=m):
            return max(m[name] for mode in modes for name in (mode, f"{mode}, pinned"))

        of = {"never talk": m["alone"], "ddp": m["ddp"], "ZeroRedundancyOptimizer": best("zero"), "FSDP2": best("fsdp2"),
              "FSDP2 that keeps": best("fsdp2_keep"), "DeepSpeed": best("deepspeed1", "deepspeed2", "deepspeed3")}
        ratios |= {f"{model}: sharded / {name}": ratio(m["sharded"] / value, at_least=floor)
                   for (name, value), floor in zip(of.items(), SHARDED_FLOORS[model])}
    return {"preliminary": any(r["preliminary"] for r in reports), "dropped_runs": sum(r["dropped_runs"] for r in reports),
            "largest_share_of_others": max(r["largest_share_of_others"] for r in reports),
            "unit": "samples/s", "medians": medians, "ratios": ratios}


def sharded_step(args):
    """Milliseconds from the last gradient to the last parameter of a step, 25 million parameters, two ranks of one thread and four on the
    same cores (bench/sharded_step.cpp). "replicas": all_reduce of the gradients and the optimiser on every rank. "sharded":
    ShardedDataParallel. "bound": the bytes of "sharded" with hardly any arithmetic. Of the slowest rank."""
    kinds = {"adamw": (2, 1.8), "momentum": (2, 1.9), "clip": (2, 2.1), "bf16": (2, None), "masters": (2, 1.9), "adamw, 4 ranks": (4, 2.7)}
    commands = {name: launch(args, ranks=ranks) + [args.build / "bench/sharded_step", name.partition(",")[0], "20"]
                for name, (ranks, _) in kinds.items()}

    def values(output, _):
        ranks = objects(output)
        return {way: max(r[way] for r in ranks) for way in ("sharded", "replicas", "bound")}

    runs = Competition(commands, values, args)
    rows = {name: {way: round(statistics.median(v[way] for v in runs.values[name]), 2) for way in ("sharded", "replicas", "bound")} for name in kinds}
    found = {f"{name}: replicas / sharded": ratio(rows[name]["replicas"] / rows[name]["sharded"], at_least=floor) for name, (_, floor) in kinds.items()}
    return runs.report() | {"unit": "ms", "medians": rows,
                            "ratios": found | {"adamw: bound / sharded": ratio(rows["adamw"]["bound"] / rows["adamw"]["sharded"], at_least=0.87)}}


def option_ratios(runs):
    m = runs.medians("samples/s")
    found = {f"{name} / ddp": m[name] / m["ddp"] for name in OPTIONS if name != "ddp"}
    for name, alone in (("AdamW", "AdamW, never talk"), ("4 micro-batches", "4 micro-batches, never talk"),
                        ("ddp, 3 ranks", "never talk, 3 ranks"), ("ddp, 4 ranks", "never talk, 4 ranks")):
        found[f"{name} / {alone}"] = m[name] / m[alone]
    found["bf16 / Python, bf16"] = m["bf16"] / max(m["Python, bf16"], m["Python, bf16, pinned"])
    values = runs.values["ddp"]
    communication, exposed = (statistics.median(v[what] for v in values) for what in ("communication ms", "exposed ms"))
    return found | {"share of communication hidden": 1 - exposed / communication}


def virtual_ranks(args):
    """Samples per second of the whole job of steps of 256 samples, with 4 virtual ranks on 1 to 4 processes, and with as many plain
    processes and no virtual ranks (bench/virtual_ranks.cpp). One thread a process; SGD with momentum; the MNIST CNN, and six linear
    layers of 2048x2048. CPU ms, MiB sent and Rss of the mean process."""
    medians, ratios, reports = {}, {}, []
    steps = {"cnn": "20", "mlp": "10"}
    for model in (m for m in args.models.split(",") if m in steps):
        program = [args.build / "bench/virtual_ranks", model, steps[model]]
        commands = {}
        for n in (1, 2, 3, 4):
            commands |= {f"{n}, virtual": launch(args, "--virtual-ranks", "4", ranks=n) + program, f"{n}, plain": launch(args, ranks=n) + program}
        runs = Competition(commands, virtual_values, args)
        reports.append(runs.report())
        medians |= {f"{model}: {name}": row for name, row in step_rows(runs).items()}
        found = runs.medians("samples/s")
        ratios |= {f"{model}: virtual / plain, {n} processes": ratio(found[f"{n}, virtual"] / found[f"{n}, plain"]) for n in (1, 2, 3, 4)}
    return {"preliminary": any(r["preliminary"] for r in reports), "dropped_runs": sum(r["dropped_runs"] for r in reports),
            "largest_share_of_others": max(r["largest_share_of_others"] for r in reports),
            "unit": "samples/s", "medians": medians, "ratios": ratios}


def virtual_values(output, _):
    """All processes print the rate of the whole job."""
    ranks = objects(output)
    return step_values(output, _) | {"samples/s": statistics.mean(r["samples_per_second"] for r in ranks)}
