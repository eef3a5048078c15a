#!/usr/bin/env python3
"""Checks the layering of ARCHITECTURE.md by reading the #include lines. Run by CTest; by hand: tools/check_layers.py"""
import pathlib
import re
import sys

import sources

# Lowest first. A room may include itself and rooms of lower rows: never up, never its neighbours in the row.
ROWS = [["base"], ["os"], ["store", "formats"], ["comm", "launch"], ["job"],
        ["tensor"],  # libtorch starts here
        ["data", "optim", "amp"],
        ["parallel/ddp", "parallel/zero", "parallel/tp", "parallel/pp"],
        ["checkpoint"], ["train"], ["compat"]]
ROW_OF = {room: number for number, row in enumerate(ROWS) for room in row}
TORCH_ROW = ROW_OF["tensor"]
# What the rows do not say: formats is a branch of its own, and the command stands on job and formats.
NEVER = {(room, "formats") for room in ("comm", "launch", "job")}
COMMAND_ROW = ROW_OF["job"]

TORCH = re.compile(r"<(torch|ATen|c10|caffe2)/")
OWN_FMT = re.compile(r"<(spdlog|fmt)/")
KERNEL = re.compile(r"<((sys|linux|netinet|arpa|asm)/.*|unistd\.h|fcntl\.h|poll\.h|sched\.h|spawn\.h|signal\.h|dirent\.h)>")
KERNEL_PLACES = {pathlib.PurePosixPath("lockstep/base/fail_point.cpp")}  # ends its own process on purpose
INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")', re.MULTILINE)

# (what, pattern, folders or files where it may stand, why)
WORDS = [
    ("reading the environment", re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b"), ("lockstep/base/environment.cpp",),
     "use env() of lockstep/base/environment.h"),
    ("printing", re.compile(r"\bstd::(cout|cerr|clog)\b|\b(printf|fprintf|puts)\s*\("), (),
     "the library never prints; use lockstep/base/log.h"),
    ("ending the process", re.compile(r"(std::|(?<!\w)::)(exit|abort|terminate)\s*\(|(?<!\w)(_exit|_Exit|quick_exit)\s*\("),
     ("lockstep/base/fail_point.cpp", "lockstep/os"), "the library never exits; throw"),
]


def room_of(path):
    """"comm" of lockstep/comm/backends/shm.cpp, "parallel/ddp" of lockstep/parallel/ddp/reducer.h, else None."""
    parts = path.parts
    if parts[0] != "lockstep" or len(parts) < 3:
        return None
    return "/".join(parts[1:3]) if parts[1] == "parallel" and len(parts) > 3 else parts[1]


def is_test(path):
    return path.stem.endswith("_test") or path.parts[0] in ("testing", "tests")


def row_of(room):
    return ROW_OF["parallel/ddp"] - 0.5 if room == "parallel" else ROW_OF.get(room)


def layer_problem(path, room, included):
    target = pathlib.PurePosixPath(included)
    if target.parts[0] in ("testing", "tests"):
        return None if is_test(path) else "only tests may include it"
    if target.parts[0] != "lockstep":
        return None
    other = room_of(target)
    if path.parts[0] == "cli" and other is not None:
        allowed = row_of(other) is not None and row_of(other) <= COMMAND_ROW
        return None if allowed else "the command may use job, formats and what is below them"
    if room is None or other == room:
        return None
    if other is None:
        return "the umbrella header is for users"
    if row_of(other) is None:
        return f"{other} is not a room of tools/check_layers.py"
    if row_of(other) >= row_of(room) or (room, other) in NEVER:
        return f"{room} is not above {other}"
    return None


def check_file(path, includes, text):
    room = room_of(path)
    if room is not None and row_of(room) is None:
        yield f"{path}: {room} is not a room of tools/check_layers.py"
        return
    core = path.parts[0] == "cli" or (room is not None and row_of(room) < TORCH_ROW)
    for include in includes[path]:
        name = include[1:-1]
        if include[0] == '"' and (problem := layer_problem(path, room, name)):
            yield f"{path}: includes {name}: {problem}"
        if core and TORCH.match(include):
            yield f"{path}: includes {include}: libtorch starts at lockstep/tensor"
        if room not in (None, "os") and not is_test(path) and path not in KERNEL_PLACES and KERNEL.match(include):
            yield f"{path}: includes {include}: only lockstep/os calls the kernel"
        if path.suffix == ".h" and room is not None and name == "torch/torch.h":
            yield f"{path}: includes {include}: costs every user 14 s; take a narrower header"
    if room is None or is_test(path):
        return
    for what, pattern, places, why in WORDS:
        if not any(str(path).startswith(place) for place in places) and (match := pattern.search(text)):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {what} ({match.group().strip()}): {why}"


def reachable(path, includes, seen):
    """Everything that path includes, through our own headers."""
    for include in includes.get(path, ()):
        if include not in seen:
            seen.add(include)
            reachable(pathlib.PurePosixPath(include[1:-1]), includes, seen)
    return seen


def main():
    paths = sources.files(".h", ".cpp")
    includes = {path: INCLUDE.findall(sources.read(path)) for path in paths}
    problems = []
    for path in paths:
        text = sources.read(path)
        problems += check_file(path, includes, sources.blank_hidden(text))
        if path.suffix == ".h" and "#pragma once" not in text:
            problems.append(f"{path}: no #pragma once")
        everything = reachable(path, includes, set())
        if any(map(TORCH.match, everything)) and any(map(OWN_FMT.match, everything)):
            problems.append(f"{path}: spdlog or fmt and libtorch, which brings its own fmt, in one file")
    return sources.report("check_layers", problems, len(paths))


if __name__ == "__main__":
    sys.exit(main())
