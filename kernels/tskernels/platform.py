"""The machine that kernels run on: its architecture, and the threads that they may use."""

from __future__ import annotations

import platform


def cpu_arch() -> str:
    """The CPU's architecture as capabilities name it: `x86_64`, `aarch64`."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
