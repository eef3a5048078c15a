#!/usr/bin/env python3
"""From the kill of a rank to the next step of the job: `lockstep run --max-restarts` beside torchrun's, four ranks on this machine.

    bench/restart.py BUILD [TRIALS] [--python PYTHON] [--write]     # BUILD has lockstep and resumed; PYTHON has torch

A trial kills one rank, at a random moment of the run, its start included. It is clean when one restart was enough. A job that is not
over after 20 s counts as not ended. "main" is the time from the kill until main() runs again on all ranks, "step" until the first step
is done. --write keeps the result in the machine's folder of bench/results.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from machine import busy_seconds, cpu, machine_folder, own_seconds

HERE = pathlib.Path(__file__).resolve().parent
RANKS, STEPS, STEP_TIME, RESTARTS, LIMIT = 4, 400, 1000, 12, 20
SEED = 20261125


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def lines_of(path):
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] not in ("Z", "X")
    except OSError:
        return False


def wait_until(condition, limit=LIMIT):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def trial(command, rng, folder):
    """{"clean", "ended", "restarts", "main", "step"}; times in seconds."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    with open(folder / "output", "wb") as output:
        job = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                               start_new_session=True)
    try:
        if rng.random() < 1 / 3:
            wait_until(lambda: len(lines_of(folder / "starts")) == RANKS)  # then they meet
        else:
            wait_until((folder / "count").exists)
            time.sleep(rng.uniform(0, 0.5 * STEPS * STEP_TIME / 1e6))
        victim = rng.choice([pid for _, restarts, pid, _ in lines_of(folder / "starts") if restarts == 0])
        at_kill = int((folder / "count").read_text()) if (folder / "count").exists() else 0
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        code = job.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        for pid in {pid for _, _, pid, _ in lines_of(folder / "starts") if alive(pid)}:
            os.kill(pid, signal.SIGKILL)
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    starts = lines_of(folder / "starts")
    restarts = max(restarts for _, restarts, _, _ in starts)
    last = [began for _, of, _, began in starts if of == restarts]
    steps = [at for of, at in lines_of(folder / "steps") if of == restarts]
    result = {"ended": code == 0, "restarts": restarts, "clean": code == 0 and restarts == 1, "steps_before": at_kill}
    if code == 0:
        result["main"] = max(last) / 1e9 - killed
        result["step"] = steps[0] / 1e9 - killed if steps else None
    return result


def summary(trials):
    ended = [t for t in trials if t["ended"]]
    pick = lambda key: [t[key] for t in ended if t.get(key) is not None]
    return {"trials": len(trials), "clean": sum(t["clean"] for t in trials), "ended": len(ended),
            "restarts": sorted(t["restarts"] for t in trials),
            **{f"{key}_{name}_ms": round(1000 * of(pick(key)), 1) for key in ("main", "step") if pick(key)
               for name, of in (("median", statistics.median), ("max", max))}}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a benchmark that is ended takes its job along
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    arguments.add_argument("trials", nargs="?", type=int, default=12)
    arguments.add_argument("--python", type=os.path.abspath)
    arguments.add_argument("--write", action="store_true")
    options = arguments.parse_args()
    program = next(options.build.rglob("tests/launchers/resumed"))
    ours = [options.build / "lockstep", "run", "-n", str(RANKS), "--max-restarts", str(RESTARTS), "--no-logs", program]
    jobs = {"lockstep run": ours}
    if options.python:
        jobs["torchrun"] = [options.python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--max-restarts", str(RESTARTS),
                            "--master-port", "29547", HERE / "peers/restart.py"]
    found = {"what": __doc__.split("\n")[0], "command": f"bench/restart.py BUILD {options.trials} --python PYTHON", "cpu": cpu(),
             "ranks": RANKS, "max_restarts": RESTARTS, "limit_seconds": LIMIT}
    busy, own = busy_seconds(), own_seconds()
    for name, command in jobs.items():
        rng = random.Random(SEED)
        trials = []
        for _ in range(options.trials):
            with tempfile.TemporaryDirectory() as folder:
                trials.append(trial([str(word) for word in [*command, folder, STEPS, STEP_TIME]], rng, pathlib.Path(folder)))
        found[name] = summary(trials)
        print(name, json.dumps(found[name]), flush=True)
    found["seconds_of_others"] = round(busy_seconds() - busy - (own_seconds() - own), 1)
    if options.write:
        place = machine_folder(HERE / "results") / "restart.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
