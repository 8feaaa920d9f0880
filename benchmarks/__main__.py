"""`make bench`: run every benchmark, or those named on the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

NAMES = ("kernels", "scheduler", "decode", "compile")
"""Modules `benchmarks.bench_<name>`, each with a `main()` that prints its tables."""


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        run: Callable[[], None] = importlib.import_module(f"benchmarks.bench_{name}").main
        run()


if __name__ == "__main__":
    main()
