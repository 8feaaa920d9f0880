"""The benchmark's arithmetic, and a run over a fake engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from tsruntime.bench import Load, Timeline, percentile, prompts, run_bench, summarize
from tsruntime.server.errors import BenchTooLarge
from tsruntime.server.loading import load_intake


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(v) for v in range(100, 0, -1)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile([3.0], 99) == 3
    assert percentile([1.0, 2.0], 50) == 1


def test_report_of_known_timelines() -> None:
    load = Load(streams=2, prompt_tokens=7, tokens=3)
    lines = [Timeline(10.0, (10.5, 10.6, 10.8)), Timeline(10.1, (10.4, 11.4, 12.0))]
    report = summarize("m", load, lines)
    assert report.seconds == pytest.approx(2.0)
    assert report.tokens_per_second == pytest.approx(3.0)
    assert report.ttft_median_ms == pytest.approx(300)
    assert report.ttft_p99_ms == pytest.approx(500)
    assert report.itl_median_ms == pytest.approx(200)
    assert report.itl_p99_ms == pytest.approx(1000)


def test_prompts_differ_and_repeat_with_their_seed() -> None:
    load = Load(4, 50, 9)
    first = prompts(load, 300, seed=1)
    assert len({request.tokens for request in first}) == 4
    assert all(len(r.tokens) == 50 and max(r.tokens) < 300 for r in first)
    assert all(r.params.max_tokens == 9 and not r.params.stop_token_ids for r in first)
    assert first == prompts(load, 300, seed=1)
    assert first != prompts(load, 300, seed=2)


def test_a_run_counts_every_token(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine(step_seconds=0.01)
    try:
        load = Load(streams=3, prompt_tokens=11, tokens=8)
        run_bench(engine, load_intake(artifact, None), load, as_json=True)
    finally:
        engine.stop(0)
    report = json.loads(capsys.readouterr().out)
    assert (report["streams"], report["prompt_tokens"], report["tokens"]) == (3, 11, 8)
    assert report["seconds"] >= 7 * 0.01
    assert 0 <= report["itl_median_ms"] <= report["itl_p99_ms"] <= 1e3 * report["seconds"]
    assert 0 < report["ttft_median_ms"] <= report["ttft_p99_ms"] <= 1e3 * report["seconds"]
    assert report["tokens_per_second"] == pytest.approx(24 / report["seconds"])
    warm_up, measured = engine.submitted[:3], engine.submitted[3:]
    assert [s.params.max_tokens for s in warm_up] == [4] * 3
    assert [s.params.max_tokens for s in measured] == [8] * 3


def test_what_does_not_fit_is_refused(artifact: Path) -> None:
    engine = FakeEngine()
    try:
        with pytest.raises(BenchTooLarge, match=r"150 and --tokens 51 make 201, beyond .* 200"):
            run_bench(engine, load_intake(artifact, None), Load(1, 150, 51), as_json=True)
    finally:
        engine.stop(0)
