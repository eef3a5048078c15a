#!/usr/bin/env python3
"""Fuzzes the readers of files with libFuzzer, AddressSanitizer and UBSan. Needs clang++ and Debian's libclang-rt-14-dev.

    tests/fuzz/run.py --inputs 5000000 [--only pt,dcp] [--jobs 2]

Seeds are small files of each kind, made by the Python given (torch, safetensors). A finding stops it and leaves the input in the
folder given."""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ["safetensors", "checkpoint_index", "pt", "pickle", "dcp", "safetensors_index"]
SEEDS = r"""
import io, json, pathlib, sys, zipfile, torch, torch.distributed.checkpoint as dcp
from safetensors.torch import save
out = pathlib.Path(sys.argv[1])
def put(kind, name, data):
    (out / kind).mkdir(parents=True, exist_ok=True)
    (out / kind / name).write_bytes(data)
m = torch.nn.Linear(2, 3)
o = torch.optim.Adam(m.parameters()); m(torch.ones(1, 2)).sum().backward(); o.step()
file = save({"a": torch.ones(2, 3), "b": torch.zeros(0), "c": torch.ones((), dtype=torch.bfloat16)})
put("safetensors", "a", file[8:8 + int.from_bytes(file[:8], "little")])
for i, state in enumerate([m.state_dict(), o.state_dict(), {"t": torch.arange(6).view(2, 3).T, "n": None, "z": torch.ones(2) * 1j},
                           {"u": torch.ones(2).to(torch.uint16), "p": torch.nn.Parameter(torch.ones(1))}]):
    b = io.BytesIO(); torch.save(state, b)
    put("pt", str(i), b.getvalue())
    put("pickle", str(i), zipfile.ZipFile(io.BytesIO(b.getvalue())).read("archive/data.pkl"))
dcp.save({"m": m.state_dict(), "o": o.state_dict(), "step": 1}, checkpoint_id=out / "saved", no_dist=True)
put("dcp", "a", (out / "saved/.metadata").read_bytes())
put("safetensors_index", "a", json.dumps({"metadata": {"total_size": 8}, "weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}}).encode())
s = "00112233445566778899aabbccddeeff"
piece = lambda o, n, b: {"file": 0, "key": "w", "begin": b, "offsets": o, "sizes": n, "xxh128": s}
put("checkpoint_index", "a", json.dumps({"lockstep_checkpoint": 1, "xxh128": s, "step": 3, "ranks": 2, "made_with": {"libtorch": "2"},
    "files": [{"name": "x", "bytes": 200, "header_bytes": 8, "header_xxh128": s}], "items": {"m": "module"}, "values": {"e": [1, 2.5, None]},
    "rank_values": {"r": [1, 2]}, "tensors": {"m.w": {"dtype": "F32", "shape": [2, 3], "pieces": [piece([0, 0], [1, 3], 8), piece([1, 0], [1, 3], 20)]},
    "m.s": {"dtype": "I64", "shape": [], "pieces": [piece([], [], 40)]}}}).encode())
"""


CLANG = shutil.which("clang++") or shutil.which("clang++-14") or sys.exit("clang++ is missing")


def compiled(target, folder):
    rooms = [source for room in ("base", "os", "formats") for source in (ROOT / "lockstep" / room).glob("*.cpp")
             if not source.name.endswith("_test.cpp")]
    library = folder / "library.a"
    flags = ["-std=c++20", "-O1", "-g", f"-I{ROOT}", "-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=all", "-w"]
    if not library.exists():
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            def compile_one(source):
                target = folder / f"{source.parent.name}_{source.stem}.o"
                subprocess.run([CLANG, *flags, "-c", source, "-o", target], check=True)
                return target

            objects = list(pool.map(compile_one, rooms))
        subprocess.run(["ar", "rcs", library, *objects], check=True)
    program = folder / target
    subprocess.run([CLANG, *flags, "-fsanitize=fuzzer,address,undefined", f"-DFUZZ={target}", ROOT / "tests/fuzz/formats_fuzzer.cpp",
                    library, "-lminizip", "-lz", "-lpthread", "-o", program], check=True)
    return program


def fuzz(target, program, folder, inputs):
    begun = time.monotonic()
    corpus = folder / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([program, corpus, folder / "seeds" / target, f"-runs={inputs}", "-max_len=16384", "-rss_limit_mb=1024", "-timeout=20",
                           "-malloc_limit_mb=512", f"-artifact_prefix={folder}/{target}-", "-print_final_stats=1", "-close_fd_mask=1"],
                          capture_output=True, text=True)
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    peak = re.search(r"stat::peak_rss_mb:\s*(\d+)", done.stderr)
    line = (f"| {target} | {int(executed[1]) if executed else 0:,} | {covered[-1] if covered else '?'} | {peak[1] if peak else '?'} | "
            f"{time.monotonic() - begun:.0f} | {'none' if done.returncode == 0 else 'FINDING'} |")
    print(line, flush=True)
    if done.returncode != 0:
        print(done.stderr[-3000:], file=sys.stderr)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=5_000_000)
    parser.add_argument("--only", default=",".join(TARGETS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--python", default=str(ROOT / ".deps/venv/bin/python"))
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/fuzz")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not (args.folder / "seeds/dcp").exists():
        subprocess.run([args.python, "-c", SEEDS, args.folder / "seeds"], check=True, stderr=subprocess.DEVNULL)
    programs = {target: compiled(target, args.folder) for target in args.only.split(",")}
    print("| reader | inputs | edges covered | peak MiB | s | findings |\n| --- | ---: | ---: | ---: | ---: | --- |", flush=True)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda item: fuzz(*item, args.folder, args.inputs), programs.items()))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
