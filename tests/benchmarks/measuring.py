"""What the benchmarks share: the machine's own rate, medians, peak memory and tables."""

import resource
import statistics
import time
from pathlib import Path

import pandas as pd
import torch


def seconds(work, repeats=3):
    """Median time of a call, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def gemm_rate(size=2048, dtype=torch.float32):
    """GFLOP/s of a square matrix product, the best of five."""
    left, right = (torch.randn(size, size).to(dtype) for _ in range(2))
    left @ right
    times = []
    for _ in range(5):
        start = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times) / 1e9


def peak_mib():
    """Largest resident memory of the process so far, MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # what the system calls the maximum of a process starts at that of its parent
        (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(title, rows):
    """Prints a table."""
    print(f"\n{title}\n{pd.DataFrame(rows).to_string(index=False)}")
