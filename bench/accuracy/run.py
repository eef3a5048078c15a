#!/usr/bin/env python3
"""Trains to the end and keeps what came out, in bench/results/MACHINE/accuracy_NAME.json and accuracy.md there.

    cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_BUILD_TESTS=ON && ninja -C build
    bench/accuracy/run.py --python .deps/venv/bin/python                          # a try of a minute
    bench/accuracy/run.py --python .deps/venv/bin/python --long                   # what is committed

cifar10: ResNet-18 (torchvision's, as in examples/cifar10_resnet18 --imagenet-stem) with 2 processes, and the same training in Python
over Gloo (cifar10_peer.py), from the same seeds: the test accuracy after the last epoch, mean over the seeds and its standard
error. Floor: ours is no lower than Python's by more than that error of Python's. The two sides take turns.
curve: 100 steps of ResNet-18 on the same weights and augmented batches on both sides (tests/end_to_end/cifar10_curve_test.py, which
says what is compared and allowed; needs a build with -DLOCKSTEP_BUILD_TESTS=ON).
same: whole trainings of that ResNet-18 on the same weights and augmented batches on both sides, by the programs of `curve`, so that chance has
no part in it: the test accuracy of each seed, with the floor of cifar10.
mnist: examples/mnist with 2 processes, half the learning rate in each next epoch, images moved by up to 2 pixels; the test accuracy
after the last epoch. Floor: at least 99 % with every seed.

Runs that a file of the same settings has are not made again, so an interrupted command goes on where it was. Exit status 1: a floor was
missed. Standard library only; the Python given needs torch.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
import run as bench  # noqa: E402  (bench/run.py: what it knows of machine and versions)

SHORT = {"mnist": {"seeds": 1, "epochs": 1}, "cifar10": {"seeds": 1, "epochs": 1, "images": 1000}}
SAME = {False: {"seeds": 1, "epochs": 1, "images": 1000}, True: {"seeds": 5, "epochs": 6, "images": 10_000}}
LONG = {"mnist": {"seeds": 3, "epochs": 5}, "cifar10": {"seeds": 5, "epochs": 12, "images": 10_000}}


def launch(args, *options):
    return [args.build / "lockstep", "run", "-n", "2", "--no-logs", "--no-prefix", *options]


def commands(name, settings, args):
    """{side: command without seed and metrics file}"""
    epochs = ["--epochs", settings["epochs"]]
    if name == "mnist":
        return {"lockstep": launch(args) + [args.build / "examples/mnist", "--data", args.data / "mnist", "--gamma", 0.5, "--crop-padding", 2,
                                            *epochs]}
    same = ["--data", args.data / "cifar10", "--train-files", 1, "--images", settings["images"], "--batch-size", 64, "--lr", 0.05,
            "--imagenet-stem", *epochs]
    return {"lockstep": launch(args) + [args.build / "examples/cifar10_resnet18", *same],
            "python": launch(args, "--no-affinity") + [args.python, HERE / "cifar10_peer.py", *same]}


def one_run(command, seed):
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        words = [str(word) for word in command] + ["--seed", str(seed), "--metrics", str(metrics)]
        start = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        epochs = [json.loads(line) for line in metrics.read_text().splitlines()]
    epochs = [epoch for epoch in epochs if "train_loss" in epoch]
    return {"seed": seed, "seconds": round(time.monotonic() - start, 1),
            "test_accuracy": [epoch["test_accuracy"] for epoch in epochs],
            "train_loss": [round(epoch["train_loss"], 5) for epoch in epochs],
            "images_per_second": round(statistics.median(epoch["images_per_second"] for epoch in epochs), 1)}


def train_all(name, settings, args, file):
    """Every side with every seed in turn; the file is written after each run."""
    result = json.loads(file.read_text()) if file.exists() else {}
    if result.get("settings") != settings:
        result = {"settings": settings, "runs": {}}
    sides = commands(name, settings, args)
    for seed in range(settings["seeds"]):
        order = list(sides) if seed % 2 == 0 else list(sides)[::-1]
        for side in order:
            runs = result["runs"].setdefault(side, [])
            if any(run["seed"] == seed for run in runs):
                continue
            runs.append(one_run(sides[side], seed))
            print(f"  {name} {side} seed {seed}: {runs[-1]['test_accuracy'][-1]:.4f} in {runs[-1]['seconds']} s", file=sys.stderr)
            result |= {"date": datetime.date.today().isoformat(), "cpu": bench.cpu(), "versions": bench.versions(args)}
            file.write_text(json.dumps(result, indent=1) + "\n")
    return result


def curve(args, file):
    words = ["--width", 64] if args.long else []
    subprocess.run([str(word) for word in (args.python, ROOT / "tests/end_to_end/cifar10_curve_test.py", args.build / "lockstep",
                                           args.build / "tests/end_to_end/cifar10_curve", *words, "--result", file)],
                   check=True, env={**os.environ, "LOCKSTEP_DATA": str(args.data)})


def same(args, file):
    settings = SAME[args.long] | {key: value for key in ("seeds", "epochs") if (value := getattr(args, key)) is not None}
    result = json.loads(file.read_text()) if file.exists() else {}
    if result.get("settings") != settings:
        result = {"settings": settings, "runs": {"lockstep": [], "python": []}}
    for seed in range(len(result["runs"]["python"]), settings["seeds"]):
        with tempfile.TemporaryDirectory() as folder:
            one = pathlib.Path(folder) / "result.json"
            words = (args.python, ROOT / "tests/end_to_end/cifar10_curve_test.py", args.build / "lockstep", args.build / "tests/end_to_end/cifar10_curve",
                     "--width", 64, "--batch", 128, "--steps", settings["images"] // 128 * settings["epochs"], "--images", settings["images"],
                     "--test-images", 2000, "--imagenet-stem", "--lr", 0.05, "--seed", seed, "--result", one)
            subprocess.run([str(word) for word in words], check=True, env={**os.environ, "LOCKSTEP_DATA": str(args.data)})
            measured = json.loads(one.read_text())
        for side, runs in result["runs"].items():
            runs.append({"seed": seed, "seconds": measured["seconds"][side], "test_accuracy": [measured["accuracy"][side]],
                         "train_loss": [round(measured[side][-1], 5)],
                         "largest_difference_of_state": measured["largest_difference_of_state"]})
        result |= {"date": datetime.date.today().isoformat(), "cpu": bench.cpu(), "versions": bench.versions(args)}
        file.write_text(json.dumps(result, indent=1) + "\n")
    return result


def curve_section(result):
    ours, pythons = result["lockstep"], result["python"]
    rows = [f"| {step} | {ours[step]:.6f} | {pythons[step]:.6f} |" for step in (0, 1, 9, 24, 49, 74, 99)]
    return ["## curve", "", f"{result['what']} {result['date']}, torch {result['torch']}, width {result['width']}, {result['batch']} images a step.",
            "", "| step | loss here | loss in Python |", "| ---: | ---: | ---: |", *rows, "",
            f"Largest difference of the loss {result['largest_difference_of_loss']:.1e}, of weights and statistics at the end "
            f"{result['largest_difference_of_state']:.1e}, relative to the largest of each tensor.", ""]


def last(run):
    return run["test_accuracy"][-1]


def mean_and_error(runs):
    values = [last(run) for run in runs]
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def verdict(name, result):
    """(what was compared, met; None: not enough runs to say)"""
    if name == "mnist":
        lowest = min(map(last, result["runs"]["lockstep"]))
        return f"lowest test accuracy {lowest:.2%}, floor 99 %", lowest >= 0.99
    (ours, _), (pythons, error) = (mean_and_error(result["runs"][side]) for side in ("lockstep", "python"))
    text = f"mean accuracy {ours:.2%} here, {pythons:.2%} in Python"
    if error is None:
        return text + ", with one seed no standard error", None
    return f"{text}, whose standard error is {error:.2%}; floor: no lower by more than that", ours >= pythons - error


def table(results, curve_result):
    lines = ["# Training runs", "", "Written by `bench/accuracy/run.py`, whose head says how. Test accuracy after the last epoch.", ""]
    for name, result in results.items():
        about = ", ".join(f"{key} {value}" for key, value in {**result["settings"], **result["versions"]}.items())
        lines += [f"## {name}", "", f"{result['date']}, {result['cpu']['cores']} cores of {result['cpu']['name']}; {about}.", "",
                  "| | seed | accuracy | training loss | seconds | images/s |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
        for side, runs in result["runs"].items():
            lines += [f"| {side} | {run['seed']} | {last(run):.2%} | {run['train_loss'][-1]:.4f} | {run['seconds']:g} | "
                      f"{run.get('images_per_second', '')} |" for run in runs]
        text, met = verdict(name, result)
        lines += ["", f"{text[0].upper()}{text[1:]}: {'met' if met else 'not said' if met is None else 'MISSED'}.", ""]
    lines += curve_section(curve_result) if curve_result else []
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=ROOT / ".deps/venv/bin/python", type=pathlib.Path)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--data", default=pathlib.Path(os.environ.get("LOCKSTEP_DATA") or ROOT / "data"), type=pathlib.Path)
    parser.add_argument("--only", default="mnist,curve,same,cifar10")
    parser.add_argument("--long", action="store_true", help="the run whose results are committed")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--results", type=pathlib.Path, help="default: bench/results/MACHINE with --long, else a temporary folder")
    args = parser.parse_args()
    args.python, args.build, args.data = args.python.absolute(), args.build.absolute(), args.data.absolute()
    folder = args.results or (bench.machine_folder(ROOT / "bench/results") if args.long else pathlib.Path(tempfile.mkdtemp()))
    folder.mkdir(parents=True, exist_ok=True)
    if {"cifar10", "curve", "same"} & set(args.only.split(",")) and not list((args.data / "cifar10").glob("test_batch.bin*")):
        sys.exit(f"no CIFAR-10 in {args.data}/cifar10: name its folder's parent with --data, or fetch it with scripts/download")
    results, curve_file = {}, folder / "accuracy_curve.json"
    for name in args.only.split(","):
        if name == "curve":
            curve(args, curve_file)
            continue
        if name == "same":
            results[name] = same(args, folder / "accuracy_same.json")
            continue
        chosen = {key: value for key in ("seeds", "epochs") if (value := getattr(args, key)) is not None}
        settings = (LONG if args.long else SHORT)[name] | chosen
        results[name] = train_all(name, settings, args, folder / f"accuracy_{name}.json")
    files = {name: folder / f"accuracy_{name}.json" for name in (*LONG, "same")}
    everything = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    text = table(everything, json.loads(curve_file.read_text()) if curve_file.exists() else None)
    (folder / "accuracy.md").write_text(text)
    print(text)
    sys.exit(args.long and any(verdict(name, result)[1] is False for name, result in results.items()))


if __name__ == "__main__":
    main()
