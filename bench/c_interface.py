"""The C interface beside the core, for bench/run.py."""
import statistics

from competition import Competition, launch, objects, ratio

SIZES = {4: "4 B", 1 << 10: "1 KiB", 64 << 10: "64 KiB", 1 << 20: "1 MiB"}


def c_interface(args):
    """Microseconds of one all_reduce of private memory, two ranks, one call behind the other: by the core's call in C++, by the C
    interface, and by the C interface with a work that is waited for and freed."""
    runs = Competition({"lockstep": launch(args) + [args.build / "bench/c_interface"]},
                       lambda output, _: {(o["bytes"], way): o[way] for o in objects(output) for way in ("core", "c", "c_work")}, args)
    values = runs.values["lockstep"]
    rows = {name: {way.replace("_", " "): round(statistics.median(run[size, way] for run in values), 2) for way in ("core", "c", "c_work")}
            for size, name in SIZES.items()}
    return runs.report() | {"unit": "us", "medians": rows, "ratios": {
        "4 B: c, us": ratio(rows["4 B"]["c"], at_most=2),
        **{f"{name}: c - core, us": ratio(row["c"] - row["core"]) for name, row in rows.items()}}}
