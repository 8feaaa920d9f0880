"""Builds kernels in CUDA C++ for this machine, whose threads then do what a GPU's would."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

from torch import Tensor

import tskernels
from tskernels.launch import CudaFunction

PACKAGE = Path(tskernels.__file__).parent
_HOST = Path(__file__).parent / "kernels" / "hopper_host"


def built(function: CudaFunction, program: str, folder: Path) -> Any:
    """The function `run` of the host's `program`, compiled with the kernel and its constants.

    It returns whether no input was read before the kernel had waited for it.
    """
    library = folder / f"{function.name}{len(list(folder.iterdir()))}.so"
    macros = [f"-D{name}={value}" for name, value in function.constants]
    source = f'-DSOURCE="{PACKAGE / function.source}"'
    command = ["c++", "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", source, *macros]
    files = [f"-I{_HOST}", str(_HOST / program), "-o", str(library)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    run = ctypes.CDLL(str(library)).run
    run.restype = ctypes.c_bool
    return run


def place(tensor: Tensor) -> ctypes.c_void_p:
    """The tensor's address, as C takes it."""
    return ctypes.c_void_p(tensor.data_ptr())
