"""`tscompile size` against the device's capacity, to the byte, and against published sizes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from deployments import ROOT, Run
from planned import deployment, planned_once

from tscompile.communication.compiled import planned_request
from tscompile.deployment import requested
from tscompile.ir.errors import DeviceMemoryError
from tscompile.ir.mesh import ParallelSizes
from tscompile.models import cache_layers
from tscompile.models.config import from_hf
from tscompile.recipe import load
from tscompile.size.fit import Need, attempts, pool_bytes, room, state_bytes, worlds
from tscompile.size.weights import Weighed, legal_sizes

RECIPES = ROOT / "recipes"


def weights(memory: dict[str, int]) -> int:
    """Bytes of weights of a plan's memory."""
    return sum(memory.values()) - memory["kv"] - memory["arena"] - memory["constant"]


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("llama", ParallelSizes(2, 2, 2)),
        ("qwen3_moe", ParallelSizes(4, 2, 4, 1, 4)),
        ("deepseek", ParallelSizes(4, 4, 4, 1, 2)),
        ("gpt_oss", ParallelSizes(2, 2, 2, 2, 1)),
    ],
)
def test_weights_are_bounded_below_by_what_is_compiled(family: str, sizes: ParallelSizes) -> None:
    """Equal but for vocabularies, which the compiler may replicate for speed."""
    request = deployment(family, sizes)  # pyright: ignore[reportArgumentType]
    memory = planned_once(request).memory
    least = Weighed.of(request.model, request.dtype).rank_bytes(sizes)
    vocabulary = request.model.vocab_size * request.model.hidden * request.dtype.itemsize
    assert 0 <= weights(memory) - least <= 2 * vocabulary
    assert memory["kv"] == pool_bytes(request, cache_layers(request.model), sizes, Need(39, 8))


def test_one_page_more_than_the_room_does_not_fit() -> None:
    plan = planned_once(deployment())
    memory, page = plan.memory, plan.pool.page_size * plan.pool.token_bytes
    held = sum(memory.values()) - memory["kv"]
    found = room(plan, held + 26 * page + page // 2, positions=512)
    assert found.tokens == 25 * 8  # of 26 pages one is the null page
    assert (found.context, found.alone) == (25 // 4 * 8, 25 * 8)
    assert found.batch == 25 // 12  # 96 tokens are 12 pages
    assert room(plan, held + 500 * page, positions=512).alone == 512


def test_the_smallest_count_is_the_first_that_holds_it() -> None:
    request = deployment("llama", 2)
    weighed = Weighed.of(request.model, request.dtype)
    need = Need(4, 96)
    alone = ParallelSizes(1, 1, 1)
    one = weighed.rank_bytes(alone) + pool_bytes(request, weighed.graph.caches, alone, need)
    tried = list(attempts(request, weighed, need, capacity=one))  # no room for an arena
    assert [attempt.fits for attempt in tried] == [False] * (len(tried) - 1) + [True]
    assert tried[0].world == 1
    assert tried[0].arena is not None
    assert tried[-1].world == 2
    assert sum((tried[-1].weights, tried[-1].kv, tried[-1].arena or 0)) <= one


def test_what_no_count_holds_is_tried_to_the_end() -> None:
    request = deployment("llama", 2)
    weighed = Weighed.of(request.model, request.dtype)
    tried = list(attempts(request, weighed, Need(4, 96), capacity=1000))
    assert not any(attempt.fits for attempt in tried)
    assert [attempt.world for attempt in tried][-1] == 128
    assert all(attempt.arena is None for attempt in tried)


def test_clusters_are_whole_nodes() -> None:
    found = [(topology.name, world) for topology, world in worlds("h200-ib-2x8")]
    assert found[:9] == [("h200-nvlink-8", n) for n in range(1, 9)] + [("h200-ib-2x8", 16)]
    assert [world for _, world in worlds("mi300x-8")] == list(range(1, 9))


def test_legal_sizes_divide_the_model() -> None:
    config = from_hf(json.loads((RECIPES / "configs/llama-3.1-8b.json").read_text()))
    assert {sizes.attn_tp for sizes in legal_sizes(config, 24)} == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("recipe", "billions", "ranks"),
    [("llama-3.1-70b-tp4", 70.6, 4), ("deepseek-v3", 671.0, 16), ("gpt-oss-20b", 20.9, 1)],
)
def test_published_models_weigh_what_they_should(recipe: str, billions: float, ranks: int) -> None:
    """Two bytes a parameter over all ranks, if every rank holds its share alone."""
    request = requested(load(RECIPES / f"{recipe}.yaml"))
    sizes = replace(request.parallel, attn_tp=min(ranks, 8)) if ranks == 16 else request.parallel
    held = Weighed.of(request.model, request.dtype).rank_bytes(sizes)
    assert held * ranks >= 2e9 * billions * 0.99
    assert held * ranks <= 2e9 * billions * 1.10


def test_the_command_explains_what_does_not_fit(tscompile: Run) -> None:
    done = tscompile("size", RECIPES / "llama-tiny-dummy.yaml", "--capacity", "1MB")
    assert done.code == 0, done.err
    assert "a rank holds" in done.out
    assert "largest context" in done.out
    assert "too much" in done.out
    assert tscompile("size", RECIPES / "llama-tiny-dummy.yaml", "--capacity", "big").code == 2
    unknown = tscompile("size", RECIPES / "llama-tiny-dummy.yaml")
    assert "not known: --capacity" in unknown.out


def test_what_is_left_for_the_cache_can_be_built_and_not_much_more() -> None:
    """By the page; what a plan's arena takes is not known when its weights are laid out."""
    request = requested(load(RECIPES / "qwen3-8b.yaml"))
    plan, state = planned_request(request), state_bytes(request)
    assert state > 2 * 4 * 64 * 151_936 + 2**30
    pages = room(plan, 141 * 10**9, 40_960, state).tokens // 64 + 1
    arena = plan.memory["arena"] // (64 * plan.pool.token_bytes)
    roomy = replace(request.kv, memory=None, pages=pages)
    assert planned_request(replace(request, kv=roomy)).memory["kv"] > 120e9
    over = replace(request.kv, memory=None, pages=pages + arena + 2)
    with pytest.raises(DeviceMemoryError):
        planned_request(replace(request, kv=over))
