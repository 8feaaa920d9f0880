"""Where ranks keep the tokens that they found, a step is launched before the last one is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from tiny_plan import Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor

from tsruntime.artifact.schema import Plan
from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Submit, TokenOutput
from tsruntime.executor.batch import ForwardBatch
from tsruntime.executor.output import StepOutput, Wait
from tsruntime.sampling.params import SamplingParams

WHOLE = whole_weights()
PROMPTS = ((3, 1, 4, 1, 5), (9, 2, 6), (5, 3, 5, 8, 9, 7))


class Keeper:
    """An executor that keeps each slot's last greedy token, as a GPU does, and runs at once."""

    keeps_tokens = True

    def __init__(self, plan: Plan) -> None:
        self._executor = make_executor(plan)
        self._last = np.full(plan.limits.max_batch, -1, np.int32)
        self.events: list[str] = []
        self.fed = 0

    @property
    def plan(self) -> Plan:
        return self._executor.plan

    def run(self, batch: ForwardBatch) -> StepOutput:
        return self.launch(batch)()

    def launch(self, batch: ForwardBatch) -> Wait:
        ids = batch.token_ids.copy()
        for row in np.flatnonzero(ids < 0).tolist():
            ids[row] = self._last[batch.slots[row]]
            self.fed += 1
        assert (ids >= 0).all()
        output = self._executor.run(dataclasses.replace(batch, token_ids=ids))
        logits = output.logits.clone()
        found = logits.argmax(-1).int().numpy()
        self._last[batch.slots] = found[: batch.num_sequences]
        self.events.append(f"launch {batch.step}")

        def wait() -> StepOutput:
            self.events.append(f"wait {batch.step}")
            return StepOutput(logits, found)

        return wait


class Served:
    """An engine over a keeper."""

    def __init__(self) -> None:
        plan = tiny_plan(Sizes(steps_in_flight=2))
        self.keeper = Keeper(plan)
        self.engine = Engine(plan, self.keeper, NoFollowers())

    def answer(self, *params: SamplingParams) -> list[list[int]]:
        for number, (prompt, asked) in enumerate(zip(PROMPTS, params, strict=False)):
            assert self.engine.submit(Submit(number, prompt, asked)) == []
        tokens: list[list[int]] = [[] for _ in params]
        while self.engine.busy:
            for event in self.engine.step():
                assert isinstance(event, TokenOutput)
                tokens[event.id].append(event.token)
        return tokens


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    with served.engine:
        yield served


def expected(prompt: tuple[int, ...], count: int) -> list[int]:
    return tiny_greedy(WHOLE, list(prompt), count)


def test_greedy_steps_are_launched_ahead_and_feed_themselves(served: Served) -> None:
    counts = (12, 5, 9)
    asked = [SamplingParams(count, temperature=0.0) for count in counts]
    found = served.answer(*asked)
    assert found == [expected(p, n) for p, n in zip(PROMPTS, counts, strict=True)]
    events = served.keeper.events
    ahead = [
        number
        for number in range(1, len(events) // 2)
        if events.index(f"launch {number + 1}") < events.index(f"wait {number}")
    ]
    assert len(ahead) >= 10
    assert served.keeper.fed >= 20


def test_a_step_waits_for_tokens_that_are_drawn_on_the_host(served: Served) -> None:
    greedy = SamplingParams(8, temperature=0.0)
    drawn = SamplingParams(8, temperature=0.0, repetition_penalty=1.3)
    found = served.answer(greedy, drawn)
    assert found[0] == expected(PROMPTS[0], 8)
    assert found[1] != expected(PROMPTS[1], 8)
    assert served.keeper.fed == 0


def test_an_answer_that_ends_early_does_not_hold_up_the_others(served: Served) -> None:
    answer = expected(PROMPTS[0], 12)
    stop = SamplingParams(12, temperature=0.0, stop_token_ids=(answer[3],))
    found = served.answer(stop, SamplingParams(12, temperature=0.0))
    assert found[0] == answer[: answer.index(answer[3]) + 1]
    assert found[1] == expected(PROMPTS[1], 12)
