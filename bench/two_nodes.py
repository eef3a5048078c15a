#!/usr/bin/env python3
"""Runs a program with two ranks on each of two nodes that are one machine: connections go over loopback, and the nodes share no memory
with each other. Prints what node 0 printed.

    bench/two_nodes.py BUILD BACKEND PROGRAM [ARGUMENT...]           # BACKEND: hierarchical or tcp
"""
import os
import pathlib
import subprocess
import sys
import tempfile

PORT = "29541"


def main():
    launcher = pathlib.Path(sys.argv[1]) / "lockstep"
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder) / "secret"
        secret.touch(mode=0o600)
        secret.write_text(os.urandom(32).hex() + "\n")
        nodes = []
        for node in (1, 0):
            environment = {**os.environ, "LOCKSTEP_NODE": str(node), "LOCKSTEP_BACKEND": sys.argv[2]}
            command = [launcher, "run", "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                       "--master-port", PORT, "--secret-file", secret, "--no-logs", "--no-prefix", *sys.argv[3:]]
            nodes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        return max(node.wait() for node in nodes)


if __name__ == "__main__":
    sys.exit(main())
