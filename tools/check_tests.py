#!/usr/bin/env python3
"""No test that silently does not run. Run by CTest; by hand: tools/check_tests.py build [--core]

Every *_test.cpp is compiled into some target of the build folder (--core: of a build without libtorch), no test is disabled,
and every GTEST_SKIP says why."""
import pathlib
import re
import sys

import check_layers
import sources

SKIP = re.compile(r"GTEST_SKIP\(\)\s*(;|<<\s*\"\")")
DISABLED = re.compile(r"\bTEST(_F|_P)?\s*\([^)]*\bDISABLED_|\bRC_GTEST_PROP\s*\([^)]*\bDISABLED_")
TEST = re.compile(r"\b(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP|RANKS_TEST\w*)\s*\(")


def main():
    build = pathlib.Path(sys.argv[1])
    core_only = "--core" in sys.argv
    compiled = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in sources.compile_commands(build)}
    problems = []
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
    return sources.report("check_tests", problems, len(paths))


if __name__ == "__main__":
    sys.exit(main())
