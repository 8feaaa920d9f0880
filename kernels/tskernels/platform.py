"""The machine that kernels run on: its architecture, and the threads that they may use."""

from __future__ import annotations

import platform

import torch

from tskernels import _cpu


def cpu_arch() -> str:
    """The CPU's architecture as capabilities name it: `x86_64`, `aarch64`."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def set_num_threads(threads: int) -> None:
    """Let torch's and the native kernels use `threads` threads each, the caller included.

    Native kernels use one until this is called; a process made by fork starts with one again.
    """
    torch.set_num_threads(threads)
    _cpu.set_num_threads(threads)
