"""Every Triton solution against its op's reference, by Triton's interpreter on the CPU.

In a process of its own: the interpreter replaces Triton's functions where they are defined.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "triton_runs.py"


def interpreted(dtype: str, step: int) -> dict[str, str]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), dtype, str(step)],
        env=environment,
        capture_output=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        ("float32", 1),
        ("bfloat16", 3),
        pytest.param("bfloat16", 1, marks=pytest.mark.nightly),
        pytest.param("float16", 1, marks=pytest.mark.nightly),
    ],
)
def test_agrees_with_the_reference_where_interpreted(dtype: str, step: int) -> None:
    found = interpreted(dtype, step)
    assert len(found) > 90 // step
    assert {name: what for name, what in found.items() if what} == {}
