"""Rank 0's loop over a pipe, and the channel on which the other ranks follow it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from ranks_in_threads import TIMEOUT, on_ranks
from tiny_plan import Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

from tsruntime.artifact.weights import WeightStore
from tsruntime.engine.channel import INLINE_WORDS, Channel, NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.loop import Loop, follow
from tsruntime.engine.messages import (
    Abort,
    AskStats,
    EngineStats,
    Event,
    Fork,
    PagePool,
    Refused,
    Shutdown,
    Submit,
    TokenOutput,
)
from tsruntime.executor.batch import ForwardBatch, GroupBatch
from tsruntime.executor.collectives import connect, connect_mesh
from tsruntime.executor.executor import Executor
from tsruntime.sampling.params import SamplingParams

WHOLE = whole_weights()


class Counted(NoFollowers):
    """Counts what the other ranks are told."""

    def __init__(self) -> None:
        self.beats = self.stops = 0

    def heartbeat(self) -> None:
        self.beats += 1

    def stop(self) -> None:
        self.stops += 1


class Served:
    """A loop on a thread, and the front end's side of its pipe."""

    def __init__(self, heartbeat: float = 0.05) -> None:
        self.pipe, self.far = Pipe()
        self.followers = Counted()
        plan = tiny_plan()
        engine = Engine(plan, make_executor(plan), self.followers)
        loop = Loop(engine, self.far, self.followers, heartbeat)
        self.thread = threading.Thread(target=loop.run)
        self.thread.start()

    def events(self, count: int) -> list[Event]:
        got = list[Event]()
        while len(got) < count:
            assert self.pipe.poll(10), f"{len(got)} of {count} events"
            got += self.pipe.recv()
        return got

    def ended(self) -> bool:
        self.thread.join(10)
        return not self.thread.is_alive()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    if served.thread.is_alive():
        served.pipe.send([Shutdown(drain=False)])
        assert served.ended()


def submit(id_: int, tokens: tuple[int, ...], count: int) -> Submit:
    return Submit(id_, tokens, SamplingParams(max_tokens=count, temperature=0.0))


def test_commands_go_in_and_tokens_come_out(served: Served) -> None:
    served.pipe.send([submit(0, (1, 2), 5), submit(1, (), 5), submit(2, (3,), 5)])
    events = served.events(11)
    assert [e.id for e in events if isinstance(e, Refused)] == [1]
    for id_, prompt in ((0, [1, 2]), (2, [3])):
        got = [e.token for e in events if isinstance(e, TokenOutput) and e.id == id_]
        assert got == tiny_greedy(WHOLE, prompt, 5)


def test_the_loop_forks_and_reports(served: Served) -> None:
    params = SamplingParams(max_tokens=5, temperature=0.0)
    served.pipe.send([submit(0, (1, 2), 5), Fork(1, 0, params), AskStats()])
    first, *events = served.events(11)
    assert first == EngineStats(0, 2, 0, 0, 0, 0, 0, (PagePool("full", 32, 32, 0),), ())
    for id_ in (0, 1):
        got = [e.token for e in events if isinstance(e, TokenOutput) and e.id == id_]
        assert got == tiny_greedy(WHOLE, [1, 2], 5)
    served.pipe.send([AskStats()])
    (last,) = served.events(1)
    # the fork found one of its two tokens; of the equal answers one page of 4 stays in the cache
    assert last == EngineStats(0, 0, 0, 4, 1, 0, 0, (PagePool("full", 32, 31, 1),), ())


def test_one_step_sends_one_list(served: Served) -> None:
    served.pipe.send([submit(0, (1, 2), 3), submit(1, (4, 2), 3)])
    sent = [served.pipe.recv() for _ in range(3)]
    assert [[event.id for event in events] for events in sent] == [[0, 1]] * 3


def test_draining_finishes_what_is_live_and_then_ends(served: Served) -> None:
    served.pipe.send([submit(0, (1, 2), 40), Shutdown(drain=True)])
    events = served.events(40)
    assert [e.token for e in events if isinstance(e, TokenOutput)] == tiny_greedy(WHOLE, [1, 2], 40)
    assert served.ended()
    assert served.followers.stops == 1


def test_shutdown_without_draining_ends_at_once(served: Served) -> None:
    served.pipe.send([submit(0, (1, 2), 60), Shutdown(drain=False)])
    assert served.ended()
    assert served.followers.stops == 1
    assert not served.pipe.poll(0)


def test_a_front_end_that_is_gone_ends_the_loop(served: Served) -> None:
    served.pipe.send([submit(0, (1, 2), 60)])
    served.events(1)
    served.pipe.close()
    assert served.ended()
    assert served.followers.stops == 1


def test_an_aborted_request_says_nothing_more(served: Served) -> None:
    served.pipe.send([submit(0, (1, 2), 60), Abort(0), submit(1, (5,), 2)])
    events = served.events(2)
    assert [e.id for e in events if isinstance(e, TokenOutput)] == [1, 1]


def test_an_idle_loop_sends_heartbeats_and_takes_no_cpu(served: Served) -> None:
    time.sleep(0.1)
    before, start = time.process_time(), served.followers.beats
    time.sleep(1.0)
    assert 10 <= served.followers.beats - start <= 21
    assert time.process_time() - before < 0.3


def batch_of(tokens: int) -> ForwardBatch:
    row = np.arange(tokens, dtype=np.int32)
    none = np.empty(0, np.int32)
    group = GroupBatch(row, none.reshape(0, 3), none.reshape(0, 2), none)
    starts = np.array([0, tokens], np.int32)
    return ForwardBatch(tokens, 1, row[:1], row[:1], starts, row, row, (group,))


def test_the_channel_carries_batches_of_any_size_past_heartbeats() -> None:
    sizes = (1, 10, INLINE_WORDS // 3 - 10, INLINE_WORDS, 5000, 2)

    def work(rank: int, store: Store) -> list[int]:
        channel = Channel(connect(store, "step", rank, 2, TIMEOUT))
        if rank == 0:
            for size in sizes:
                channel.heartbeat()
                channel.step(batch_of(size))
            channel.stop()
            return []
        got = list[int]()
        while (batch := channel.receive()) is not None:
            assert np.array_equal(batch.token_ids, np.arange(batch.step))
            got.append(batch.num_tokens)
        return got

    assert on_ranks(2, work)[1] == list(sizes)


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(world=3, pages=17),
        Sizes(world=3, pages=17, host_pages=24),
        Sizes(world=3, pages=17, host_pages=24, steps_in_flight=2),
    ],
    ids=["recomputing", "storing", "storing, two steps"],
)
def test_three_ranks_follow_one_engine(sizes: Sizes) -> None:
    plan = tiny_plan(sizes)
    prompts = {i: [i + 1, 2 * i, 5] * (i + 1) for i in range(6)}

    def work(rank: int, store: Store) -> dict[int, list[int]]:
        weights = WeightStore(Path("unused"), plan, rank)
        executor = Executor(plan, rank, weights, connect_mesh(plan, rank, store, TIMEOUT))
        channel = Channel(connect(store, "step", rank, 3, TIMEOUT))
        if rank > 0:
            follow(executor, channel)
            return {}
        got = dict[int, list[int]]()
        with Engine(plan, executor, channel) as engine:
            for id_, prompt in prompts.items():
                engine.submit(submit(id_, tuple(prompt), 12))
            while engine.busy:
                for event in engine.step():
                    assert isinstance(event, TokenOutput)
                    got.setdefault(event.id, []).append(event.token)
        channel.stop()
        assert engine.stats.retractions > 0
        return got

    got = on_ranks(3, work)[0]
    assert got == {i: tiny_greedy(WHOLE, prompt, 12) for i, prompt in prompts.items()}


def test_heartbeats_keep_idle_ranks_waiting_beyond_their_patience() -> None:
    plan, patience = tiny_plan(), timedelta(seconds=1)

    def work(rank: int, store: Store) -> list[int]:
        channel = Channel(connect(store, "step", rank, 2, patience))
        executor = make_executor(plan)
        if rank > 0:
            follow(executor, channel)
            return []
        pipe, far = Pipe()
        loop = Loop(Engine(plan, executor, channel), far, channel, heartbeat=0.2)
        thread = threading.Thread(target=loop.run)
        thread.start()
        time.sleep(2.0)
        pipe.send([submit(0, (1, 2), 3), Shutdown(drain=True)])
        thread.join(10)
        events = [event for _ in range(3) for event in pipe.recv()]
        return [event.token for event in events]

    assert on_ranks(2, work)[0] == tiny_greedy(WHOLE, [1, 2], 3)
