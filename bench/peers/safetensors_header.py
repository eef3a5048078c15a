"""The peer of bench/safetensors_header.cpp: safetensors' own library, which is Rust behind Python, opens the same file.

    python bench/peers/safetensors_header.py FILE ROUNDS
"""
import json
import statistics
import sys
import time

from safetensors import safe_open

times = []
for _ in range(int(sys.argv[2])):
    begin = time.monotonic()
    with safe_open(sys.argv[1], "pt") as file:
        names = list(file.keys())
    times.append((time.monotonic() - begin) * 1e3)
print(json.dumps({"tensors": len(names), "median_ms": round(statistics.median(times), 1), "best_ms": round(min(times), 1)}))
