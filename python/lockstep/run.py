"""python -m lockstep.run -n 2 train.py ...: the launcher, for a Python program. Options are those of `lockstep run`.

The first word that ends with .py is the program; it and what follows are given to this interpreter.
"""
from __future__ import annotations

import os
import pathlib
import shutil
import sys


def command() -> str:
    """$LOCKSTEP_COMMAND, the command that was installed with this interpreter's packages, or the one in PATH."""
    inside = pathlib.Path(sys.executable).parent / "lockstep"
    found = os.environ.get("LOCKSTEP_COMMAND") or (str(inside) if inside.exists() else shutil.which("lockstep"))
    if not found:
        sys.exit("python -m lockstep.run: the command `lockstep` is not in PATH; LOCKSTEP_COMMAND may name it")
    return found


def arguments(words: list[str]) -> list[str]:
    """`words` with the interpreter before the program."""
    for index, word in enumerate(words):
        if word.endswith(".py"):
            return [*words[:index], sys.executable, *words[index:]]
    return words


if __name__ == "__main__":
    os.execv(command(), [command(), "run", *arguments(sys.argv[1:])])
