"""The recipe's `target`: the hardware that the plan is built for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from .section import Default, Section, Vllm

Device: TypeAlias = Literal["cpu", "cuda"]

ARCHS: Final[Mapping[Device, tuple[str, ...]]] = {
    "cpu": ("x86_64", "aarch64"),
    "cuda": ("sm_80", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"),
}
"""Architectures by device; of the CPU's the first is the default."""

TOPOLOGIES: Final[Mapping[Device, tuple[str, ...]]] = {
    "cpu": ("cpu-gloo",),
    "cuda": ("h200-nvlink-8", "h100-nvlink-8", "b200-nvlink-8", "gb200-nvl72"),
}
"""Named topologies by device; of the CPU's the first is the default."""


class Target(Section):
    """Device, architecture and links."""

    device: Annotated[Device, Vllm("--device")] = "cpu"
    """What runs the plan."""

    arch: Annotated[str, Default("x86_64 on cpu; required on cuda"), Vllm("")]
    """CPU or GPU architecture: `x86_64`, `aarch64`; `sm_80`, `sm_89`, `sm_90`, `sm_100`, `sm_103`,
    `sm_120`."""

    topology: Annotated[str, Default("cpu-gloo on cpu; required on cuda"), Vllm("")]
    """Named links between the ranks: `cpu-gloo`; `h200-nvlink-8`, `h100-nvlink-8`,
    `b200-nvlink-8`, `gb200-nvl72`."""
