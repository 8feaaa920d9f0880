"""The whole thing: SmolLM2 behind HTTP, driven by the real openai client."""

from __future__ import annotations

import re
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
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
