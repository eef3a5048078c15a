#!/usr/bin/env python3
"""No test that silently does not run. Run by CTest; by hand: tools/check_tests.py build [--core]

Every *_test.cpp is compiled into some target of the build folder (--core: of a build without libtorch), no test is disabled,
and every GTEST_SKIP says why. No two tests of one target have a name of their own alike: several are compiled as one file, and which ones
are changes with every new test. No test has less time than CTest gives by itself, which is against hangs: what takes half a minute alone
takes five beside others on a slow machine. So a script waits 600 s for a program, or as long as what it says of time takes. No file is
compiled with options for which its target's headers were not precompiled: g++ then reads all of these headers. In Python no key of a
dictionary and no function of a class or a file is there twice: of two tests of one name the first would never run."""
import ast
import collections
import pathlib
import re
import sys

import check_layers
import sources

SKIP = re.compile(r"GTEST_SKIP\(\)\s*(;|<<\s*\"\")")
DISABLED = re.compile(r"\bTEST(_F|_P)?\s*\([^)]*\bDISABLED_|\bRC_GTEST_PROP\s*\([^)]*\bDISABLED_")
TEST = re.compile(r"\b(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP|RANKS_TEST\w*)\s*\(")

TIMEOUT = re.compile(r"(?<![\w])TIMEOUT (\d+)")
USUAL_TIMEOUT = 1500  # seconds, CTest's
GUARD = re.compile(r"\btimeout=(\d+)\b(?!s)")
EXPECTED_TO_EXPIRE, GUARD_AGAINST_HANGS = 50, 600  # seconds: what is shorter is about time, what is longer is not

NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)")
VALUE = re.compile(r"^(?:constexpr |const |static |inline )*[\w:<>,*& ]+?[ *&](\w+)(?: =|\{|\[|;)")
FUNCTION = re.compile(r"^(?:constexpr |static |inline )*[\w:<>,*& ]+?[ *&](\w+)\(([^)]*)\)")
NO_NAME = ("using", "namespace", "return", "template", "static_assert", "TEST", "RANKS_TEST", "RC_", "INSTANTIATE", "TORCH_MODULE")


def own_names(text):
    """What a file declares at the left margin, with its namespaces: types, values, functions with the types of their parameters."""
    space = "::".join(NAMESPACE.findall(text))
    names = set()
    for line in text.splitlines():
        if not line or line[0] in " #/}" or line.startswith(NO_NAME):
            continue
        if match := TYPE.match(line) or VALUE.match(line):
            names.add(f"{space}::{match[1]}")
        elif match := FUNCTION.match(line):
            parameters = ",".join(re.sub(r"\s*\b\w+$", "", one.strip()) for one in match[2].split(","))
            names.add(f"{space}::{match[1]}({parameters})")
    return names


def names_in_two(paths):
    """Problems of the tests below lockstep/: those of ranks are one target and the others one, with libtorch and without."""
    found = collections.defaultdict(dict)
    for path in paths:
        if path.parts[0] == "lockstep":
            target = (path.stem.endswith("_ranks_test"), check_layers.has_torch(path))
            for name in own_names(sources.read(path)):
                if first := found[target].setdefault(name, path):
                    if first != path:
                        yield f"{path}: {name} is also in {first}; give one of them a namespace of its own"


def short_timeouts(path, text):
    for match in TIMEOUT.finditer(text):
        if int(match[1]) < USUAL_TIMEOUT:
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: TIMEOUT {match[1]} is less than CTest's own; leave it out"


def short_guards(path, text):
    for match in GUARD.finditer(text):
        if EXPECTED_TO_EXPIRE <= int(match[1]) < GUARD_AGAINST_HANGS:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: timeout={match[1]} fails on a slow machine; against hangs it is {GUARD_AGAINST_HANGS}"


def adds_to_its_name(item):
    """Of @f.setter and @f.register on f: what had the name before stays."""
    return any(isinstance(word, ast.Attribute) and isinstance(word.value, ast.Name) and word.value.id == item.name
               for word in item.decorator_list)


def there_twice(path, text):
    """Python takes the last of what has one name, and says nothing."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            named = [(key.value, key.lineno) for key in node.keys if isinstance(key, ast.Constant)]
        elif isinstance(node, (ast.ClassDef, ast.Module)):
            named = [(item.name, item.lineno) for item in node.body
                     if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not adds_to_its_name(item)]
        else:
            continue
        seen = set()
        for name, line in named:
            if name in seen:
                yield f"{path}:{line}: {name!r} is there twice; only the last one counts"
            seen.add(name)


PRECOMPILED = re.compile(r" -include (\S+/cmake_pch\.hxx) ")
CODE_OPTION = re.compile(r" (-[mf]\S+)")


def foreign_options(entries):
    """Problems of files whose options, but for warnings and macros, are not those of the precompiled headers that they are given."""
    options = {match[1]: set(CODE_OPTION.findall(entry["command"])) for entry in entries
               if (match := PRECOMPILED.search(entry["command"])) and " -x c++-header " in entry["command"]}
    for entry in entries:
        match = PRECOMPILED.search(entry["command"])
        if match and match[1] in options:
            if other := options[match[1]] ^ set(CODE_OPTION.findall(entry["command"])):
                yield f"{entry['file']}: precompiled headers of other options ({' '.join(sorted(other))}); set SKIP_PRECOMPILE_HEADERS"


def main():
    build = pathlib.Path(sys.argv[1])
    core_only = "--core" in sys.argv
    entries = sources.compile_commands(build)
    compiled = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in entries}
    problems = list(foreign_options(entries))
    paths = [path for path in sources.files(".cpp") if path.stem.endswith("_test")]
    for path in paths:
        text = sources.read(path)
        if (sources.ROOT / path) not in compiled and not (core_only and check_layers.has_torch(path)):
            problems.append(f"{path}: in no target; name it in the CMakeLists.txt beside it")
        if not TEST.search(text):
            problems.append(f"{path}: holds no test")
        for pattern, message in ((SKIP, "GTEST_SKIP without a reason"), (DISABLED, "a disabled test")):
            for match in pattern.finditer(text):
                problems.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {message}")
    problems += names_in_two(paths)
    for path in sources.files(".txt", ".cmake"):
        problems += short_timeouts(path, sources.read(path))
    for path in sources.files(".py"):
        problems += there_twice(path, sources.read(path))
        if path.parts[0] in ("cli", "testing", "tests"):
            problems += short_guards(path, sources.read(path))
    return sources.report("check_tests", problems, len(paths))


if __name__ == "__main__":
    sys.exit(main())
