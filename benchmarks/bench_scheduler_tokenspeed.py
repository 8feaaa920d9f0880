"""The same decode step in `tokenspeed-scheduler`, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

PAGE_SIZE = 16
STEPS = 32  # two pages


class Batch(Protocol):
    """What is read of a batch."""

    request_ids: Sequence[str]


class Planned(Protocol):
    """What is read of a plan."""

    forward: Sequence[Batch]


class Peer(Protocol):
    """What is called of its scheduler."""

    def submit_requests(self, requests: Sequence[object]) -> None:
        """Queue requests."""
        ...

    def next_execution_plan(self) -> Planned:
        """Plan a step."""
        ...

    def advance(self, event: object) -> None:
        """Apply results."""
        ...

    def prefilling_size(self) -> int:
        """Requests that are not decoding yet."""
        ...


def tokenspeed_decoding(requests: int, context: int) -> float | None:
    """Microseconds of CPU time of plan + results of one step; None if it is not installed."""
    if importlib.util.find_spec("tokenspeed_scheduler") is None:
        return None
    module = importlib.import_module("tokenspeed_scheduler")
    subject = _scheduler(module, requests, context)
    specs = [_request(module, number, context) for number in range(requests)]
    subject.submit_requests(specs)
    times: list[float] = []
    while len(times) < STEPS:
        begin = time.process_time_ns()
        rows = _step(module, subject)
        spent = (time.process_time_ns() - begin) / 1000
        if rows == requests and subject.prefilling_size() == 0:
            times.append(spent)
    return statistics.mean(times)


def _scheduler(module: ModuleType, requests: int, context: int) -> Peer:
    pages = requests * ((context + 4 * STEPS) // PAGE_SIZE + 1) + 8
    config = module.SchedulerConfig()
    config.max_batch_size = requests
    config.max_scheduled_tokens = requests * context
    config.prefix_granularity = PAGE_SIZE
    config.disable_l2_cache = True
    config.num_snapshot_pages = 1
    config.num_host_pages = 1
    config.num_device_pages = pages
    config.decode_input_tokens = 1
    config.enable_mixed_prefill_decode = True
    full = module.AttnKind.Full
    config.cache_groups = [module.CacheGroupConfig("full", PAGE_SIZE, pages, full)]
    return module.Scheduler(config)


def _request(module: ModuleType, number: int, context: int) -> object:
    request = module.RequestSpec()
    request.request_id = str(number)
    request.tokens = [number, *range(context - 1)]
    request.max_new_tokens = 4 * STEPS
    return request


def _step(module: ModuleType, subject: Peer) -> int:
    """One step whose samples are all token 1; the number of rows."""
    plan = subject.next_execution_plan()
    event = module.ExecutionEvent()
    rows = 0
    for batch in plan.forward:
        for name in batch.request_ids:
            result = module.ForwardEvent.ExtendResult()
            result.request_id = name
            result.tokens = [1]
            event.add_event(result)
            rows += 1
    subject.advance(event)
    return rows
