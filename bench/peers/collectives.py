"""The peer of bench/collectives.cpp: torch.distributed over Gloo, timed as bench/timed_collectives.h says."""
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "testing"))
import gloo_peer  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def all_gather(given, out):
    dist.all_gather(list(out.chunk(size)), given)


def send(given, _):
    if rank == 0:
        dist.send(given, 1)
    elif rank == 1:
        dist.recv(given, 0)


VERBS = {  # verb -> (call, elements in, elements out)
    "barrier": (lambda given, out: dist.barrier(), lambda n: (0, 0)),
    "all_reduce": (lambda given, out: dist.all_reduce(given), lambda n: (n, 0)),
    "broadcast": (lambda given, out: dist.broadcast(given, 0), lambda n: (n, 0)),
    "all_gather": (all_gather, lambda n: (n // size, n)),
    "all_to_all": (lambda given, out: dist.all_to_all_single(out, given), lambda n: (n, n)),
    "send": (send, lambda n: (n, 0)),
}


def measure(verb, nbytes):
    call, counts = VERBS[verb]
    inputs, outputs = counts(nbytes // 4)
    given, out = torch.empty(inputs), torch.empty(outputs)
    rounds = min(500, max(20, (64 << 20) // max(nbytes, 1)))
    moments = torch.zeros(2, rounds, dtype=torch.float64)
    for i in range(rounds):
        given.fill_(rank + 1)
        dist.barrier()
        start = time.monotonic()
        call(given, out)
        moments[0, i], moments[1, i] = start, time.monotonic()
    if verb == "all_reduce":
        assert bool((given == size * (size + 1) / 2).all())
    dist.all_reduce(moments, dist.ReduceOp.MAX)  # all ranks read one clock
    times = (moments[1] - moments[0]).mul(1e6).sort().values
    if rank == 0:
        print(json.dumps({"verb": verb, "bytes": nbytes, "memory": "gloo", "median_us": round(times[rounds // 2].item(), 2),
                          "best_us": round(times[0].item(), 2)}), flush=True)


if len(sys.argv) > 1:  # VERB,... BYTES...
    for verb in sys.argv[1].split(","):
        for length in map(int, sys.argv[2:]):
            if verb == "all_reduce" or length == 25 << 20:
                measure(verb, length)
    gloo_peer.leave()
measure("barrier", 0)
for length in (8, 1 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20):
    measure("all_reduce", length)
for name in ("broadcast", "all_gather", "all_to_all", "send"):
    measure(name, 25 << 20)
gloo_peer.leave()
