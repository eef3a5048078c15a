"""The peer of bench/checkpoint_kills.cpp: torch.distributed.checkpoint saves the same state under one name, by two ranks over Gloo.

    checkpoint_kills.py save FOLDER        # under torchrun, or with its variables; FOLDER.saved: how many saves are complete
    checkpoint_kills.py load FOLDER        # prints "loads", "mixed", or why not
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

TENSORS, ROWS, COLUMNS = 8, 512, 1024


def save(folder):
    dist.init_process_group("gloo")
    state = {f"t{i}": torch.zeros(ROWS, COLUMNS) for i in range(TENSORS)}
    version = 0
    while True:
        version += 1
        for tensor in state.values():
            tensor.fill_(version)
        dcp.save(state, checkpoint_id=folder)
        if dist.get_rank() == 0:
            with open(folder + ".saved", "w", encoding="ascii") as saved:
                saved.write(str(version))


def load(folder):
    state = {f"t{i}": torch.zeros(ROWS, COLUMNS) for i in range(TENSORS)}
    try:
        dcp.load(state, checkpoint_id=folder, no_dist=True)
    except dcp.api.CheckpointException as error:
        return "CheckpointException: " + ", ".join(repr(cause) for cause, _ in error.failures.values())
    except Exception as error:  # pylint: disable=broad-exception-caught
        return repr(error)
    versions = {float(value) for tensor in state.values() for value in tensor.unique()}
    return "loads" if len(versions) == 1 else "mixed"


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "save":
        save(sys.argv[2])
    print(load(sys.argv[2]).replace("\n", " "))
