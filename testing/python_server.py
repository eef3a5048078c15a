"""Python for tests that compare with it: a fork server (fork_server.h) that has imported torch once, because that takes longer than most
scripts do. run_case starts it and sends it scripts; each runs in a copy of it, as `python SCRIPT ARGUMENTS` would run it.

    run_case build/testing/warm_python SCRIPT ARGUMENTS...

Without a server, when run_case or a person starts it with a script, it runs that script in its own process.
"""
import array
import atexit
import os
import runpy
import select
import signal
import socket
import struct
import sys

ARGUMENT = "--fork-server="
LARGEST_REQUEST, DESCRIPTORS = 128 << 10, 4  # fork_server_protocol.h
STARTED, ENDED = 0, 1
IDLE_SECONDS = 30


def import_what_scripts_need():
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would not be in a copy
    import numpy  # noqa: F401
    import safetensors.torch  # noqa: F401
    import torch.distributed.checkpoint
    import torch.distributed.tensor  # noqa: F401


def run_script(words):
    sys.argv[:] = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    runpy.run_path(words[0], run_name="__main__")


def become_script(request, descriptors):
    parts = request.split(b"\0")[:-1]
    count = int(parts[0])
    words = [os.fsdecode(part) for part in parts[1:1 + count]]
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.fchdir(descriptors[3])
    for number in range(3):
        os.dup2(descriptors[number], number)
    os.closerange(3, max(descriptors) + 1)
    os.environ.clear()
    for part in parts[1 + count:]:
        name, _, value = part.partition(b"=")
        os.environb[name] = value
    status = 0
    try:
        run_script(words[1:])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:  # what Python itself would print
        sys.excepthook(*sys.exc_info())
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def of_this_user(connection):
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] == os.geteuid()


def receive(connection):
    """The text, empty if run_case is gone, and the descriptors, which are the receiver's to close."""
    descriptors = array.array("i")
    try:
        text, control, _, _ = connection.recvmsg(LARGEST_REQUEST, socket.CMSG_SPACE(4 * DESCRIPTORS))
    except OSError:
        return b"", []
    for _, _, data in control:
        descriptors.frombytes(data)
    return text if len(descriptors) == DESCRIPTORS else b"", list(descriptors)


def answer(connection, kind, value):
    try:
        connection.send(struct.pack("Ii", kind, value))
    except OSError:
        pass  # a run_case that is gone is seen by poll()


class Server:
    """States of a case: its copy runs (an entry in `running`); it has ended, and run_case was told; or run_case went, and it is killed."""

    def __init__(self, listener):
        self.listener = listener
        self.running = {}  # pidfd -> (pid, connection)
        self.poll = select.poll()
        self.poll.register(listener, select.POLLIN)

    def serve(self):
        while True:
            ready = self.poll.poll(None if self.running else IDLE_SECONDS * 1000)
            if not ready:
                return
            for descriptor, _ in ready:
                if descriptor == self.listener.fileno():
                    self.accept()
                elif descriptor in self.running:
                    self.end(descriptor)
                else:
                    self.kill_what_nobody_waits_for()

    def accept(self):
        connection, _ = self.listener.accept()
        if not of_this_user(connection):
            return connection.close()
        request, descriptors = receive(connection)
        try:
            pid = os.fork() if request else None
        except OSError:
            pid = None  # run_case runs the script itself
        if pid == 0:
            become_script(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid is None:
            return connection.close()
        try:
            os.setpgid(pid, pid)
        except OSError:
            pass  # the copy did it, or has ended
        pidfd = os.pidfd_open(pid)
        self.running[pidfd] = (pid, connection)
        self.poll.register(pidfd, select.POLLIN)
        self.poll.register(connection, 0)  # POLLHUP
        return answer(connection, STARTED, pid)

    def end(self, pidfd):
        pid, connection = self.running.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        self.poll.unregister(pidfd)
        self.poll.unregister(connection)
        os.close(pidfd)
        answer(connection, ENDED, status)
        connection.close()

    def kill_what_nobody_waits_for(self):
        for pid, connection in self.running.values():
            probe = select.poll()
            probe.register(connection, 0)
            if probe.poll(0):
                os.killpg(pid, signal.SIGKILL)


def main():
    if len(sys.argv) == 2 and sys.argv[1].startswith(ARGUMENT):
        listener = socket.socket(fileno=int(sys.argv[1][len(ARGUMENT):]))
        import_what_scripts_need()
        Server(listener).serve()
        os._exit(0)
    run_script(sys.argv[1:])


if __name__ == "__main__":
    main()
