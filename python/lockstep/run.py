"""python -m lockstep.run -n 2 train.py ...: the launcher, for a Python program. Options are those of `lockstep run`.

The first word that ends with .py is the program; it and what follows are given to this interpreter. The wheel's command `horovodrun` is
`lockstep horovodrun`.
"""
from __future__ import annotations

import os
import pathlib
import shutil
import sys
import sysconfig


def command() -> str:
    """$LOCKSTEP_COMMAND, the command that was installed with this interpreter's packages, or the one in PATH."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    inside = [str(path) for folder in folders if (path := pathlib.Path(folder, "lockstep")).is_file()]
    found = os.environ.get("LOCKSTEP_COMMAND") or (inside[0] if inside else shutil.which("lockstep"))
    if not found:
        sys.exit("python -m lockstep.run: the command `lockstep` is not in PATH; LOCKSTEP_COMMAND may name it")
    return found


def arguments(words: list[str]) -> list[str]:
    """`words` with the interpreter before the program."""
    for index, word in enumerate(words):
        if word.endswith(".py"):
            return [*words[:index], sys.executable, *words[index:]]
    return words


def horovodrun() -> None:
    """The command `horovodrun` of the wheel: its words go to `lockstep horovodrun` as they are."""
    os.execv(command(), [command(), "horovodrun", *sys.argv[1:]])


if __name__ == "__main__":
    os.execv(command(), [command(), "run", *arguments(sys.argv[1:])])
