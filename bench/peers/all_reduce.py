"""The peer of bench/all_reduce.cpp: torch.distributed over Gloo, timed in the same way."""
import json
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
world_size = dist.get_world_size()
for size in (8, 1 << 10, 64 << 10, 1 << 20, 25 << 20):
    data = torch.empty(size // 4)
    rounds = min(500, max(20, (64 << 20) // size))
    moments = torch.zeros(2, rounds, dtype=torch.float64)
    for i in range(rounds):
        data.fill_(dist.get_rank() + 1)
        dist.barrier()
        start = time.monotonic()
        dist.all_reduce(data)
        moments[0, i], moments[1, i] = start, time.monotonic()
    assert bool((data == world_size * (world_size + 1) / 2).all())
    dist.all_reduce(moments, dist.ReduceOp.MAX)  # all ranks read one clock
    times = (moments[1] - moments[0]).mul(1e6).sort().values
    if dist.get_rank() == 0:
        print(json.dumps({"bytes": size, "memory": "gloo", "median_us": round(times[rounds // 2].item(), 2),
                          "best_us": round(times[0].item(), 2)}), flush=True)
dist.destroy_process_group()
