#!/usr/bin/env python3
"""Checks the #include lines against the layering that ARCHITECTURE.md draws. Run by CTest; by hand: tools/check_layers.py"""
import pathlib
import re
import sys

import sources


def rules():
    """{room: rooms below it}, read from the blocks of arrows in ARCHITECTURE.md: a → b, c → d. The names in a block that begins
    with "within comm:" are those of rooms in comm/."""
    below = {}
    for block in re.findall(r"```\n([^`]*→[^`]*)```", sources.read("ARCHITECTURE.md")):
        within = re.match(r"within (\w+):\n", block)
        prefix = within.group(1) + "/" if within else ""
        for chain in re.split(r"\n|\s{3,}", block[within.end():] if within else block):
            groups = [[prefix + room.strip() for room in group.split(",")] for group in chain.split("→") if group.strip()]
            for upper, lower in zip(groups, groups[1:]):
                for room in upper:
                    below.setdefault(room, set()).update(lower)
            for room in groups[-1] if groups else []:
                below.setdefault(room, set())
    for _ in below:  # a chain of n rooms is closed after n rounds
        for room, lower in below.items():
            lower.update(*(below[other] for other in lower))
    return below


BELOW = rules()

TORCH = re.compile(r"<(torch|ATen|c10|caffe2)/")
OWN_FMT = re.compile(r"<(spdlog|fmt)/")
KERNEL = re.compile(r"<((sys|linux|netinet|arpa|asm)/.*|unistd\.h|fcntl\.h|poll\.h|sched\.h|spawn\.h|signal\.h|dirent\.h)>")
KERNEL_PLACES = {pathlib.PurePosixPath(place) for place in (
    "lockstep/base/fail_point.cpp",                  # ends its own process on purpose
    "lockstep/comm/backends/gloo/peer_name.cpp")}    # stands for a function of libc in a module that links nothing of Lockstep
INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]+>|"[^"]+")', re.MULTILINE)

# (what, pattern, folders or files where it may stand, why)
WORDS = [
    ("reading the environment", re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b"), ("lockstep/base/environment.cpp",),
     "use env() of lockstep/base/environment.h"),
    ("printing", re.compile(r"\bstd::(cout|cerr|clog)\b|\b(printf|fprintf|puts)\s*\("),
     ("lockstep/train/progress.cpp",),
     "the library never prints; use lockstep/base/log.h"),
    ("ending the process", re.compile(r"(std::|(?<!\w)::)(exit|abort|terminate)\s*\(|(?<!\w)(_exit|_Exit|quick_exit)\s*\("),
     ("lockstep/base/fail_point.cpp", "lockstep/os"), "the library never exits; throw"),
]


def room_of(path):
    """"comm/backends/shared" of lockstep/comm/backends/shared/engine.h, "tensor" of lockstep/tensor/file.cpp, else None. A folder
    of a room that ARCHITECTURE.md does not divide belongs to it: "parallel/gradients" of lockstep/parallel/gradients/hooks/x.h."""
    parts = path.parts[1:-1]
    if path.parts[0] != "lockstep" or not parts:
        return None
    room = parts[0]
    for part in parts[1:]:
        if room in BELOW and not is_divided(room):
            break
        room += "/" + part
    return room


def is_divided(room):
    return any(other.startswith(room + "/") for other in BELOW)


def is_test(path):
    return path.stem.endswith("_test") or path.parts[0] in ("testing", "tests")


def has_torch(path):
    """Whether the file may include libtorch: rooms from tensor up, tests that cross rooms, examples, benchmarks."""
    room = room_of(path)
    if room is None:
        return path.parts[0] != "cli" and path.name != "lockstep.h"
    return room.split("/")[0] == "tensor" or "tensor" in BELOW.get(room.split("/")[0], ())


def problem_within(path, room, other):
    """room and other are parts of one room, as comm/trace and comm/meeting."""
    if other in BELOW.get(room, ()) or (path.stem.endswith("_test") and room in BELOW):
        return None  # a test may call what is above its subject: a verb of the group over a backend
    if room in BELOW:
        return f"ARCHITECTURE.md does not put {other} below {room}"
    return f"{room} and {other} are neighbours"


def layer_problem(path, room, included):
    target = pathlib.PurePosixPath(included)
    if target.parts[0] in ("testing", "tests"):
        return None if is_test(path) else "only tests may include it"
    other = room_of(target)
    if path.parts[0] == "cli":
        room = "cli"
    if target.parts[0] != "lockstep" or room is None or other in (None, room):
        return "the umbrella header is for users" if included == "lockstep/lockstep.h" and room else None
    top, other_top = room.split("/")[0], other.split("/")[0]
    if top == other_top:  # parts of one room: all may use what lies in the room itself
        return None if other == top else problem_within(path, room, other)
    if path.stem.endswith("_ranks_test") and other_top in BELOW["job"] | {"job"}:
        return None  # the harness that starts its ranks stands on job
    return None if other_top in BELOW.get(top, ()) else f"ARCHITECTURE.md does not put {other_top} below {top}"


def check_file(path, includes, text):
    room = room_of(path)
    top = None if room is None else room.split("/")[0]
    if room is not None and room not in BELOW:
        yield f"{path}: ARCHITECTURE.md does not say where the room {room} stands"
        return
    for include in includes[path]:
        name = include[1:-1]
        if include[0] == '"' and (problem := layer_problem(path, room, name)):
            yield f"{path}: includes {name}: {problem}"
        if not has_torch(path) and TORCH.match(include):
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
