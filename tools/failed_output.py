"""Prints the names and the last lines of the tests that failed in a build folder and in the ThreadSanitizer build within it, so that they
are the last thing that ./test prints. python3 tools/failed_output.py build"""
import pathlib
import re
import sys

LINES = 25  # of each test
MOST = 10   # tests


def failed_in(build):
    """Name and output of each. CTest's log also says "Failed" of a test that is to fail or was skipped, and its list of failures is that of
    an earlier run if all have passed: a test counts if it stands in both."""
    folder = pathlib.Path(build) / "Testing/Temporary"
    log, names = (path.read_text(errors="replace").replace("\0", "") if path.exists() else ""
                  for path in (folder / "LastTest.log", folder / "LastTestsFailed.log"))
    failed = {line.partition(":")[2] for line in names.splitlines()}
    tests = re.findall(r'^Command: .*?^"(.*?)" start time:.*?^Output:\n-+\n(.*?)^<end of output>\n.*?^(Test [A-Z]\w+)', log,
                       flags=re.DOTALL | re.MULTILINE)
    return [(name, output) for name, output, result in tests if name in failed and result != "Test Passed"]


def main():
    build = pathlib.Path(sys.argv[1])
    for folder in (build, build / "tsan"):
        failed = [one for one in failed_in(folder) if one[0] != "tsan_core"]
        for name, output in failed[:MOST]:
            print(f"\n{folder}: {name} failed; the last lines of its output:")
            print("\n".join("  " + line for line in output.splitlines()[-LINES:]))
        if len(failed) > MOST:
            print(f"and {len(failed) - MOST} more: {' '.join(name for name, _ in failed[MOST:])}")


if __name__ == "__main__":
    main()
