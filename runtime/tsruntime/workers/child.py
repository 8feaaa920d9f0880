"""Entry of a rank process, before torch is there: signals, a lifeline, telling of failures.

Run as `python -m tsruntime.workers.child SETTINGS`, by `tsruntime.workers.launch` only.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from tskernels.errors import TsError
from tsruntime.artifact.manifest import read_manifest, verify_files
from tsruntime.engine.messages import Failed
from tsruntime.workers.settings import PARENT_LOST_EXIT, RankSettings

_META_KERNELS = ("torch._meta_registrations", "torch.distributed._meta_registrations")
"""Modules that torch's import runs to register kernels for meta tensors, in Python.

They are for tracing, which no rank does, and take a quarter of the import: a rank has them empty.
"""


class _RankModule(Protocol):
    """What is used of `tsruntime.workers.rank`, which imports torch."""

    def run(
        self, settings: RankSettings, commands: Connection | None, verified: Callable[[], None]
    ) -> int: ...


def main(argument: str) -> int:
    """Run one rank until its work is done; the process's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    gc.disable()  # while loading, which only makes things that stay; `rank.run` turns it on again
    settings = RankSettings.from_argument(argument)
    control = Connection(settings.control)
    threading.Thread(target=_end_with_parent, args=(control,), daemon=True).start()
    commands = Connection(settings.commands) if settings.commands >= 0 else None
    for name in _META_KERNELS:
        sys.modules.setdefault(name, ModuleType(name))
    verified = ThreadPoolExecutor(1).submit(verify_share, settings).result
    try:
        rank = cast("_RankModule", importlib.import_module("tsruntime.workers.rank"))
        return rank.run(settings, commands, verified)
    except TsError as error:
        return _fail(control, commands, f"{error}")
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return _fail(control, commands, f"{type(error).__name__}: {error}")


def verify_share(settings: RankSettings) -> None:
    """Check this rank's share of the weight files: each file is read by one rank, all by some.

    On the CPU alone, which maps them: another device's memory is filled by reads, checked as they
    are made.
    """
    path = Path(settings.artifact)
    manifest = read_manifest(path)
    if manifest.target["device"] != "cpu":
        return
    share = manifest.weight_files[settings.rank :: settings.world]
    verify_files(path, manifest, share.__contains__)


def _fail(control: Connection, commands: Connection | None, message: str) -> int:
    """Tell the launcher and, on rank 0, the front end; either may be gone."""
    for connection, news in ((control, Failed(message)), (commands, [Failed(message)])):
        try:
            if connection is not None:
                connection.send(news)
        except OSError:
            pass
    return 1


def _end_with_parent(control: Connection) -> None:
    """The launcher sends nothing: the pipe becomes readable when its process is gone."""
    control.poll(None)
    os._exit(PARENT_LOST_EXIT)


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)
