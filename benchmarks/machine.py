"""What this machine can do: the bandwidth that bounds decoding."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import torch


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def read_bandwidth(threads: int, repeats: int = 7) -> float:
    """Bytes a second at which `threads` threads read memory (a sum over 800 MB), median."""
    torch.set_num_threads(threads)
    data = torch.ones(200_000_000)
    rates: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        data.sum()
        rates.append(data.nbytes / (time.perf_counter() - start))
    return statistics.median(rates)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
