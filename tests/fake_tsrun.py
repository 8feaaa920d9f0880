"""`tsrun` over a fake engine, as a process of its own: run as `python fake_tsrun.py SPEC ARGS…`.

SPEC is JSON: `step_seconds`, `die_after` a number of submitted requests, and `signal_at_launch`, a
signal that comes before the event loop runs. At the end it
writes the names of forbidden modules that were imported, if any, to standard error.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fake_engine import FakeEngine, Submit, echo

import tsruntime.workers.launch
from tsruntime.cli import main

FORBIDDEN = ("torch", "numpy", "transformers", "tscompile")


def engine_for(spec: Mapping[str, float]) -> FakeEngine:
    """The engine that `spec` describes."""
    engine = FakeEngine(step_seconds=spec.get("step_seconds", 0.0))

    def reply(submit: Submit) -> list[int]:
        if len(engine.submitted) == spec.get("die_after"):
            engine.die("rank 0 (pid 42) was killed by SIGKILL")
        return list(echo(submit))

    engine.reply = reply
    return engine


if __name__ == "__main__":
    spec: dict[str, float] = json.loads(sys.argv[1])

    def fake(artifact: Path, trusted: Sequence[str]) -> FakeEngine:
        if spec.get("signal_at_launch"):
            signal.raise_signal(signal.Signals(int(spec["signal_at_launch"])))
        return engine_for(spec)

    tsruntime.workers.launch.launch = fake  # pyright: ignore[reportAttributeAccessIssue]
    try:
        main(sys.argv[2:])
    finally:
        found = [name for name in FORBIDDEN if name in sys.modules]
        if found:
            print(f"imported: {found}", file=sys.stderr)
