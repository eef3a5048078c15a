"""lockstep.horovod.torch where things end: a dead rank, a missing rank, hvd.elastic after a death, and workers of a DataLoader beside the
engine's thread.

    PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so python tests/python/horovod_failures_test.py
"""
import os
import signal
import time
import unittest

import torch
from horovod_elastic import Elastic  # noqa: F401: unittest finds its tests here

import lockstep
import lockstep.horovod.torch as hvd
import torch_ranks


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def join(rank, size, folder):
    torch.set_num_threads(1)
    lockstep.init("shm", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    hvd.init()


def raises(kind, act, *parts):
    try:
        act()
    except kind as error:
        for part in parts:
            check(part in str(error), f"{part!r} is not in {error}")
        return error
    raise AssertionError(f"nothing was raised; expected {kind.__name__}")


def rank_dies(rank, size, folder):
    """The dead rank's engine has heard of "alone", for which the others wait."""
    join(rank, size, folder)
    alone = hvd.allreduce_async(torch.ones(1), name="alone") if rank != 1 else None
    hvd.allreduce(torch.ones(1), name="together")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    error = raises(lockstep.PeerLost, lambda: hvd.synchronize(alone), "rank 1")
    check(time.monotonic() - began < 1, f"it took {time.monotonic() - began} s")
    check(error.peer == 1, error.peer)
    raises(lockstep.PeerLost, lambda: hvd.allreduce(torch.ones(1), name="later"), "rank 1")


def rank_is_missing(rank, size, folder):
    os.environ.update(HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="2")
    join(rank, size, folder)
    began = time.monotonic()
    raises(lockstep.Timeout, lambda: hvd.allreduce(torch.ones(1), name="theirs" if rank == 1 else "ours"),
           '"allreduce.ours" was submitted by ranks 0, 2 and is missing from rank 1', '"allreduce.theirs" was submitted by rank 1')
    check(1.9 < time.monotonic() - began < 4, f"it took {time.monotonic() - began} s")


def workers_are_forked_between_operations(rank, size, folder):
    join(rank, size, folder)
    loader = torch.utils.data.DataLoader(torch.arange(6), batch_size=2, num_workers=1, multiprocessing_context="fork")
    shared = torch.from_numpy(lockstep.shared_empty(1000, "float32")).fill_(1)
    for number, batch in enumerate(loader):
        under_way = hvd.allreduce_async_(shared, name="shared", op=hvd.Sum)
        total = hvd.allreduce(batch + rank, name="batch", op=hvd.Sum)
        check(total.tolist() == [2 * size * number + size * (size - 1) // 2 + size * place for place in range(2)], total)
        hvd.synchronize(under_way)
        check((shared == size ** (number + 1)).all(), shared)
    hvd.shutdown()


class Failures(unittest.TestCase):
    def test_dead_rank_is_named_within_a_second(self):
        self.assertEqual(torch_ranks.run(3, rank_dies), [0, -signal.SIGKILL, 0])

    def test_missing_rank_is_named_within_the_stall_time(self):
        self.assertEqual(torch_ranks.run(3, rank_is_missing), [0, 0, 0])

    def test_forked_workers(self):
        self.assertEqual(torch_ranks.run(2, workers_are_forked_between_operations), [0, 0])


if __name__ == "__main__":
    unittest.main()
