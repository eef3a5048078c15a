#!/usr/bin/env python3
"""Runs a program with one rank, or some, on each of two hosts (network namespaces of this machine) whose link is so fast and no faster.
Prints what all ranks printed. Needs root and iproute2.

    bench/slow_link.py 1gbit PROGRAM [ARGUMENT...]           # a rate of tc's, in each direction; "unlimited": as fast as it goes
    bench/slow_link.py 250mbit-of-1gbit PROGRAM [ARGUMENT...]           # for each connection, of what the link carries
    bench/slow_link.py 1gbit*4 PROGRAM [ARGUMENT...]         # with four ranks on each host
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/hosts"))
from hosts import Hosts, why_not, write_secret  # noqa: E402


def main():
    (rate, _, each_host), command = sys.argv[1].partition("*"), sys.argv[2:]
    ranks = int(each_host or 1)  # on a host
    reason = why_not()
    if reason:
        sys.exit(f"slow_link: {reason}")
    with Hosts(2) as hosts:
        secret = write_secret(hosts.folder)
        for host in range(2):
            each, _, whole = rate.partition("-of-")
            if whole:
                hosts.limit_each_connection(host, each, whole)
            elif rate != "unlimited":
                hosts.limit(host, rate)
            for local in range(ranks):
                hosts.start(host, command, {
                    "RANK": str(host * ranks + local), "WORLD_SIZE": str(2 * ranks), "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": "29551", "GLOO_SOCKET_IFNAME": "net", **secret})
        codes = hosts.finish(600)
        if any(codes):
            sys.exit(hosts.everything())
        print("".join(hosts.text(process) for process in hosts.processes), end="")


if __name__ == "__main__":
    main()
