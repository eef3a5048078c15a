"""Ranks of real Python over Gloo, for the tests and benchmarks that compare with them.

    gloo_peer.spawn(train, args=(path, folder), ranks=2)      # train(rank, path, folder) in each of two processes
    ...
    gloo_peer.leave()                                         # the last line of a program that torchrun started

A rank ends without the interpreter's own end, because torch 2.13 has a race there. Gloo's threads outlive destroy_process_group().
One that comes late, on a busy machine, to let go of the last operation's tensor needs the interpreter for it; a thread that asks for
the interpreter while it ends is ended itself, within a noexcept function: "terminate called without an active exception", SIGABRT.
"""
import os
import sys

import torch.multiprocessing


def leave():
    """The end of a rank whose results are written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_rank(rank, function, args):
    function(rank, *args)
    leave()


def spawn(function, args, ranks):
    torch.multiprocessing.spawn(run_rank, (function, args), nprocs=ranks)
