"""Lockstep as a backend of torch.distributed.

    import torch.distributed as dist
    import lockstep.torch                      # not needed where Lockstep is installed as a package
    dist.init_process_group("lockstep")        # the only line that changes
    model = torch.nn.parallel.DistributedDataParallel(model)

    lockstep run -n 2 python train.py          # or: torchrun --nproc-per-node 2 train.py

Who         programs that use "gloo" on CPU tensors: DistributedDataParallel and its hooks, FSDP2, ZeroRedundancyOptimizer, DTensor,
            functional collectives, torch.distributed.checkpoint. With GPUs: "cpu:lockstep,cuda:nccl".
Meets       by env://, file://, tcp:// or a given store, as any backend. init_method="lockstep://" joins the job that `lockstep run`
            started, in which other ranks may be programs in C++, C, Fortran or NumPy.
Groups      new_group() of a lockstep world is made by its members alone, over the world.
Raises      torch.distributed.DistBackendError, whose text names rank, group, operation and what to do; the group is then closed.
            RuntimeError for a wrong argument. ImportError: this Lockstep was built for other versions of torch.
"""
from ._backend import Options, supported_versions

__all__ = ["Options", "supported_versions"]
