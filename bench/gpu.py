#!/usr/bin/env python3
"""Times bench/gpu_step.cpp beside its peer in Python, on one GPU, one after the other, and writes their table.

    bench/gpu.py [--build build] [--rounds 3] [--steps 20] [--size small] [--out bench/results/NAME/gpu_step.json]

Each round runs every row once, so that what changes with time touches all rows. A row's figure is the median of the rounds'.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OURS = ["alone", "own", "ddp", "zero1", "zero2", "zero3", "offload", "offload3"]
THEIRS = ["alone", "ddp", "zero", "fsdp2", "fsdp2_offload"]


def run_once(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    lines = [line for line in done.stdout.splitlines() if '{"ms"' in line]
    if done.returncode != 0 or not lines:
        print(" ".join(command), "failed:", done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(lines[-1][lines[-1].index("{"):])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", default="small", choices=["small", "medium"])
    parser.add_argument("--only", nargs="*", help="rows, such as lockstep:ddp")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    run = [str(args.build / "lockstep"), "run", "-n", "1", "--no-affinity"]
    programs = {"lockstep": [str(args.build / "bench/gpu_step")], "torch": [sys.executable, str(ROOT / "bench/peers/gpu_step.py")]}
    rows = {f"{who}:{mode}": programs[who] + [mode, args.size, str(args.steps)]
            for who, modes in (("lockstep", OURS), ("torch", THEIRS)) for mode in modes}
    if args.only:
        rows = {name: rows[name] for name in args.only}
    found = {name: [] for name in rows}
    for _ in range(args.rounds):
        for name, program in rows.items():
            found[name].append(run_once(run + program))
    table = {}
    for name, results in found.items():
        results = [result for result in results if result]
        if results:
            table[name] = {key: statistics.median(result[key] for result in results) for key in results[0]}
        print(f"{name:24}", table.get(name, "failed"))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"size": args.size, "steps": args.steps, "rounds": args.rounds, "rows": table}, indent=1) + "\n")
    return any(name not in table for name in rows)


if __name__ == "__main__":
    sys.exit(main())
