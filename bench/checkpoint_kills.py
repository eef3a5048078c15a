#!/usr/bin/env python3
"""Jobs that are killed while they save a checkpoint over one of the same name: what loads afterwards, beside torch.distributed.checkpoint.

    bench/checkpoint_kills.py BUILD [--trials 100] [--python PYTHON] [--peer-trials 20] [--write]

Two ranks save 16 MiB again and again under one name. At a random moment of the half second after the first complete save all processes
get SIGKILL. "unreadable": loading fails. "mixed": it succeeds, with tensors of two saves. --write keeps the result in the machine's folder
of bench/results.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time

from machine import cpu, machine_folder

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE, SEED = 120, 20261125


def descendants_of(pid):
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in children] + [found for child in children for found in descendants_of(int(child))]


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] in ("Z", "X")
    except OSError:
        return True


def kill_all(job):
    everyone = [job.pid, *descendants_of(job.pid)]
    for pid in everyone:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    job.wait()
    while not all(map(has_ended, everyone)):
        time.sleep(0.005)


def saves(folder):
    try:
        return int(folder.with_suffix(".saved").read_text())
    except (OSError, ValueError):
        return 0


def trial(save, load, folder, rng):
    """What loading says after a kill."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    with open(folder.parent / "output", "w+b") as output:
        job = subprocess.Popen([*save, folder], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        end = time.monotonic() + PATIENCE
        while saves(folder) == 0 and job.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        begun = saves(folder)
        time.sleep(rng.uniform(0, 0.5))
        alive = job.poll() is None
        kill_all(job)
        if begun == 0 or not alive:
            raise SystemExit((folder.parent / "output").read_text(errors="replace"))
    done = subprocess.run([*load, folder], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def trials(count, save, load):
    rng = random.Random(SEED)
    said = []
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            said.append(trial(save, load, pathlib.Path(folder) / "run", rng))
    good, mixed = said.count("loads"), said.count("mixed")
    reasons = collections.Counter(" ".join(text.split())[:160] for text in said if text not in ("loads", "mixed"))
    return {"trials": count, "loads": good, "mixed": mixed, "unreadable": count - good - mixed,
            "for example": reasons.most_common(1)[0][0] if reasons else None}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    arguments.add_argument("--trials", type=int, default=100)
    arguments.add_argument("--python", type=os.path.abspath, help="of an environment with torch: runs the peer too")
    arguments.add_argument("--peer-trials", type=int, default=20)
    arguments.add_argument("--write", action="store_true")
    options = arguments.parse_args()
    program, peer = options.build / "bench/checkpoint_kills", HERE / "peers/checkpoint_kills.py"
    found = {"what": __doc__.split("\n")[0], "cpu": cpu(), "ranks": 2,
             "command": f"bench/checkpoint_kills.py BUILD --trials {options.trials} --python PYTHON --peer-trials {options.peer_trials}",
             "lockstep": trials(options.trials, [options.build / "lockstep", "run", "-n", "2", "--no-logs", program, "save"],
                                [program, "load"])}
    print("lockstep", json.dumps(found["lockstep"]), flush=True)
    if options.python:
        torchrun = [options.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                    "--master-port", "29549"]
        found["versions"] = subprocess.run([options.python, "-c", "import torch; print('torch', torch.__version__)"], text=True,
                                           check=True, capture_output=True).stdout.strip()
        found["torch.distributed.checkpoint"] = trials(options.peer_trials, [*torchrun, peer, "save"], [options.python, peer, "load"])
        print("torch.distributed.checkpoint", json.dumps(found["torch.distributed.checkpoint"]), flush=True)
    if options.write:
        place = machine_folder(HERE / "results") / "checkpoint_kills.json"
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
