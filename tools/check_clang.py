#!/usr/bin/env python3
"""Clang reads what g++ builds: some users have only it, it is stricter about the standard, and it sees references to what is gone.

    tools/check_clang.py build           everything that the build folder compiles (20 minutes of processor time)
    tools/check_clang.py build --core    the part without libtorch and without tests (2 minutes)

Nothing is compiled to the end (-fsyntax-only). Each warning is a problem. The folder has to be built before: some sources are generated.
By hand, because it takes long: CTest has the tool itself tested (checks_test), and clang-tidy read what changed in the core.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import sources

SKIPPED = 77
# What only g++ knows, and what is about an output.
GNU_ONLY = {"-fpch-preprocess", "-Wno-restrict", "-Wno-subobject-linkage", "-Wno-maybe-uninitialized", "-Winvalid-pch", "-fopenmp", "-MD",
            "-D_FORTIFY_SOURCE=2"}
WITH_VALUE = {"-include", "-o", "-MT", "-MF"}
TORCH_HEADERS = ["torch/nn.h", "torch/optim.h", "torch/types.h", "torch/utils.h"]
# What a test wants refused.
MEANT_TO_FAIL = {"wrapped_twice.cpp"}


def arguments_for_clang(command):
    """The command's arguments without the compiler, its launcher, and what clang does not know."""
    words = shlex.split(command)
    compiler = next(i for i, word in enumerate(words) if re.search(r"(^|/)(c\+\+|g\+\+(-\d+)?)$", word))
    kept = []
    rest = iter(words[compiler + 1:])
    for word in rest:
        if word in WITH_VALUE:
            next(rest)
        elif word not in GNU_ONLY and not word.startswith(("--param=", "-O")):
            kept.append("-fPIC" if word == "-fPIE" else word)  # as the precompiled headers
    return kept if "-fPIC" in kept else ["-fPIC", *kept]


def torch_folders(arguments):
    """The -isystem options of libtorch's headers, if there are any."""
    pairs = [arguments[i:i + 2] for i, word in enumerate(arguments) if word == "-isystem"]
    return [word for pair in pairs if "/torch/" in pair[1] + "/" for word in pair]


def precompile(clang, folder, include):
    """Libtorch's headers, read once for all files."""
    header = folder / "torch.h"
    header.write_text("".join(f"#include <{name}>\n" for name in TORCH_HEADERS), encoding="utf-8")
    made = folder / "torch.pch"
    subprocess.run([clang, "-std=c++20", "-O1", "-fPIC", "-DNDEBUG", "-fstack-protector-strong", *include, "-x", "c++-header",
                    "-fpch-instantiate-templates", "-o", made, header], check=True)
    return made


def takes_precompiled(command):
    """Whether g++ reads libtorch's headers precompiled: a file with options of its own cannot, and clang refuses it as well."""
    words = shlex.split(command)
    included = [words[i + 1] for i, word in enumerate(words) if word == "-include"]
    return any("cmake_pch" in name for name in included) and bool(torch_folders(words))


def read_by_clang(clang, entry, precompiled):
    arguments = arguments_for_clang(entry["command"])
    if precompiled and takes_precompiled(entry["command"]):
        arguments += ["-include-pch", str(precompiled)]
    command = [clang, "-fsyntax-only", "-O1", "-Werror", "-Wno-pass-failed", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=entry["directory"])
    return entry["file"], done.returncode, done.stderr


def program():
    return shutil.which("clang++-14") or shutil.which("clang++")


def main():
    clang = program()
    if not clang:
        print("check_clang: skipped: needs clang++; Debian's package clang-tidy brings one")
        return SKIPPED
    build = pathlib.Path(sys.argv[1]).resolve()
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
               if entry["file"].endswith((".cpp", ".cxx")) and "cmake_pch" not in entry["file"]
               and pathlib.Path(entry["file"]).name not in MEANT_TO_FAIL]
    with_torch = [entry for entry in entries if torch_folders(shlex.split(entry["command"]))]
    precompiled = None
    if "--core" in sys.argv:
        tested = re.compile(r"-o (testing|tests|examples|bench)/")
        entries = [entry for entry in entries if entry not in with_torch and not tested.search(entry["command"])]
    elif with_torch:
        folder = build / "clang"
        folder.mkdir(exist_ok=True)
        precompiled = precompile(clang, folder, torch_folders(shlex.split(with_torch[0]["command"])))
    problems = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for file, status, text in pool.map(lambda entry: read_by_clang(clang, entry, precompiled), entries):
            if status != 0:
                problems.append(f"{file}:\n{text}")
    return sources.report("check_clang", problems, len(entries))


if __name__ == "__main__":
    sys.exit(main())
