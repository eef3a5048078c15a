"""Tells torch.distributed of the backend `lockstep`, without loading it: for the entry point `torch.backends`, by which
`import torch` finds what is installed. Errors, such as a torch that this Lockstep was not built for, come when a program asks for the
backend. So an installed Lockstep never keeps torch from being imported."""
from __future__ import annotations


def register() -> None:
    """Makes init_process_group("lockstep") and init_method="lockstep://" known. It may be called more than once."""
    import torch.distributed as dist

    if not dist.is_available() or "LOCKSTEP" in dist.Backend._plugins:
        return
    dist.Backend.register_backend("lockstep", _create, extended_api=True, devices=["cpu"])
    dist.register_rendezvous_handler("lockstep", _rendezvous)


def _create(options, given):
    from lockstep.torch import _backend

    return _backend.create(options, given)


def _rendezvous(url, *arguments, **keywords):
    from lockstep.torch import _backend

    return _backend.rendezvous(url, *arguments, **keywords)
