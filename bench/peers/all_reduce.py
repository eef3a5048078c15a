"""The peer of bench/all_reduce.cpp: torch.distributed over Gloo."""
import json
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
for count in (2, 256, 16384, 262144, 6553600):
    data = torch.empty(count)
    times = []
    for _ in range(min(2000, max(20, (256 << 20) // (4 * count) // 4))):
        data.fill_(dist.get_rank() + 1)
        dist.barrier()
        start = time.monotonic()
        dist.all_reduce(data)
        times.append((time.monotonic() - start) * 1e6)
    times.sort()
    if dist.get_rank() == 0:
        print(json.dumps({"bytes": 4 * count, "memory": "gloo", "median_us": round(times[len(times) // 2], 2),
                          "best_us": round(times[0], 2)}), flush=True)
dist.destroy_process_group()
