"""The whole thing: SmolLM2 behind HTTP, driven by the real openai client."""

from __future__ import annotations

import re
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
from deployments import build, recipe
from tsrun_process import Server, serving

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, smollm2_gguf: Path) -> dict[int, Path]:
    limits = {"max_model_len": 512, "max_batch": 8, "token_budget": 64}
    return {
        world: build(
            tmp_path_factory.mktemp(f"serve-{world}"),
            recipe(smollm2_gguf, world=world, limits=limits),
        )
        for world in (1, 3)
    }


@pytest.fixture(scope="module")
def server(
    artifacts: dict[int, Path], tmp_path_factory: pytest.TempPathFactory
) -> Generator[Server]:
    with serving(artifacts[1], tmp_path_factory.mktemp("log") / "stderr") as running:
        yield running


def test_the_model_answers(server: Server) -> None:
    assert server.ask(QUESTION) == "The capital of France is Paris."


def test_a_stream_joins_to_the_same_text_and_reports_usage(server: Server) -> None:
    stream = server.client.chat.completions.create(
        model="under-test",
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "The capital of France is Paris."
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 8  # seven of text and the end of the turn
    assert usage.total_tokens == usage.prompt_tokens + 8


def test_eight_at_once_answer_as_each_alone(server: Server) -> None:
    questions = [f"What is {a} plus {a + 2}?" for a in range(7)] + [QUESTION * 20]
    alone = [server.ask(question) for question in questions]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(server.ask, questions)) == alone


def test_a_seed_repeats_a_sampled_answer(server: Server) -> None:
    def sampled(seed: int) -> str:
        done = server.client.completions.create(
            model="under-test", prompt="Once upon a time", max_tokens=12, seed=seed, temperature=1
        )
        return done.choices[0].text

    assert sampled(1) == sampled(1)
    assert len({sampled(seed) for seed in range(4)}) > 1


def test_log_probabilities_are_the_raw_model_s(server: Server, smollm2_reference: Any) -> None:
    """Whatever temperature, filters and biases the tokens are drawn with."""
    prompt = [504, 3575, 282, 4649, 314]
    answer = server.client.completions.create(
        model="under-test",
        prompt=prompt,
        max_tokens=6,
        temperature=0.7,
        top_p=0.9,
        seed=5,
        frequency_penalty=1.5,
        logit_bias={"7042": -100},
        logprobs=5,
        extra_body={"return_token_ids": True, "ignore_eos": True},
    )
    (choice,) = answer.choices
    found = choice.logprobs
    assert found is not None
    ids: list[int] = (choice.model_extra or {})["token_ids"]
    with torch.no_grad():
        logits = smollm2_reference(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    expected = logits.double().log_softmax(-1)
    drawn = expected[range(len(ids)), ids]
    np.testing.assert_allclose(found.token_logprobs or [], drawn, atol=1e-3)
    for shown, row, own in zip(found.top_logprobs or [], expected, drawn, strict=True):
        top = row.topk(5).values.tolist()
        wanted = top if float(own) in top else [*top, float(own)]
        np.testing.assert_allclose(sorted(shown.values(), reverse=True), wanted, atol=1e-3)


def test_a_bias_bans_a_token_and_the_model_s_own_mind_is_told(server: Server) -> None:
    def ask(bias: dict[str, int]) -> Any:
        return server.client.chat.completions.create(
            model="under-test",
            messages=[{"role": "user", "content": QUESTION}],
            temperature=0,
            max_tokens=8,
            logprobs=True,
            top_logprobs=1,
            logit_bias=bias,
            extra_body={"return_token_ids": True},
        ).choices[0]

    free = ask({})
    assert free.message.content == "The capital of France is Paris."
    content = free.logprobs.content
    assert b"".join(bytes(one.bytes) for one in content).decode() == free.message.content
    place = [one.token for one in content].index(" Paris")
    banned = ask({str(free.model_extra["token_ids"][place]): -100})
    assert "Paris" not in banned.message.content
    assert banned.logprobs.content[place].top_logprobs[0].token == " Paris"
    assert banned.logprobs.content[place].logprob < content[place].logprob


def test_a_prompt_too_long_is_refused_and_the_server_lives(server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="512"):
        server.ask("word " * 600)
    assert server.ask(QUESTION) == "The capital of France is Paris."


def test_sigterm_lets_the_answer_finish_and_exits_0(
    artifacts: dict[int, Path], tmp_path: Path
) -> None:
    with serving(artifacts[1], tmp_path / "stderr") as running:
        ranks = running.ranks()
        stream = running.client.completions.create(
            model="under-test", prompt="One, two,", max_tokens=40, temperature=0, stream=True
        )
        first = next(iter(stream))
        running.process.send_signal(signal.SIGTERM)
        rest = list(stream)
        assert len(first.choices[0].text + "".join(c.choices[0].text for c in rest)) > 40
        assert running.process.wait(timeout=20) == 0
        assert not any(rank.is_running() for rank in ranks)


def test_a_killed_rank_ends_all_within_five_seconds_with_one_line(
    artifacts: dict[int, Path], tmp_path: Path
) -> None:
    errors = tmp_path / "stderr"
    with serving(artifacts[3], errors) as running:
        assert running.ask(QUESTION) == "The capital of France is Paris."
        before = errors.read_text()
        ranks = running.ranks()
        assert len(ranks) == 3
        ranks[1].kill()
        assert running.process.wait(timeout=5) == 1
        assert not any(rank.is_running() for rank in ranks)
    said = errors.read_text().removeprefix(before)
    assert re.findall(r"^error.*", said, re.MULTILINE) == [
        f"error[TS0651]: rank 1 (pid {ranks[1].pid}) was killed by SIGKILL"
    ]
    assert "Traceback" not in said
