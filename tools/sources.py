"""The tree's own files, for the check_*.py scripts beside this one."""
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
