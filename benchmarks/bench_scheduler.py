"""CPU time of a scheduler step, the Python calls included, and the memory that its books take.

CPU time, since a scheduler shares its cores. Of steps the quickest of many runs, which is the one
that other work on the machine disturbed least; a run is as many steps as a page has tokens, so that
each request comes to the end of a page once in each. Of admissions the median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import psutil
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.bench_scheduler_tokenspeed import tokenspeed_decoding
from benchmarks.bench_scheduler_vllm import vllm_decoding
from tsschedulers import CacheGroupConfig, Config, Plan, Scheduler

PAGE_SIZE = 16
RUNS = 30
STEPS = RUNS * PAGE_SIZE
ROUNDS = 3
PROMPTS = 8
BUDGET = 1 << 18
PEERS = {"tokenspeed": tokenspeed_decoding, "vllm": vllm_decoding}


@dataclass(frozen=True, slots=True)
class Measurement:
    """A number and its goal (0: none)."""

    what: str
    value: float
    unit: str
    goal: float


def scheduler(pages: int, requests: int, longest: int, budget: int = BUDGET) -> Scheduler:
    """One group of full attention."""
    return Scheduler(
        Config(
            page_size=PAGE_SIZE,
            max_batch=requests,
            max_model_len=longest,
            token_budget=budget,
            groups=[CacheGroupConfig("full", pages + 1)],
            watermark=0.0,
        )
    )


def prompt(seed: int, length: int) -> NDArray[np.int32]:
    """Tokens that begin like no other prompt's."""
    tokens = np.arange(length, dtype=np.int32)
    tokens[0] = seed
    return tokens


def read(plan: Plan) -> int:
    """What an engine reads of every plan."""
    group = plan.groups[0]
    arrays = (
        plan.slots,
        plan.query_starts,
        plan.seq_lens,
        plan.positions,
        plan.token_ids,
        plan.samples,
        group.slot_mapping,
        group.table_deltas,
    )
    return sum(array.size for array in arrays) + len(plan.admitted) + len(plan.retracted)


def finish(subject: Scheduler, plan: Plan, *, ends: bool = False) -> None:
    """Commit a step whose samples are all token 1."""
    slots = plan.slots[plan.samples == 1]
    tokens = np.ones(slots.size, np.int32)
    subject.commit(plan.step, slots, tokens, np.full(slots.size, ends))


def prefill(subject: Scheduler) -> None:
    """Step until all that was submitted decodes."""
    while True:
        plan = subject.plan()
        finish(subject, plan)
        if plan.num_tokens == plan.num_decodes and subject.stats().waiting == 0:
            return


def fill_cache(subject: Scheduler, pages: int, length: int) -> None:
    """Run requests of `length` tokens until so many pages are cached."""
    for seed in range(-(-pages * PAGE_SIZE // length)):
        subject.submit(prompt(-1 - seed & 0x7FFFFFFF, length), 2)
        while not (plan := subject.plan()).empty:
            finish(subject, plan)


def microseconds(action: Callable[[], object]) -> float:
    """Of CPU time."""
    begin = time.process_time_ns()
    action()
    return (time.process_time_ns() - begin) / 1000


def step_time(subject: Scheduler) -> float:
    """Of plan + read + commit, one step being in flight as in the engine."""
    times: list[float] = []
    previous = subject.plan()
    slots = previous.slots.copy()
    tokens, ends = np.ones(slots.size, np.int32), np.zeros(slots.size, np.bool_)
    for _ in range(RUNS):
        begin = time.process_time_ns()
        for _ in range(PAGE_SIZE):
            plan = subject.plan()
            read(plan)
            subject.commit(previous.step, slots, tokens, ends)
            previous = plan
        times.append((time.process_time_ns() - begin) / 1000 / PAGE_SIZE)
    return min(times)


def decoding(requests: int, context: int, *, cached: bool) -> float:
    """Microseconds a step with so many requests decoding."""
    # A few prompts a step at any context, so that not all come to the end of a page at once. Those
    # that are done decode meanwhile.
    budget = requests + PROMPTS * context
    new = STEPS + requests // PROMPTS + 64
    own = requests * -(-(context + new) // PAGE_SIZE)
    spare = own if cached else 0
    subject = scheduler(own + spare, requests, context + new, budget)
    if cached:
        fill_cache(subject, own + spare, min(context, 4096))
    for seed in range(requests):
        subject.submit(prompt(seed, context), new)
    prefill(subject)
    return step_time(subject)


def admissions() -> Iterator[Measurement]:
    """A hit of 128 pages among 100,000 cached, and an admission that must evict 64 pages."""
    length = 128 * PAGE_SIZE
    subject = scheduler(100_000, 64, length + 64)
    fill_cache(subject, 110_000, length)
    hits: list[float] = []
    evictions: list[float] = []
    for index in range(200):
        # The last prompts cached; the first are the ones that were evicted.
        seed = -1 - (850 - index) & 0x7FFFFFFF
        hits.append(_admission(subject, np.append(prompt(seed, length), np.int32(1)), length))
        evictions.append(_admission(subject, prompt(10_000 + index, 1024), 0))
    yield Measurement("prefix hit of 128 pages of 100,000", statistics.median(hits), "us", 20)
    yield Measurement("admission that evicts 64 pages", statistics.median(evictions), "us", 50)


def _admission(subject: Scheduler, tokens: NDArray[np.int32], cached: int) -> float:
    subject.submit(tokens, 1)
    plans: list[Plan] = []
    spent = microseconds(lambda: plans.append(subject.plan()))
    (plan,) = plans
    assert plan.admitted[0].cached_tokens == cached, (plan.admitted[0].cached_tokens, cached)
    finish(subject, plan)
    return spent


def memory() -> Iterator[Measurement]:
    """Bytes a request of 1k tokens, and a cached page."""
    process = psutil.Process()
    subject = scheduler(300_000, 4096, 2048)
    fill_cache(subject, 2000, 1024)
    before = process.memory_info().rss
    fill_cache(subject, 200_000, 1024)
    page = (process.memory_info().rss - before) / 198_000
    yield Measurement("memory of a cached page", page, "B", 200)
    subject = scheduler(4096 * 70, 4096, 2048)
    for first in range(0, 4608, 256):  # so that the plans' buffers and all cached pages are there
        for seed in range(first, first + 256):
            subject.submit(prompt(-1 - seed & 0x7FFFFFFF, 1024), 1)
        while not (plan := subject.plan()).empty:
            finish(subject, plan)
    before = process.memory_info().rss
    for seed in range(4096):
        subject.submit(prompt(seed, 1024), 64)
    prefill(subject)
    request = (process.memory_info().rss - before) / 4096
    yield Measurement("memory of a request at 1k", request, "B", 6144)


def decodings(requests: int, goal: float) -> Iterator[Measurement]:
    """Steps at 1k context, and how a full cache and 32k change them; taken in turns."""
    rounds = [
        (
            decoding(requests, 1024, cached=False),
            decoding(requests, 1024, cached=True),
            decoding(requests, 32 * 1024, cached=False) if requests < 4096 else 0.0,
        )
        for _ in range(ROUNDS)
    ]
    base, full, long = map(min, zip(*rounds, strict=True))
    yield Measurement(f"{requests} decoding, 1k", base, "us", goal)
    yield Measurement(f"{requests} decoding, 1k, cached pool", full / base, "x", 1.5)
    if long > 0:
        yield Measurement(f"{requests} decoding, 32k", long / base, "x", 1.2)
    for name, decode in PEERS.items():
        peer = decode(requests, 1024) if requests <= 1024 else None
        if peer is not None:
            yield Measurement(f"{requests} decoding, 1k, {name}", peer, "us", 0)


def measurements() -> Iterator[Measurement]:
    """All of them, in the order of the table."""
    yield from memory()
    for requests, goal in ((64, 15.0), (1024, 100.0), (4096, 400.0)):
        yield from decodings(requests, goal)
    yield from admissions()


def main() -> None:
    """Print all measurements beside their goals."""
    table = Table("scheduler", "measured", "goal", title="CPU of the scheduler")
    for one in track(measurements(), description="measuring", transient=True):
        goal = f"{one.goal:g} {one.unit}" if one.goal else ""
        table.add_row(one.what, f"{one.value:.4g} {one.unit}", goal)
    Console().print(table)


if __name__ == "__main__":
    main()
