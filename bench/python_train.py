"""Python programs of torch.distributed over Lockstep and over Gloo, for bench/run.py."""
import os
import pathlib
import statistics

from competition import Competition, launch, objects, ratio
from training import step_rows, step_values

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
STEPS = {"mlp": "20", "resnet18": "20", "gpt2": "4"}
SIZES = {4: "4 B", 16 << 20: "16 MiB"}
FLOORS = {("mlp", "ddp"): 1.25, ("mlp", "bucket_view"): 1.35, ("resnet18", "ddp"): 1.1, ("resnet18", "bucket_view"): None,
          ("gpt2", "ddp"): None, ("mlp", "fsdp2"): None, ("mlp", "fsdp2_keep"): None}


def python_train(args):
    """Samples per second of both ranks together of Python's DistributedDataParallel with the backend lockstep (python/lockstep/torch) and
    with Gloo, one thread a process, batch 64, SGD with momentum: six linear layers of 2048x2048 and a head, ResNet-18 on 32x32 images, and a
    small GPT-2; as it is by default, with gradient_as_bucket_view, and sharded by FSDP2, which reshards after forward or keeps. Gloo is measured with and without pinning, and the better counts. Below,
    microseconds of dist.all_reduce."""
    os.environ["PYTHONPATH"] = str(PEERS.parent.parent / "python")
    os.environ["LOCKSTEP_CORE_LIBRARY"] = str(args.build / "library/liblockstep_core.so")
    unpinned, commands = ["--no-affinity"], {}
    for model, mode in FLOORS:
        words = [args.python, PEERS / "train_step.py", model, mode, STEPS[model]]
        commands |= {f"{model}, {mode}: Gloo": launch(args, *unpinned) + words, f"{model}, {mode}: Gloo, pinned": launch(args) + words,
                     f"{model}, {mode}: lockstep": launch(args) + [*words, "lockstep"]}
    steps = Competition(commands, step_values, args)
    call = [args.python, PEERS / "torch_all_reduce.py"]
    calls = Competition({"Gloo": launch(args, *unpinned) + [*call, "gloo", *map(str, SIZES)],
                         "lockstep": launch(args) + [*call, "lockstep", *map(str, SIZES)]},
                        lambda output, _: {o["bytes"]: o["median_us"] for o in objects(output)}, args)
    m = steps.medians("samples/s")
    ratios = {f"{model}, {mode}: lockstep / Gloo": ratio(
        m[f"{model}, {mode}: lockstep"] / max(m[f"{model}, {mode}: Gloo"], m[f"{model}, {mode}: Gloo, pinned"]), at_least=floor)
        for (model, mode), floor in FLOORS.items()}
    rows = {f"dist.all_reduce {text}": {name: round(statistics.median(v[size] for v in values), 2) for name, values in calls.values.items()}
            for size, text in SIZES.items()}
    small, large = rows.values()
    ratios |= {"dist.all_reduce 4 B: lockstep, us": ratio(small["lockstep"], at_most=20),
               "dist.all_reduce 16 MiB: lockstep / Gloo": ratio(large["lockstep"] / large["Gloo"], at_most=0.4)}
    one, two = steps.report(), calls.report()
    return {"preliminary": one["preliminary"] or two["preliminary"], "dropped_runs": one["dropped_runs"] + two["dropped_runs"],
            "largest_share_of_others": max(one["largest_share_of_others"], two["largest_share_of_others"]),
            "unit": "samples/s, us", "medians": step_rows(steps) | rows, "ratios": ratios}
