"""lockstep.torch where things end: dead ranks, timeouts, forks, torch of another version; and each way in which ranks of torch meet.

    PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so python tests/python/torch_failures_test.py
"""
import importlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import lockstep.torch
import torch_ranks


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def join(rank, size, folder, **options):
    torch.set_num_threads(1)
    dist.init_process_group("lockstep", init_method=f"file://{folder}/store", rank=rank, world_size=size, **options)


def raises(act, *parts):
    try:
        act()
    except dist.DistBackendError as error:
        for part in parts:
            check(part in str(error), f"{part!r} is not in {error}")
    else:
        raise AssertionError(f"nothing was raised; expected {parts}")


def rank_dies(rank, size, folder, backend):
    os.environ["LOCKSTEP_BACKEND"] = backend
    join(rank, size, folder)
    model = nn.parallel.DistributedDataParallel(nn.Linear(100, 100))
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    raises(lambda: model(torch.ones(2, 100)).sum().backward(), "rank 1 (pid ", "all_reduce", 'group "world"', "the group is closed")
    check(time.monotonic() - began < 1, f"it took {time.monotonic() - began} s")
    raises(lambda: dist.all_reduce(torch.ones(1)), "rank 1 (pid ")
    raises(lambda: dist.new_group([0, 2]), "rank 1 (pid ")


def rank_is_late(rank, size, folder):
    join(rank, size, folder, timeout=timedelta(seconds=20))
    short = dist.new_group(timeout=timedelta(milliseconds=300))
    if rank == 0:
        began = time.monotonic()
        raises(lambda: dist.barrier(short), " Timed out waiting 300ms", "rank 1")
        check(0.2 < time.monotonic() - began < 2, "the group's timeout holds")
        other = dist.new_group()
        raises(lambda: dist.all_reduce(torch.ones(1), group=other, async_op=True).wait(timedelta(milliseconds=200)), "Timed out")
    else:
        other = dist.new_group()
    dist.barrier()
    dist.destroy_process_group()


def fork_uses_the_group(rank, size, folder):
    join(rank, size, folder)
    pid = os.fork()
    if pid == 0:
        raises(lambda: dist.all_reduce(torch.ones(1)), "fork")
        os._exit(0)
    check(os.waitpid(pid, 0)[1] == 0, "the child's check")
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


# Rank 0 waits in init, and is stopped meanwhile for longer than its timeout.
def is_paused_in_init(rank, size, folder):
    mine = pathlib.Path(folder, "pid")
    if rank == 0:
        mine.write_text(str(os.getpid()))
    else:
        while not (mine.exists() and mine.read_text()):
            time.sleep(0.01)
        pid = mine.read_text()
        subprocess.run(["sh", "-c", f"sleep 1; kill -STOP {pid}; sleep 6; kill -CONT {pid}; sleep 1"], check=True)
    join(rank, size, folder, timeout=timedelta(seconds=4))
    dist.barrier()
    dist.destroy_process_group()


# Rank 1 comes late, and rank 0 says so to the standard error.
def is_missed_in_init(rank, size, folder):
    os.environ["LOCKSTEP_WARN_AFTER"] = "1"
    if rank == 0:
        with open(f"{folder}/said", "w") as said:
            os.dup2(said.fileno(), 2)
    else:
        time.sleep(2.5)
    join(rank, size, folder)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        text = pathlib.Path(folder, "said").read_text()
        check("waiting for 1 s for rank(s) 1" in text, f"rank 1 is not missed in {text!r}")


# Each port serves once, because a rank could still reach the server of the group before.
def meets(rank, size, folder, ports):
    me = {"rank": rank, "world_size": size}
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(rank), WORLD_SIZE=str(size))
    store = dist.FileStore(f"{folder}/given", size)
    for options in ({}, {"store": store, **me}, {"store": store, **me}, {"init_method": f"tcp://127.0.0.1:{ports.pop()}", **me},
                    {"pg_options": lockstep.torch.Options(backend="tcp")}, {"backend": "cpu:lockstep"}):
        os.environ["MASTER_PORT"] = str(ports.pop())
        dist.init_process_group(**{"backend": "lockstep", **options})
        x = torch.ones(1)
        dist.all_reduce(x)
        check(x.item() == size, options)
        half = dist.new_group([0])
        dist.all_reduce(x, group=half)
        dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(ports.pop())
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("lockstep")
    dist.all_reduce(x, group=dist.new_group([0, 1]))
    dist.destroy_process_group()
    dist.set_debug_level(dist.DebugLevel.OFF)
    os.environ["MASTER_PORT"] = str(ports.pop())
    dist.init_process_group("gloo")  # a world of another backend
    dist.all_reduce(x, group=dist.new_group([0, 1], backend="lockstep"))
    dist.destroy_process_group()


def other_version(_rank, _size, _folder):
    torch.__version__ = "2.9.1+cpu"
    try:
        importlib.reload(lockstep.torch._backend)
    except ImportError as error:
        check("built for torch 2." in str(error) and "this is torch 2.9.1+cpu" in str(error), error)
    else:
        raise AssertionError("nothing was raised")


def ends_without_destroying(rank, size, folder):
    join(rank, size, folder)
    x = torch.ones(1000)
    dist.broadcast(x, 0)
    if rank == 0:
        torch.ops.lockstep.leave_all()  # what atexit calls
        return
    raises(lambda: dist.all_reduce(x), "rank 0 (pid ", "left")


class Failures(unittest.TestCase):
    def test_dead_rank_is_named_within_a_second(self):
        for backend in ("shm", "tcp"):
            with self.subTest(backend):
                self.assertEqual(torch_ranks.run(3, rank_dies, backend), [0, -signal.SIGKILL, 0])

    def test_others(self):
        for body in (rank_is_late, fork_uses_the_group, ends_without_destroying):
            with self.subTest(body.__name__):
                self.assertEqual(torch_ranks.run(2, body), [0, 0])

    def test_waits_in_init(self):
        for body in (is_paused_in_init, is_missed_in_init):
            with self.subTest(body.__name__):
                self.assertEqual(torch_ranks.run(2, body), [0, 0])

    def test_ranks_meet_as_those_of_any_backend(self):
        probes = [socket.socket() for _ in range(10)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
        self.assertEqual(torch_ranks.run(2, meets, ports), [0, 0])

    def test_torch_of_another_version_is_refused(self):
        self.assertEqual(torch_ranks.run(1, other_version), [0])


if __name__ == "__main__":
    unittest.main()
