"""The recipe's `target`: the hardware that the plan is built for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from tscompile.cost.topology import NAMES

from .section import Default, Section, Vllm

Device: TypeAlias = Literal["cpu", "cuda"]

ARCHS: Final[Mapping[Device, tuple[str, ...]]] = {
    "cpu": ("x86_64", "aarch64"),
    "cuda": ("sm_80", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"),
}
"""Architectures by device; of the CPU's the first is the default."""

TOPOLOGIES: Final[Mapping[Device, tuple[str, ...]]] = {
    "cpu": ("cpu-gloo",),
    "cuda": tuple(name for name in NAMES if name not in ("cpu-gloo", "mi300x-8")),
}
"""Named topologies by device; of the CPU's the first is the default."""


def is_topology(device: Device, name: str) -> bool:
    """Whether the device has links of that name: of a cluster's, with any number of nodes."""
    return re.sub(r"-ib-\d+x", "-ib-2x", name) in TOPOLOGIES[device]


class Target(Section):
    """Device, architecture and links."""

    device: Annotated[Device, Vllm("--device")] = "cpu"
    """What runs the plan."""

    arch: Annotated[str, Default("x86_64 on cpu; required on cuda"), Vllm("")]
    """CPU or GPU architecture: `x86_64`, `aarch64`; `sm_80`, `sm_89`, `sm_90`, `sm_100`, `sm_103`,
    `sm_120`."""

    topology: Annotated[str, Default("cpu-gloo on cpu; required on cuda"), Vllm("")]
    """Named links between the ranks: `cpu-gloo`; `h200-nvlink-8`, `h100-nvlink-8`,
    `b200-nvlink-8`, `gb200-nvl72`; several nodes over InfiniBand: `h200-ib-2x8`, `h100-ib-2x8`,
    `b200-ib-2x8`, `gb200-ib-2x72`, with any number for the 2."""
