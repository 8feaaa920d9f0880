"""Named topologies: links by level, memory, arithmetic and launches, from published numbers.

Bandwidths are what one rank sends (or reads and writes) in MB/s = 10^6 bytes a second; times are
picoseconds. Peak numbers are taken from data sheets and scaled by what was measured on an H200 of
the same kind: copies reach 4.25 of 4.8 TB/s, bf16 matmul 790 of 989 TFLOP/s, an all-reduce by
symmetric memory between two ranks 300 of 450 GB/s, an empty kernel in a replayed CUDA graph 1.3 us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tscompile.cost.errors import TopologyError

_US = 1_000_000
_GB = 1_000
_BILLION = 10**9


@dataclass(frozen=True, slots=True)
class Link:
    """One level of the hierarchy: `ranks` consecutive ranks talk through it.

    `latency` is what a collective costs before its first byte where this is its outermost level;
    `hop` is each further message that waits for another. `direct` says that ranks read each
    other's memory, so that a one-shot all-reduce exists. `ring` counts n - 1 hops for a gather
    over n ranks, else ceil(log2 n), as recursive doubling needs (Thakur, Rabenseifner and Gropp,
    "Optimization of Collective Communication Operations in MPICH", 2005).
    """

    ranks: int
    latency: int
    hop: int
    bandwidth: int
    direct: bool = False
    ring: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A timed collective over `ranks` ranks of the innermost level, its launch taken off.

    `bytes_` are what a rank holds before it.
    """

    kind: str
    ranks: int
    bytes_: int
    picoseconds: int


@dataclass(frozen=True, slots=True)
class Topology:
    """How fast ranks talk (innermost link first), read memory and compute.

    `memory` in MB/s, `flops` in MFLOP/s, `launch` in picoseconds, `capacity` in bytes a rank (None:
    not limited here). `measured` overrides the model for the collectives that it covers: by size it
    is interpolated between entries and continued at the model's rate beyond the last.
    `valid_rows_only` says that its all-to-all of tokens leaves out the rows that a destination's
    experts do not want.
    """

    name: str
    links: tuple[Link, ...]
    memory: int
    flops: int
    launch: int
    measured: tuple[Measured, ...] = ()
    valid_rows_only: bool = False
    capacity: int | None = None

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.links[-1].ranks


_LAUNCH = 1_300_000

# Two H200s, torch 2.11 symmetric memory (the better of one- and two-shot), inside a CUDA graph.
_H200_ALL_REDUCE = tuple(
    Measured("all_reduce", 2, size, time - _LAUNCH)
    for size, time in (
        (8 << 10, 6_400_000),
        (64 << 10, 6_900_000),
        (128 << 10, 7_300_000),
        (512 << 10, 8_100_000),
        (2 << 20, 14_100_000),
        (8 << 20, 34_600_000),
    )
)

# NVLink 4, 18 links, 450 GB/s a direction (NVIDIA H100 and H200 data sheets). Latency: what the
# measured all-reduce has beyond its launch; hop: NCCL's hwLat for NVLink, LL (tuning.cc).
_NVLINK4 = Link(8, 5 * _US, 600_000, 300 * _GB, direct=True)
# NVLink 5, 18 links, 900 GB/s a direction (NVIDIA Blackwell architecture brief).
_NVLINK5 = Link(8, 5 * _US, 600_000, 600 * _GB, direct=True)
# ConnectX-7, one 400 Gb/s NDR InfiniBand port a GPU (NVIDIA DGX H200 data sheet). NCCL's tuning
# model (src/graph/tuning.cc) has 14 us for a collective with LL128 and 5 us a hop over a network.
_INFINIBAND = Link(0, 14 * _US, 5 * _US, 48 * _GB)

_NODES: Mapping[str, Topology] = {
    # 141 GB HBM3e at 4.8 TB/s, 989 TFLOP/s bf16 (NVIDIA H200 data sheet); scaled as measured.
    "h200-nvlink-8": Topology(
        "h200-nvlink-8",
        (_NVLINK4,),
        4250 * _GB,
        790_000_000,
        _LAUNCH,
        _H200_ALL_REDUCE,
        capacity=141 * _BILLION,
    ),
    # 80 GB HBM3 at 3.35 TB/s (NVIDIA H100 SXM data sheet), scaled alike.
    "h100-nvlink-8": Topology(
        "h100-nvlink-8",
        (_NVLINK4,),
        2970 * _GB,
        790_000_000,
        _LAUNCH,
        capacity=80 * _BILLION,
    ),
    # 180 GB HBM3e at 8 TB/s, 2250 TFLOP/s dense bf16 a GPU (NVIDIA DGX B200 data sheet).
    "b200-nvlink-8": Topology(
        "b200-nvlink-8",
        (_NVLINK5,),
        7080 * _GB,
        1_800_000_000,
        _LAUNCH,
        capacity=180 * _BILLION,
    ),
    # 72 GPUs in one NVLink domain, 186 GB at 8 TB/s, 2500 TFLOP/s dense bf16 (NVIDIA GB200 NVL72
    # brief).
    "gb200-nvl72": Topology(
        "gb200-nvl72",
        (replace(_NVLINK5, ranks=72),),
        7080 * _GB,
        2_000_000_000,
        _LAUNCH,
        capacity=186 * _BILLION,
    ),
    # Fully connected by seven Infinity Fabric links of 64 GB/s a direction, 192 GB HBM3 at
    # 5.3 TB/s, 1307 TFLOP/s bf16 (AMD Instinct MI300X data sheet). Kernels reach less of both peaks
    # than NVIDIA's: 4.0 TB/s and 55 % are assumed, not measured.
    "mi300x-8": Topology(
        "mi300x-8",
        (Link(8, 9 * _US, _US, 310 * _GB, direct=True),),
        4000 * _GB,
        720_000_000,
        2_500_000,
        capacity=192 * _BILLION,
    ),
    # gloo over loopback: an all-reduce of 128 KB was measured at 2, 5 and 16 ms with 2, 4 and 8
    # processes on two cores, that is a ring of 2 (n - 1) messages of about 1 ms each.
    "cpu-gloo": Topology(
        "cpu-gloo",
        (Link(64, 100 * _US, 1000 * _US, 1 * _GB, ring=True),),
        12 * _GB,
        50_000,
        5 * _US,
    ),
}

_CLUSTER = re.compile(r"(h100|h200|b200)-ib-(\d+)x8")
_RACKS = re.compile(r"gb200-ib-(\d+)x72")
NAMES = (*_NODES, "h100-ib-2x8", "h200-ib-2x8", "b200-ib-2x8", "gb200-ib-2x72")
"""Topologies by name; of the `-ib-` ones any number of nodes may be asked for."""


def find_topology(name: str) -> Topology:
    """The topology of that name; TopologyError names those that there are."""
    if name in _NODES:
        return _NODES[name]
    if match := _CLUSTER.fullmatch(name):
        return _joined(name, _NODES[f"{match[1]}-nvlink-8"], int(match[2]))
    if match := _RACKS.fullmatch(name):
        return _joined(name, _NODES["gb200-nvl72"], int(match[1]))
    raise TopologyError(
        f"there is no topology {name!r}",
        remedy=f"use one of {', '.join(NAMES)} (any number of nodes in the -ib- ones)",
        where="target.topology",
    )


def _joined(name: str, node: Topology, nodes: int) -> Topology:
    """`nodes` such nodes, each rank with an InfiniBand port of its own."""
    outer = replace(_INFINIBAND, ranks=node.ranks * nodes)
    return replace(node, name=name, links=(*node.links, outer))
