"""One job of ranks that are programs of torch and ranks that are not: init_method="lockstep://". Rank 0 uses NumPy.

    lockstep run -n 3 python tests/python/torch_job_test.py
"""
import os

import numpy as np

import lockstep

if int(os.environ["RANK"]) == 0:
    lockstep.init()
    x = np.full(1000, 1, np.float32)
    lockstep.all_reduce(x)
    total = lockstep.broadcast(np.zeros(3, np.int64), root=1)
else:
    import torch
    import torch.distributed as dist

    import lockstep.torch

    dist.init_process_group("lockstep", init_method="lockstep://")
    x = torch.full((1000,), float(dist.get_rank() + 1))
    dist.all_reduce(x)
    total = torch.full((3,), int(x[0]))
    dist.broadcast(total, 1)
    total, x = total.numpy(), x.numpy()
size = lockstep.size()
assert (x == size * (size + 1) / 2).all() and (total == size * (size + 1) // 2).all(), (x, total)
lockstep.barrier()
lockstep.shutdown()
