"""Jobs side by side in forked processes: each asks one question, which is answered for all at once.

Processes and not threads, since a job is Python, and holds the interpreter's lock all the time.
Forked and not spawned, since a job reads a whole draft and the tables of the search, which a fork
inherits; what it asks and gives is small, and is pickled. A fork copies only the thread that asks
for it, and locks that others hold stay locked: a process of several threads does its jobs alone.
Threads that numerical libraries keep idle hold none; of theirs a job uses numpy, which stops them
before a fork, and no op of torch.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from copyreg import dispatch_table
from dataclasses import dataclass, fields
from functools import partial
from io import BytesIO
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from operator import attrgetter
from typing import Generic, TypeAlias, TypeVar, cast

import torch

from tscompile.ir.draft import DraftValue
from tscompile.ir.errors import LostWorkerError
from tscompile.ir.graph import Node
from tskernels.errors import TsError
from tskernels.schema import TensorType

A = TypeVar("A")
Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")

Job: TypeAlias = Callable[[], Generator[Q, A, R]]
"""Yields its question once, is sent the answer, and returns its result."""

LEAST_WORK = 800
"""Nodes times mesh axes from which on helpers pay: a fork takes as long as the search of fifty."""


def affordable(jobs: int, work: int) -> int:
    """How many processes do `jobs` soonest, this one counted; `work` is in nodes times mesh axes.

    One where there is little to do, where a fork is not safe, or in a process that is itself one of
    several which share the machine.
    """
    alone = threading.active_count() == 1 and multiprocessing.parent_process() is None
    if sys.platform != "linux" or not alone or work < LEAST_WORK:
        return 1
    return max(1, min(jobs, len(os.sched_getaffinity(0))))


def side_by_side(
    jobs: Sequence[Job[Q, A, R]], answer: Callable[[list[Q]], A], workers: int
) -> tuple[A, list[R]]:
    """The answer to the questions of all jobs, and what each job returned, both in order.

    `workers` processes, this one counted, take every so manieth job; what comes out does not depend
    on how many they are. Raises what the first job in order raised, and LostWorkerError where a
    process ended before its jobs were done.
    """
    shares = [
        _Share(jobs, range(first, len(jobs), workers)) for first in range(min(workers, len(jobs)))
    ]
    if not shares:
        return answer([]), []
    with _helped(shares[:-1]) as helpers:
        own = shares[-1]
        asked = _joined([own.ask(), *(helper.receive() for helper in helpers)])
        given = answer(asked)
        for helper in helpers:
            helper.send(given)
        return given, _joined([own.finish(given), *(helper.receive() for helper in helpers)])


def checked(check: Callable[[], None], make: Callable[[], T], workers: int) -> T:
    """What `make` gives, while another process, if there are two `workers`, sees what `check` says.

    Raises what `check` raises, or else what `make` does.
    """

    def checking() -> Generator[None, None, T | None]:
        check()
        yield
        return None

    def making() -> Generator[None, None, T | None]:
        made = make()
        yield
        return made

    _, (_, made) = side_by_side((checking, making), lambda _: None, workers)
    return cast("T", made)


@dataclass(frozen=True, slots=True)
class _Failed:
    """The first job of a share that raised, and what."""

    job: int
    error: Exception


_Outcome: TypeAlias = dict[int, T] | _Failed


def _joined(outcomes: Sequence[_Outcome[T]]) -> list[T]:
    """Of all shares together, by the jobs' numbers."""
    failed = [outcome for outcome in outcomes if isinstance(outcome, _Failed)]
    if failed:
        raise min(failed, key=lambda one: one.job).error
    found = {n: one for done in outcomes if isinstance(done, dict) for n, one in done.items()}
    return [found[number] for number in range(len(found))]


class _Share(Generic[Q, A, R]):
    """The jobs of one process, one after the other as far as the first that fails."""

    def __init__(self, jobs: Sequence[Job[Q, A, R]], numbers: Sequence[int]) -> None:
        self._jobs, self._numbers = jobs, numbers
        self._running: dict[int, Generator[Q, A, R]] = {}

    def ask(self) -> _Outcome[Q]:
        """The questions."""
        return self._each(self._asked)

    def finish(self, answer: A) -> _Outcome[R]:
        """The results, once the questions are answered."""
        return self._each(lambda number: self._finished(number, answer))

    def _each(self, step: Callable[[int], T]) -> _Outcome[T]:
        found: dict[int, T] = {}
        for number in self._numbers:
            try:
                found[number] = step(number)
            except Exception as error:
                return _Failed(number, error)
        return found

    def _asked(self, number: int) -> Q:
        self._running[number] = self._jobs[number]()
        return next(self._running[number])

    def _finished(self, number: int, answer: A) -> R:
        try:
            self._running.pop(number).send(answer)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("a job asks once")


@dataclass(frozen=True, slots=True)
class _Helper:
    """A forked process, and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def send(self, message: object) -> None:
        """Raises LostWorkerError where it has ended."""
        try:
            self.pipe.send(message)
        except OSError:
            raise self._lost() from None

    def receive(self) -> _Outcome[T]:
        """Raises LostWorkerError where it has ended."""
        try:
            return pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise self._lost() from None

    def _lost(self) -> LostWorkerError:
        self.process.join()
        code = self.process.exitcode or 0
        return LostWorkerError(
            f"a process that compiled some of the programs ended by "
            f"{f'signal {-code}' if code < 0 else f'itself with status {code}'}",
            remedy="see whether the machine ran out of memory; with one core (`taskset -c 0`) all "
            "programs are compiled in one process",
        )


@contextmanager
def _helped(shares: Sequence[_Share[Q, A, R]]) -> Generator[list[_Helper]]:
    """A process for each share; none of them outlives the block."""
    context = multiprocessing.get_context("fork")
    helpers: list[_Helper] = []
    try:
        for share in shares:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(share, theirs), daemon=True)
            process.start()
            theirs.close()  # theirs alone, so that its end is the end of the pipe
            helpers.append(_Helper(process, ours))
        yield helpers
    finally:
        for helper in helpers:
            helper.pipe.close()
            helper.process.kill()
            helper.process.join()
            helper.process.close()


def _serve(share: _Share[Q, A, R], pipe: Connection) -> None:
    """What a forked process does; it lives too shortly for the collector of cycles.

    Who interrupts the compiler from a terminal interrupts all its processes; the first ends these.
    """
    torch.set_num_threads(1)  # its pool, where there was one, is not here
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    try:
        for outcome in _outcomes(share, pipe):
            pipe.send_bytes(_pickled(outcome))
    except (EOFError, OSError):
        return  # nobody waits for it any more


def _outcomes(share: _Share[Q, A, R], pipe: Connection) -> Iterator[_Outcome[Q] | _Outcome[R]]:
    yield share.ask()
    yield share.finish(pipe.recv())


def _reduced(
    kind: type[object], parts: Callable[[object], tuple[object, ...]], one: object
) -> tuple[type[object], tuple[object, ...]]:
    return kind, parts(one)


_REDUCED = dispatch_table | {
    kind: partial(_reduced, kind, attrgetter(*(field.name for field in fields(kind))))
    for kind in (DraftValue, Node, TensorType)
}
"""How to pickle what there is most of: by the constructor, not field by field."""


def _pickled(outcome: object) -> bytes:
    """An outcome as bytes; an error that a person would not expect with where it was raised."""
    if isinstance(outcome, _Failed) and not isinstance(outcome.error, TsError):
        outcome.error.add_note("".join(traceback.format_exception(outcome.error)))
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCED
    pickler.dump(outcome)
    return buffer.getvalue()
