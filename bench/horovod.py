"""Programs written for Horovod over Horovod and over Lockstep, for bench/run.py."""
import json
import os
import pathlib
import re
import sys

from competition import Competition, launch, ratio

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
IMAGES, EPOCHS = 1024, 3


def horovod(args):
    """Two ranks, one thread each. Milliseconds of allreduce_async and synchronize of 1,000 named tensors of 4 KiB, microseconds of one
    allreduce of 4 bytes, and samples per second of the program examples/python/horovod_torch.py (ResNet-18 on 32x32 images, float16
    compression) with its batch of 128 and with 32: over lockstep.horovod.torch and over Horovod 0.28.1 with Gloo, whose ranks have a core
    of their own or not; the better counts. All of them must give the same bits."""
    python = args.horovod
    if not python.exists():
        sys.exit(f"no {python}: bench/peers/build_horovod builds Horovod, and --horovod names its Python")
    os.environ["PYTHONPATH"] = str(PEERS.parent.parent / "python")
    os.environ["LOCKSTEP_CORE_LIBRARY"] = str(args.build / "library/liblockstep_core.so")
    job, theirs = PEERS / "horovod_job.py", [python.parent / "horovodrun", "-np", "2", "--gloo", "--network-interfaces", "lo", python]

    def three_ways(*words):
        return {"lockstep": launch(args) + [args.python, job, "lockstep", *words],
                "Horovod": [*theirs, job, "horovod", *words], "Horovod, pinned": [*theirs, job, "horovod", *words, "pinned"]}

    calls = Competition(three_ways("calls"), values, args)
    programs = {size: Competition(three_ways("program", str(IMAGES), str(EPOCHS), str(size)), values, args) for size in (128, 32)}
    rows = {"1,000 tensors of 4 KiB, ms": calls.medians("1000_x_4KiB_ms"), "4 B, us": calls.medians("4B_us"),
            **{f"program, batch {size}, samples/s": one.medians("samples/s") for size, one in programs.items()}}
    for what, one in (("calls", calls), *((f"program, batch {size}", one) for size, one in programs.items())):
        same_results(what, one)
    many, small, *trained = rows.values()
    ratios = {"1,000 tensors of 4 KiB: Horovod / lockstep": ratio(best(many, min) / many["lockstep"], at_least=3),
              "4 B: Horovod / lockstep": ratio(best(small, min) / small["lockstep"])}
    ratios |= {f"program, batch {size}: lockstep / Horovod": ratio(row["lockstep"] / best(row, max), at_least=1.2 if size == 128 else None)
               for size, row in zip(programs, trained)}
    reports = [one.report() for one in (calls, *programs.values())]
    return {"preliminary": any(r["preliminary"] for r in reports), "dropped_runs": sum(r["dropped_runs"] for r in reports),
            "largest_share_of_others": max(r["largest_share_of_others"] for r in reports), "unit": "",
            "medians": {what: {name: round(value, 3) for name, value in row.items()} for what, row in rows.items()}, "ratios": ratios}


def values(output, _):
    """Of rank 0's JSON object, before which horovodrun writes the rank."""
    return json.loads(re.search(r"\{.*\}", output).group())


def best(row, of):
    return of(value for name, value in row.items() if name != "lockstep")


def same_results(what, competition):
    found = {name: {json.dumps(value["results"]) for value in given} for name, given in competition.values.items()}
    if len(set.union(*found.values())) > 1:
        sys.exit(f"{what}: results differ: {found}")
