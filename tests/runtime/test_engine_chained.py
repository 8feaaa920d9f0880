"""Where the device draws tokens, a step is launched before the last one's are known here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from drawing_executor import DrawingExecutor
from sampling_runs import RULES
from tiny_plan import VOCAB, Sizes, tiny_greedy, tiny_plan, whole_weights
from tiny_rows import make_executor

from tsruntime.engine.channel import NoFollowers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Refused, Submit, TokenOutput
from tsruntime.executor.output import Runner
from tsruntime.sampling.params import LOGIT_BIAS_MOST, SamplingParams

WHOLE = whole_weights()
PROMPTS = ((3, 1, 4, 1, 5), (9, 2, 6), (5, 3, 5, 8, 9, 7), (2, 2, 7), (11, 4))
PLAN = tiny_plan(Sizes(steps_in_flight=2))


def answers(executor: Runner, asked: Sequence[SamplingParams]) -> list[list[TokenOutput]]:
    """The outputs of each request, of which all run together."""
    with Engine(executor.plan, executor, NoFollowers()) as engine:
        for number, params in enumerate(asked):
            prompt = PROMPTS[number % len(PROMPTS)]
            assert engine.submit(Submit(number, prompt, params)) == []
        outputs: list[list[TokenOutput]] = [[] for _ in asked]
        while engine.busy:
            for event in engine.step():
                assert isinstance(event, TokenOutput)
                outputs[event.id].append(event)
    return outputs


def tokens_of(outputs: Sequence[TokenOutput]) -> list[int]:
    return [output.token for output in outputs]


def expected(prompt: tuple[int, ...], count: int) -> list[int]:
    return tiny_greedy(WHOLE, list(prompt), count)


def launched_ahead(executor: DrawingExecutor) -> int:
    """Steps that were launched before the one before was waited for."""
    events = executor.events
    numbers = [int(event.removeprefix("launch ")) for event in events if event.startswith("launch")]
    return sum(
        events.index(f"launch {after}") < events.index(f"wait {before}")
        for before, after in pairwise(numbers)
    )


def test_greedy_steps_are_launched_ahead_and_feed_themselves() -> None:
    counts = (12, 5, 9)
    executor = DrawingExecutor(PLAN)
    found = answers(executor, [SamplingParams(count, temperature=0.0) for count in counts])
    for outputs, prompt, count in zip(found, PROMPTS, counts, strict=False):
        assert tokens_of(outputs) == expected(prompt, count)
    assert launched_ahead(executor) >= 10
    assert executor.fed >= 20
    assert executor.rebuilt == 0


def rules() -> list[SamplingParams]:
    """Every kind of rule, of tokens that the tiny model has."""
    tiny = SamplingParams(14, seed=31, logit_bias=((3, 2.5), (VOCAB - 1, -8.0)), logprobs=2)
    ends = SamplingParams(14, seed=5, min_tokens=6, stop_token_ids=tuple(range(8)), top_p=0.9)
    fits = [r for r in RULES if all(token < VOCAB for token, _ in r.logit_bias)]
    return [tiny, ends, *fits]


def test_every_kind_of_draw_is_launched_ahead_and_is_the_hosts() -> None:
    executor = DrawingExecutor(PLAN)
    asked = rules()
    found, wanted = answers(executor, asked), answers(make_executor(PLAN), asked)
    assert [tokens_of(outputs) for outputs in found] == [tokens_of(outputs) for outputs in wanted]
    for outputs, twins, params in zip(found, wanted, asked, strict=True):
        for got, want in zip(outputs, twins, strict=True):
            assert (got.logprobs is None) == (params.logprobs is None)
            if got.logprobs is not None and want.logprobs is not None:
                assert got.logprobs.logprob == pytest.approx(want.logprobs.logprob, abs=1e-5)
                assert [i for i, _ in got.logprobs.top] == [i for i, _ in want.logprobs.top]
                assert len(got.logprobs.top) == params.logprobs
    assert launched_ahead(executor) >= len(executor.events) // 2 * 0.8


def test_counts_are_rebuilt_for_a_request_that_lost_its_place() -> None:
    tight = tiny_plan(Sizes(steps_in_flight=2, pages=9))
    executor = DrawingExecutor(tight)
    asked = [
        SamplingParams(16, seed=seed, repetition_penalty=1.5, frequency_penalty=0.7)
        for seed in range(4)
    ]
    found = answers(executor, asked)
    assert executor.rebuilt > len(asked)
    wanted = answers(make_executor(PLAN), asked)
    assert [tokens_of(outputs) for outputs in found] == [tokens_of(outputs) for outputs in wanted]


def test_an_answer_that_ends_early_does_not_hold_up_the_others() -> None:
    answer = expected(PROMPTS[0], 12)
    stop = SamplingParams(12, temperature=0.0, stop_token_ids=(answer[3],))
    found = answers(DrawingExecutor(PLAN), [stop, SamplingParams(12, temperature=0.0)])
    assert tokens_of(found[0]) == answer[: answer.index(answer[3]) + 1]
    assert tokens_of(found[1]) == expected(PROMPTS[1], 12)


@pytest.mark.parametrize("make", [DrawingExecutor, make_executor])
@pytest.mark.parametrize(
    ("biases", "why"),
    [
        ([(i % 24, 1.0) for i in range(LOGIT_BIAS_MOST + 1)], "has 1025 tokens, and may have 1024"),
        ([(VOCAB, 1.0)], "token id 24 of logit_bias is outside of the vocabulary: 0 to 23"),
    ],
)
def test_biases_that_no_executor_takes_are_refused(
    make: type[DrawingExecutor], biases: list[tuple[int, float]], why: str
) -> None:
    executor = make(PLAN)
    with Engine(PLAN, executor, NoFollowers()) as engine:
        (event,) = engine.submit(Submit(0, (1, 2), SamplingParams(3, logit_bias=tuple(biases))))
    assert isinstance(event, Refused)
    assert why in event.message
