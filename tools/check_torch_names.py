#!/usr/bin/env python3
"""docs/from_torch_distributed.md against a real PyTorch (left column) and our headers (the others). Run by CTest with a Python that
has torch; by hand: tools/check_torch_names.py"""
import inspect
import pkgutil
import re
import sys

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed.nn.functional as functional

import sources

DOCUMENT = "docs/from_torch_distributed.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (?:`([\w:]+)`|no counterpart) \| ?([\w/.]*) \|(.*)\|$", re.MULTILINE)


def names_of_torch():
    """Every public name the document must have."""
    names = {name for name in dir(dist) if not name.startswith("_") and not inspect.ismodule(getattr(dist, name))}
    names |= set(c10d.__all__)
    names |= {f"Store.{name}" for name in dir(dist.Store) if not name.startswith("_")}
    names |= {f"Work.{name}" for name in dir(dist.Work) if not name.startswith("_")}
    names |= {f"nn.functional.{name}" for name, value in vars(functional).items()
              if inspect.isfunction(value) and value.__module__ == functional.__name__ and not name.startswith("_")}
    return names | {"nn.parallel.DistributedDataParallel", "utils.data.DistributedSampler", "multiprocessing.spawn"}


def is_elsewhere_in_torch(name):
    """torch.utils.checkpoint.checkpoint and the like: rows that are there, but need not be."""
    if not name.startswith("torch."):
        return False
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def main():
    text = sources.read(DOCUMENT)
    problems, rows = [], ROW.findall(text)
    listed = [name for name, *_ in rows]
    for name in sorted(names_of_torch() - set(listed)):
        problems.append(f"{DOCUMENT}: torch {torch.__version__} has {name}, the document has not")
    for name in sorted(name for name in set(listed) - names_of_torch() if not is_elsewhere_in_torch(name)):
        problems.append(f"{DOCUMENT}: {name} is not in torch {torch.__version__}")
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        problems.append(f"{DOCUMENT}: {name} is listed twice")
    for name, ours, header, _ in rows:
        path = sources.ROOT / "lockstep" / header
        if not ours:
            if header:
                problems.append(f"{DOCUMENT}: {name} has a header but no counterpart")
        elif not header or not path.exists():
            problems.append(f"{DOCUMENT}: {name}: there is no lockstep/{header}")
        elif not re.search(rf"\b{re.escape(ours.split('::')[-1])}\b\s*(\(|\{{|:|;|final|=|<)", path.read_text()):
            problems.append(f"{DOCUMENT}: {name}: lockstep/{header} declares no {ours}")
    return sources.report("check_torch_names", problems, len(rows))


if __name__ == "__main__":
    sys.exit(main())
