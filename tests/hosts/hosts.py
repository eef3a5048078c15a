"""Several hosts on one machine: network namespaces with their own addresses and ports, joined by a switch, and a runtime folder
each, so that their processes can neither meet at a Unix socket nor share memory. Needs root and iproute2."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not():
    """Why hosts cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the Debian package iproute2 is not installed"
    try:
        Hosts(1).close()
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {' '.join(error.cmd)}: {error.stderr.strip()}"
    return None


def write_secret(folder):
    """The variable that names it."""
    path = folder / "secret"
    path.touch(mode=0o600)
    path.write_text(os.urandom(32).hex() + "\n")
    return {"LOCKSTEP_SECRET_FILE": str(path)}


class Hosts:
    """Hosts 0, 1, ... with the addresses 10.90.0.1, 10.90.0.2, ..."""
    made = 0

    def __init__(self, count):
        Hosts.made += 1
        self.prefix = f"ls{os.getpid()}x{Hosts.made}"
        self.switch = f"{self.prefix}s"
        self.names = [f"{self.prefix}h{i}" for i in range(count)]
        self.addresses = [f"10.90.0.{i + 1}" for i in range(count)]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-hosts-"))
        self.processes = []
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "net", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"{self.addresses[i]}/24", "dev", "net")
            ip("-n", name, "link", "set", "net", "up")
            ip("-n", name, "link", "set", "lo", "up")
            (self.folder / name).mkdir(mode=0o700)

    def bytes_sent(self, host, interface="net"):
        words = subprocess.run(["ip", "-n", self.names[host], "-j", "-s", "link", "show", interface], check=True, capture_output=True, text=True)
        return json.loads(words.stdout)[0]["stats64"]["tx"]["bytes"]

    def limit(self, host, rate):
        """What the host sends leaves it at this rate, "1gbit"."""
        subprocess.run(["tc", "-n", self.names[host], "qdisc", "add", "dev", "net", "root", "tbf", "rate", rate, "burst", "256kb",
                        "latency", "50ms"], check=True, capture_output=True, text=True)

    def limit_each_connection(self, host, rate, of):
        """Each connection of the host with the rank at host 0 carries this rate, "250mbit", and no more: a class for each value of the
        last byte of the port on the other side than host 0's. Not for more than `of`, the link's own rate, together."""
        port = "0x000000ff" if host == 0 else "0x00ff0000"  # in the TCP header's first word: where to, where from
        lines = ["qdisc add dev net root handle 1: htb default 1001",
                 f"class add dev net parent 1: classid 1:1000 htb rate {of} quantum 10000",
                 f"class add dev net parent 1:1000 classid 1:1001 htb rate {of} quantum 10000",
                 "filter add dev net parent 1: prio 1 handle 2: protocol ip u32 divisor 256"]
        for byte in range(256):
            lines += [f"class add dev net parent 1:1000 classid 1:{byte + 1:x} htb rate {rate} ceil {rate} burst 32kb quantum 10000",
                      f"filter add dev net parent 1: prio 1 protocol ip u32 ht 2:{byte:x}: match u32 0 0 flowid 1:{byte + 1:x}"]
        lines.append("filter add dev net parent 1: prio 1 protocol ip u32 ht 800:: match ip protocol 6 0xff "
                     f"hashkey mask {port} at 20 link 2:")
        subprocess.run(["tc", "-n", self.names[host], "-batch", "-"], input="\n".join(lines) + "\n", check=True, capture_output=True, text=True)

    def cut_link(self, host):
        """The cable is pulled at the switch: the host itself sees no error."""
        ip("-n", self.switch, "link", "set", f"port{host}", "nomaster")

    def start(self, host, command, environment=None):
        """Output goes to a file; text() reads it."""
        path = self.folder / f"output{len(self.processes)}"
        variables = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS")}
        variables |= {"XDG_RUNTIME_DIR": str(self.folder / self.names[host]), "OMP_NUM_THREADS": "1", **(environment or {})}
        with open(path, "wb") as output:
            process = subprocess.Popen(["ip", "netns", "exec", self.names[host], *map(str, command)], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, env=variables, start_new_session=True)
        process.path = path
        self.processes.append(process)
        return process

    def script(self, name, *lines):
        path = self.folder / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o700)
        return path

    def rsh(self):
        """What mpirun takes for rsh: `rsh ADDRESS COMMAND...` runs the command on that host, whose name is its address there."""
        return self.script("rsh", "host=$1", "shift", f"exec ip netns exec {self.prefix}h$((${{host##*.}} - 1)) unshare --uts "
                           "sh -c 'hostname \"$0\" && eval \"$1\"' \"$host\" \"$*\"")

    def text(self, process):
        return process.path.read_text(errors="replace")

    def wait_for(self, process, words, patience=600):
        deadline = time.monotonic() + patience
        while words not in self.text(process):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no {words!r} from {' '.join(process.args)}:\n{self.everything()}")
            time.sleep(0.01)

    def finish(self, patience=600):
        """Exit codes of all processes, in the order they were started; None for one that had to be killed."""
        deadline = time.monotonic() + patience
        codes = []
        for process in self.processes:
            try:
                codes.append(process.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append(None)
        return codes

    def everything(self):
        return "\n".join(f"--- {' '.join(p.args[4:])}: {p.poll()}\n{self.text(p)}" for p in self.processes)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
