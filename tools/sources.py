"""The tree's own files, for the check_*.py scripts beside this one."""
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["lockstep", "cli", "testing", "tests", "examples", "bench", "python", "tools", "cmake", "scripts", ".ci"]


def files(*suffixes):
    """The tree's files with one of the suffixes ("" for files without one), relative to ROOT."""
    paths = list(ROOT.glob("*"))
    for folder in FOLDERS:
        paths += (ROOT / folder).rglob("*")
    return sorted(pathlib.PurePosixPath(path.relative_to(ROOT)) for path in paths
                  if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


UNITED = re.compile(r'#include "([^"]+)"')


def compile_commands(build):
    """The entries of the build folder's compile_commands.json, with one for each file that CMake compiles together with others."""
    entries = []
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        source = pathlib.Path(entry["directory"], entry["file"])
        if source.parent.name != "Unity":
            entries.append(entry)
            continue
        for file in UNITED.findall(source.read_text(encoding="utf-8")):
            entries.append({**entry, "file": file, "command": entry["command"].replace(str(source), file)})
    return entries


# One token of what a brace or a word may hide in: comments, raw strings, strings, characters (not 1'000).
HIDDEN = re.compile(r"""//[^\n]* | /\*.*?\*/ | R"(?P<mark>[^()\s]*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*"
                        | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""", re.VERBOSE | re.DOTALL)


def blank_hidden(text):
    """C++ text with comments and literals replaced by blanks; line numbers stay."""
    return HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def report(script, problems, checked):
    """Prints the problems and returns the exit status."""
    for problem in problems:
        print(problem)
    print(f"{script}: {checked} files, {len(problems)} problems")
    return 1 if problems else 0
