"""`lockstep run` on a terminal of its own: what is typed, and what is shown."""
import fcntl
import os
import pty
import re
import subprocess
import termios

from launcher_support import LOCKSTEP, wait_until


class Terminal:
    """A job on a pseudo-terminal of its own, as its session's leader in the foreground."""

    def __init__(self, options, command, program=None):
        self.master, slave = pty.openpty()
        words = [word.replace("{sleep}", "sleep 1000") for word in command]
        self.process = subprocess.Popen(program or [LOCKSTEP, "run", "--no-logs", *options, *words], stdin=slave, stdout=slave,
                                        stderr=slave, start_new_session=True, preexec_fn=self.take_terminal)
        os.close(slave)
        os.set_blocking(self.master, False)
        self.text = ""

    @staticmethod
    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def type(self, keys):
        os.write(self.master, keys)

    def shown(self):
        try:
            while chunk := os.read(self.master, 65536):
                self.text += chunk.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return self.text

    def wait_for(self, words, times=1):
        try:
            wait_until(lambda: self.shown().count(words) >= times, words)
        except AssertionError as error:
            raise AssertionError(f"{error}; shown: {self.text!r}") from None

    def wait(self):
        """The exit code; reads meanwhile, since a full terminal would block whoever writes."""
        wait_until(lambda: self.shown() is not None and self.process.poll() is not None, f"end; shown: {self.text!r}")
        self.shown()
        return self.process.returncode


def screen_of(text):
    """The lines a terminal shows after `text`: knows returns, new lines and "erase to the end of the line"."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[K|\r|\n|[^\r\n\x1b]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            lines.append("")
            column = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        else:
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part):]
            column += len(part)
    return [line for line in lines if line]
