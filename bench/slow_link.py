#!/usr/bin/env python3
"""Runs a program with one rank on each of two hosts (network namespaces of this machine) whose link is so fast and no faster. Prints
what both ranks printed. Needs root and iproute2.

    bench/slow_link.py 1gbit PROGRAM [ARGUMENT...]           # a rate of tc's, in each direction; "unlimited": as fast as it goes
    bench/slow_link.py 250mbit-of-1gbit PROGRAM [ARGUMENT...]           # for each connection, of what the link carries
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/hosts"))
from hosts import Hosts, why_not, write_secret  # noqa: E402


def main():
    rate, command = sys.argv[1], sys.argv[2:]
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
            hosts.start(host, command, {
                "RANK": str(host), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": hosts.addresses[0],
                "MASTER_PORT": "29551", "GLOO_SOCKET_IFNAME": "net", **secret})
        codes = hosts.finish(600)
        if any(codes):
            sys.exit(hosts.everything())
        print("".join(hosts.text(process) for process in hosts.processes), end="")


if __name__ == "__main__":
    main()
