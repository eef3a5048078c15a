"""Pipelines of Lockstep and of torch.distributed.pipelining over Gloo in turn, a few rounds each, because the machine's speed
changes from minute to minute: the two that are compared are seconds apart.

    python bench/peers/pipeline_beside.py mlp|gpt MICRO_BATCHES TURNS [SCHEDULE] [ROUNDS]     # 4 rounds a turn

Starts build/bench/pipeline_step and pipeline_step.py, two ranks each. Prints a JSON object per schedule that both have: the
median over the turns of the milliseconds of the slower rank, the median of Lockstep's over torch's in the same turn, and the
median of each over its halves that exchange nothing. Each turn's milliseconds go to standard error as they come.
"""
import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def run(command):
    """What a job prints: {schedule: (ms of the slower rank, its ratio to halves)}."""
    output = subprocess.run([str(ROOT / "build/lockstep"), "run", "-n", "2", *command], check=True, text=True, stdout=subprocess.PIPE).stdout
    slowest = {}
    for line in re.findall(r"{.*}", output):
        one = json.loads(line)
        slowest[one["schedule"]] = max(slowest.get(one["schedule"], (0, 0)), (one["ms"], one.get("times_halves", 1)))
    return slowest


def main(model, micro_batches, turns, beginning="", rounds="4"):
    ours, theirs = collections.defaultdict(list), collections.defaultdict(list)
    words = [model, micro_batches, rounds] + ([beginning] if beginning else [])
    for _ in range(int(turns)):
        mine = run([str(ROOT / "build/bench/pipeline_step"), *words])
        peer = run([sys.executable, str(HERE / "pipeline_step.py"), *words])
        for schedule in mine.keys() & peer.keys():
            ours[schedule].append(mine[schedule])
            theirs[schedule].append(peer[schedule])
            print(f"{schedule}: {mine[schedule][0]:.1f} ms, torch {peer[schedule][0]:.1f} ms", file=sys.stderr, flush=True)
    for schedule in sorted(ours):
        pairs = list(zip(ours[schedule], theirs[schedule]))
        middle = {"lockstep_ms": [a[0] for a, _ in pairs], "torch_ms": [b[0] for _, b in pairs],
                  "over_torch": [a[0] / b[0] for a, b in pairs],
                  "lockstep_over_halves": [a[1] for a, _ in pairs], "torch_over_halves": [b[1] for _, b in pairs]}
        print(json.dumps({"model": model, "micro_batches": int(micro_batches), "schedule": schedule,
                          **{name: round(statistics.median(values), 3) for name, values in middle.items()}}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
