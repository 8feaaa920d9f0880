"""Launches one process a rank and watches them; needs no torch in the launching process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType

from tsruntime.artifact.serving import load_serving
from tsruntime.engine.messages import Event, Failed, Ready, Shutdown
from tsruntime.workers.errors import RankFailed
from tsruntime.workers.settings import (
    PEER_LOST_EXIT,
    RankSettings,
    threads_per_rank,
    usable_cores,
)

_CAUSE_SECONDS = 1.0
"""How long to wait, when a rank ended for want of another, for that other one to be seen."""

_STDERR = 2
"""Where everything goes that a rank prints: the launcher's standard output is for data."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """One rank's process and the launcher's end of its control pipe."""

    index: int
    process: subprocess.Popen[bytes]
    control: Connection


class Workers:
    """The rank processes. They end when this process does, however it ends."""

    def __init__(self, ranks: tuple[_Rank, ...], connection: Connection, rendezvous: str) -> None:
        self._ranks = ranks
        self._rendezvous = rendezvous
        self._failure: str | None = None
        self.connection = connection
        """Rank 0's engine: lists of commands go in, lists of events come out."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(grace=5.0)

    @property
    def sentinels(self) -> list[int]:
        """A file descriptor a rank that turns readable when the rank fails or ends.

        Call `poll_failure` then. They stay readable.
        """
        return [rank.control.fileno() for rank in self._ranks]

    @property
    def pids(self) -> list[int]:
        """Process ids by rank."""
        return [rank.process.pid for rank in self._ranks]

    def wait_ready(self, timeout: float | None = None) -> Ready:
        """Block until the engine is ready; `RankFailed` if a rank fails, or after `timeout` s."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.connection.poll(0):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise RankFailed(f"the engine was not ready after {timeout} s")
            wait([self.connection, *self.sentinels], left)
            if failure := self.poll_failure():
                raise RankFailed(failure)
        return self._first_event()

    def poll_failure(self) -> str | None:
        """One line naming the rank that failed and how, or None while nothing is wrong.

        A rank's own catalogued error is quoted whole, with the line of its remedy.
        On a failure the other ranks are ended before this returns. A rank that ended by itself
        with exit code 0, after a shutdown, is no failure.
        """
        if self._failure is None:
            self._failure = self._find_failure()
            if self._failure is not None:
                self._kill()
        return self._failure

    def stop(self, grace: float) -> None:
        """End every rank at once: by request, and after `grace` seconds by force.

        To let live requests finish, send `Shutdown(drain=True)` before, and wait for their events.
        """
        with suppress(OSError):  # rank 0 may have ended already
            self.connection.send([Shutdown(drain=False)])
        end = time.monotonic() + grace
        for rank in self._ranks:
            try:
                rank.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        self._kill()
        self.connection.close()
        for rank in self._ranks:
            rank.control.close()
        if self._rendezvous:
            shutil.rmtree(self._rendezvous, ignore_errors=True)

    def _first_event(self) -> Ready:
        try:
            events: list[Event] = self.connection.recv()
        except EOFError:
            raise RankFailed(self.poll_failure() or "rank 0 ended before it was ready") from None
        match events[0]:
            case Ready() as ready:
                return ready
            case Failed(message):
                raise RankFailed(self.poll_failure() or message)
            case other:
                raise RankFailed(f"rank 0 spoke before it was ready: {other}")

    def _kill(self) -> None:
        for rank in self._ranks:
            if rank.process.poll() is None:
                rank.process.kill()
        for rank in self._ranks:
            rank.process.wait()

    def _find_failure(self) -> str | None:
        """The first rank that failed by itself, or else one that lost touch with the others."""
        end = time.monotonic() + _CAUSE_SECONDS
        while True:
            lines = [line for rank in self._ranks if (line := _own_failure(rank))]
            lost = [r.index for r in self._ranks if r.process.poll() == PEER_LOST_EXIT]
            if lines or not lost:
                return lines[0] if lines else None
            if time.monotonic() >= end:
                return f"rank {lost[0]} lost contact with the other ranks"
            time.sleep(0.01)


def launch(artifact: Path, trusted: Sequence[str] = ()) -> Workers:
    """Start the ranks of the artifact at `artifact`; they load it and then report `Ready`.

    Of kernel packs they load those whose digest is `trusted`.
    """
    world = load_serving(artifact).world
    started = time.monotonic()
    rendezvous = tempfile.mkdtemp(prefix="tsrun-") if world > 1 else ""
    connection, commands = Pipe(duplex=True)
    threads = threads_per_rank(world, usable_cores(), os.environ)
    environment = _environment(threads, os.environ)
    ranks: list[_Rank] = []
    for index in range(world):
        control, far = Pipe(duplex=True)
        inherited = [far, commands] if index == 0 else [far]
        settings = RankSettings(
            artifact=str(artifact.resolve()),
            rank=index,
            world=world,
            threads=threads,
            rendezvous=rendezvous,
            control=far.fileno(),
            commands=commands.fileno() if index == 0 else -1,
            started=started,
            trusted=tuple(trusted),
        )
        ranks.append(_Rank(index, _spawn(settings, inherited, environment), control))
        for end in inherited:
            end.close()
    return Workers(tuple(ranks), connection, rendezvous)


def _spawn(
    settings: RankSettings, inherited: list[Connection], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A fresh interpreter in a process group of its own, so that Ctrl-C reaches the launcher only.

    Not `multiprocessing`'s spawn: that one imports the caller's `__main__` again in every rank.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tsruntime.workers.child", settings.to_argument()],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
        env=environment,
        pass_fds=[end.fileno() for end in inherited],
        process_group=0,
    )


def _environment(threads: int, inherited: Mapping[str, str]) -> Mapping[str, str]:
    """The ranks' environment: explicit threads, and gloo on the loopback interface."""
    loopback = next((n for _, n in socket.if_nameindex() if n in ("lo", "lo0")), None)
    gloo = {"GLOO_SOCKET_IFNAME": loopback} if loopback else {}
    return {**gloo, **inherited, "OMP_NUM_THREADS": str(threads)}


def _own_failure(rank: _Rank) -> str | None:
    """How `rank` failed, unless it is well, has ended well, or just lost touch with the others."""
    message = _told(rank)
    if message is not None:
        return f"rank {rank.index} failed: {message}"
    code = rank.process.poll()
    if code is None or code in (0, PEER_LOST_EXIT):
        return None
    if code < 0:
        return f"rank {rank.index} (pid {rank.process.pid}) was killed by {_signal_name(-code)}"
    return f"rank {rank.index} (pid {rank.process.pid}) exited with code {code}"


def _told(rank: _Rank) -> str | None:
    """What the rank said of its failure. Where its pipe is closed, it is about to be gone."""
    try:
        news: object = rank.control.recv() if rank.control.poll(0) else None
    except (EOFError, OSError):
        with suppress(subprocess.TimeoutExpired):
            rank.process.wait(_CAUSE_SECONDS)
        return None
    return news.message if isinstance(news, Failed) else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
