"""The smallest program of torch.distributed over Lockstep, for launchers: torchrun --nproc-per-node 2 tests/python/torch_smoke.py"""
import torch
import torch.distributed as dist

import lockstep.torch  # noqa: F401

dist.init_process_group("lockstep")
x = torch.ones(3) * dist.get_rank()
dist.all_reduce(x)
assert (x == sum(range(dist.get_world_size()))).all(), x
dist.destroy_process_group()
