"""Jobs in several processes: the same results, errors and plans as in one, and no process left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial

import psutil
import pytest
from compile_requests import tiny_model_config, tiny_request

from tscompile.errors import Problem, RecipeError
from tscompile.ir.errors import LostWorkerError, NoStrategyError, PolicyError
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.repeats import UnlikeLayersError
from tscompile.ir.request import CompileRequest, PolicyName
from tscompile.passes import propagate_placements as placing
from tscompile.passes.pipeline import compile_plan
from tscompile.search.workers import LEAST_WORK, Job, affordable, checked, side_by_side

Numbers = Job[int, int, tuple[int, int]]


def job(number: int) -> Generator[int, int, tuple[int, int]]:
    """Asks with its number; gives the answer plus its number, and where it ran."""
    process = os.getpid()
    answer = yield number
    assert os.getpid() == process
    return answer + number, process


def jobs(count: int, **others: Callable[[], Generator[int, int, tuple[int, int]]]) -> list[Numbers]:
    """Plain jobs, but for those that `others` names: `at3` is the fourth."""
    return [others.get(f"at{number}", partial(job, number)) for number in range(count)]


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Generator[None]:
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 2), (3, 3), (8, 5)])
def test_every_job_is_asked_once_and_answered_alike(workers: int, processes: int) -> None:
    asked: list[list[int]] = []

    def total(questions: list[int]) -> int:
        asked.append(questions)
        return sum(questions)

    answer, results = side_by_side(jobs(5), total, workers)
    assert (answer, asked) == (10, [[0, 1, 2, 3, 4]])
    assert [result for result, _ in results] == [10, 11, 12, 13, 14]
    ran = [process for _, process in results]
    assert len(set(ran)) == processes
    assert os.getpid() in ran


def test_no_job_needs_no_process() -> None:
    assert side_by_side(jobs(0), sum, 4) == (0, [])


def refusing(error: Exception, *, late: bool) -> Generator[int, int, tuple[int, int]]:
    if late:
        yield 0
    raise error


REFUSALS: Sequence[Exception] = (
    NoStrategyError("nothing fits", remedy="fit it", where="model.layers.1"),
    RecipeError("a.yaml", (Problem("a.yaml:1", "no", "yes"), Problem("a.yaml:2", "so", "and so"))),
    UnlikeLayersError(),
    ZeroDivisionError("by zero"),
)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_first_job_that_fails_is_heard(workers: int, error: Exception, late: bool) -> None:
    """The third job of five, in each share in turn; the fourth fails with something else."""
    other = partial(refusing, KeyError("later"), late=late)
    some = jobs(5, at2=partial(refusing, error, late=late), at3=other)
    with pytest.raises(type(error)) as refusal:
        side_by_side(some, sum, workers)
    assert str(refusal.value) == str(error)
    keys = ("message", "remedy", "where", "problems")
    for key in keys:
        assert getattr(refusal.value, key, None) == getattr(error, key, None)


def test_a_defect_in_another_process_says_where() -> None:
    some = jobs(2, at0=partial(refusing, ZeroDivisionError("by zero"), late=False))
    with pytest.raises(ZeroDivisionError) as defect:
        side_by_side(some, sum, 2)
    assert "in refusing" in "".join(defect.value.__notes__)


def ending(number: int, late: bool) -> Generator[int, int, tuple[int, int]]:
    if late:
        yield 0
    os.kill(os.getpid(), number)
    yield 0
    return 0, 0


@pytest.mark.parametrize("late", [False, True])
def test_a_process_that_is_killed_is_one_clear_error(late: bool) -> None:
    some = jobs(4, at1=partial(ending, signal.SIGKILL, late))
    with pytest.raises(LostWorkerError) as lost:
        side_by_side(some, sum, 3)
    assert "signal 9" in lost.value.message
    assert "memory" in lost.value.remedy


def sleeping() -> Generator[int, int, tuple[int, int]]:
    time.sleep(1000)
    yield 0
    return 0, 0


def interrupted() -> Generator[int, int, tuple[int, int]]:
    yield 0
    raise KeyboardInterrupt


def test_who_interrupts_does_not_wait_for_the_others() -> None:
    def stop(questions: list[int]) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side(jobs(4), stop, 4)
    with pytest.raises(KeyboardInterrupt):
        side_by_side(jobs(3, at2=interrupted), sum, 3)

    def at_once() -> Generator[int, int, tuple[int, int]]:
        raise KeyboardInterrupt
        yield 0

    with pytest.raises(KeyboardInterrupt):
        side_by_side([sleeping, at_once], sum, 2)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_made_is_checked_beside(workers: int) -> None:
    def refuse() -> None:
        raise NoStrategyError("first", remedy="none")

    def fail() -> int:
        raise NoStrategyError("second", remedy="none")

    made = [object()]
    assert checked(lambda: None, lambda: made, workers) is made
    with pytest.raises(NoStrategyError, match="first"):
        checked(refuse, fail, workers)
    with pytest.raises(NoStrategyError, match="second"):
        checked(lambda: None, fail, workers)


ALONE = """
import os, threading
from tscompile.search.workers import LEAST_WORK, affordable
assert affordable(10_000, LEAST_WORK) == len(os.sched_getaffinity(0))
assert affordable(1, LEAST_WORK) == 1
assert affordable(0, LEAST_WORK) == 1
assert affordable(8, LEAST_WORK - 1) == 1
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()
try:
    assert affordable(8, LEAST_WORK) == 1
finally:
    done.set()
    thread.join()
"""


def test_few_jobs_little_work_and_other_threads_stay_in_one_process() -> None:
    """In a process of its own: threads that other tests leave here would count."""
    subprocess.run([sys.executable, "-c", ALONE], check=True, timeout=120)


def _tell(found: multiprocessing.SimpleQueue[int]) -> None:
    found.put(affordable(8, LEAST_WORK))


def test_a_process_of_a_pool_starts_no_others() -> None:
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    process = context.Process(target=_tell, args=(found,))
    process.start()
    assert found.get() == 1
    process.join()


def in_processes(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    def as_many(jobs: int, work: int) -> int:
        return workers

    monkeypatch.setattr(placing, "affordable", as_many)


def _request(**changes: object) -> CompileRequest:
    config = tiny_model_config("deepseek")
    return tiny_request(config, ParallelSizes(2, 1, 2, 1, 2), **changes)


def test_the_plan_is_the_same_for_any_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    for workers in (1, 2, 8):
        in_processes(monkeypatch, workers)
        result = compile_plan(_request())
        found.append(result.text + repr(result))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refusal_of_the_search_is_the_same(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    in_processes(monkeypatch, workers)
    sizes = ParallelSizes(4, 2, 4, 2, 2)
    asked = tiny_request(tiny_model_config("qwen3_moe"), sizes, policy=PolicyName.VLLM)
    with pytest.raises(PolicyError) as refusal:
        compile_plan(asked)
    assert refusal.value.message.startswith("vLLM")
