"""Tokens drawn by the device's kernels, by Triton's interpreter, are the host sampler's.

In a process of its own: the interpreter replaces Triton's functions where they are defined.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "sampling_runs.py"


@pytest.mark.parametrize("settings", ["short", pytest.param("long", marks=pytest.mark.nightly)])
def test_draws_are_the_hosts(settings: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), settings], env=environment, capture_output=True, check=True
    )
    assert json.loads(done.stdout) == []
