"""Ranks for tests of lockstep.torch and of Horovod's interface for torch: forks of one process that has imported torch, because that
import takes longer than a test."""
import multiprocessing
import os
import sys
import tempfile
import traceback
import unittest

import torch
import torch.distributed as dist

SECONDS = 100
_fork = multiprocessing.get_context("fork")


def run(size, body, *arguments, seconds=SECONDS):
    """Calls body(rank, size, folder, *arguments) in `size` processes, and waits `seconds` for each. Returns their exit codes: negative is
    a signal's number, None a rank that did not end and was killed."""
    with tempfile.TemporaryDirectory(prefix="lockstep-torch-") as folder:
        ranks = [_fork.Process(target=_call, args=(body, rank, size, folder, *arguments)) for rank in range(size)]
        for rank in ranks:
            rank.start()
        codes = []
        for rank in ranks:
            rank.join(seconds)
            codes.append(rank.exitcode)
            if rank.exitcode is None:
                rank.kill()
                rank.join()
        return codes


def _call(body, rank, *arguments):
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    try:
        body(rank, *arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        raise


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size, cls.root = dist.get_rank(), dist.get_world_size(), dist.get_world_size() - 1

    def equal(self, actual, wanted):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0)

    def the_same_on_all_ranks(self, tensor):
        everyone = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(everyone, tensor.contiguous())
        for other in everyone:
            self.equal(other, tensor)
