"""`/metrics`: what Prometheus reads, parsed by its own client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import httpx
import openai
import pytest
from fake_engine import FakeEngine
from prometheus_client.parser import text_string_to_metric_families
from served_app import ServedApp

Labels: TypeAlias = tuple[tuple[str, str], ...]
MODEL: Labels = (("model_name", "tiny"),)


@pytest.fixture
def watched(artifact: Path) -> Iterator[ServedApp]:
    """A server of its own, since counters only rise."""
    with ServedApp(artifact, FakeEngine()) as served:
        yield served


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def scrape(served: ServedApp) -> dict[tuple[str, Labels], float]:
    answer = httpx.get(f"{served.url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name.removeprefix("tsrun:"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name.startswith("tsrun:")
    }


def test_the_scheduler_s_counters_have_vllm_s_names(watched: ServedApp) -> None:
    found = scrape(watched)
    expected = {
        "num_requests_running": 0,
        "num_requests_waiting": 3,
        "kv_cache_usage_perc": 0.25,  # of group "full": 40 pages, 25 free and 5 cached
        "num_preemptions_total": 4,
        "prefix_cache_queries_total": 100,
        "prefix_cache_hits_total": 60,
        "kv_pages_stored_total": 8,
        "kv_pages_loaded_total": 6,
        "prompt_tokens_total": 0,
        "generation_tokens_total": 0,
    }
    assert {name: found[name, MODEL] for name in expected} == expected


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("kv_cache_pages", {"full": (25, 5, 10), "window": (20, 0, 0)}),
        ("host_cache_pages", {"full": (20, 7, 3), "window": (30, 0, 0)}),
    ],
)
def test_pages_are_listed_by_group_and_state(
    watched: ServedApp, metric: str, expected: dict[str, tuple[int, ...]]
) -> None:
    pages = {
        (dict(labels)["group"], dict(labels)["state"]): value
        for (name, labels), value in scrape(watched).items()
        if name == metric
    }
    states = ("free", "cached", "used")
    assert pages == {
        (group, state): count
        for group, counts in expected.items()
        for state, count in zip(states, counts, strict=True)
    }


def finished(served: ServedApp) -> dict[str, float]:
    return {
        dict(labels)["finished_reason"]: value
        for (name, labels), value in scrape(served).items()
        if name == "request_success_total"
    }


def test_tokens_and_reasons_are_counted(watched: ServedApp) -> None:
    def complete(**given: Any) -> Any:
        return cast("Any", client.completions.create)(model="tiny", prompt=[7, 8, 9], **given)

    with openai.OpenAI(base_url=f"{watched.url}/v1", api_key="none", max_retries=0) as client:
        complete(max_tokens=5, n=2)
        complete(max_tokens=9, extra_body={"stop_token_ids": [8]})
        watched.engine.step_seconds = 0.01
        with complete(max_tokens=150, stream=True) as stream:
            next(iter(stream))
        until(lambda: finished(watched)["abort"] == 1)
    found = scrape(watched)
    assert finished(watched) == {"stop": 1, "length": 2, "abort": 1}
    assert found["prompt_tokens_total", MODEL] == 12
    assert found["generation_tokens_total", MODEL] >= 5 + 5 + 2 + 1
    assert found["num_requests_running", MODEL] == 0


def test_an_engine_that_is_gone_has_no_metrics(watched: ServedApp) -> None:
    watched.engine.die("rank 0 was killed by SIGKILL")
    until(lambda: watched.frontend.failure is not None)
    answer = httpx.get(f"{watched.url}/metrics")
    assert answer.status_code == 503
    assert "rank 0 was killed by SIGKILL" in answer.json()["error"]["message"]
