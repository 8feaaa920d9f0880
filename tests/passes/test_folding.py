"""Folding of repeated layers: the plan of the whole model, at the cost of a few layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from checkpoints import FAMILIES, Family
from compile_requests import tiny_model_config, tiny_request
from drawn_plans import SPARSE, Dims, Setup, legal_sizes
from hypothesis import given, settings
from hypothesis import strategies as st

from tscompile.explain import peers
from tscompile.ir.draft import Draft
from tscompile.ir.errors import UnsupportedLayoutError, VerifyError
from tscompile.ir.finish import finish
from tscompile.ir.graph import Graph, layer_of
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.repeats import Repeat, UnlikeLayersError, rolled, runs, unrolled
from tscompile.ir.request import Buckets, CompileRequest
from tscompile.ir.verifier import Known, Stage, verify
from tscompile.models import build
from tscompile.passes import pipeline
from tscompile.passes.pipeline import compile_plan, compile_until
from tscompile.passes.unfold import unfold
from tscompile.trace import fold, trace

MOE: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def _request(family: Family, layers: int, world: int = 2, **changes: Any) -> CompileRequest:
    config = tiny_model_config(family, num_hidden_layers=layers, **changes)
    return tiny_request(config, world, buckets=Buckets((4,), ((32, 4),)))


def _graph(family: Family, layers: int, **changes: Any) -> Graph:
    with torch.device("meta"):
        model = build(tiny_model_config(family, num_hidden_layers=layers, **changes))
    return trace(model, "selected")


@pytest.fixture
def whole() -> Iterator[pytest.MonkeyPatch]:
    """Within it nothing is folded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_ENDS", ())
        yield patch


def test_a_run_keeps_its_ends_and_one_layer_for_all_others() -> None:
    graph = _graph("llama", 20)
    folded = fold(graph, 2, 3)
    assert folded.repeats == (Repeat(3, 1, 14),)  # layer 0 reads the embedding, like none else
    assert folded.caches == graph.caches[:7]
    assert {p.name for p in folded.parameters} < {p.name for p in graph.parameters}
    assert len(folded.nodes) == len(fold(_graph("llama", 61), 2, 3).nodes)


def test_the_first_dense_layers_are_a_run_of_their_own() -> None:
    folded = fold(_graph("qwen3_moe", 24, mlp_only_layers=list(range(9)), **MOE), 1, 1)
    assert folded.repeats == (Repeat(2, 1, 6), Repeat(5, 1, 13))


def test_window_and_full_layers_repeat_with_period_two() -> None:
    folded = fold(_graph("gpt_oss", 16), 1, 1)
    assert folded.repeats == (Repeat(3, 2, 5),)
    assert [layer.group for layer in folded.caches] == ["window", "full"] * 4


def test_short_runs_and_unequal_layers_stay() -> None:
    assert fold(few := _graph("llama", 6), 2, 2) is few
    odd = _graph("qwen3_moe", 9, mlp_only_layers=[2, 5, 6], **MOE)
    assert fold(odd, 2, 2) is odd


def test_unrolled_and_rolled_are_inverse() -> None:
    repeats = (Repeat(2, 1, 3), Repeat(6, 2, 2))
    items = list("abbbxyxyxyz")
    assert "".join(unrolled(items, repeats)) == "abbbbbxyxyxyxyz"
    assert rolled(unrolled(items, repeats), repeats) == items


def test_copies_that_differ_are_refused() -> None:
    repeats = (Repeat(2, 1, 3),)
    assert rolled(list("abbbbbc"), repeats) == list("abbbc")
    for unlike in ("abbbbcc", "acbbbbc", "abbxbbc"):
        with pytest.raises(UnlikeLayersError):
            rolled(list(unlike), repeats)


def test_runs_cover_a_sequence() -> None:
    found = runs("abcbcbcbcddde")
    assert found == [Repeat(0, 1, 1), Repeat(1, 2, 4), Repeat(9, 1, 3), Repeat(12, 1, 1)]


@st.composite
def _setups(draw: st.DrawFn) -> Setup:
    """Tiny models of all families, alike layers few or many, kinds that alternate."""
    family = draw(st.sampled_from(FAMILIES))
    world = draw(st.sampled_from((1, 2, 3, 4)))
    layers = draw(st.integers(1, 9) if family != "gpt_oss" else st.sampled_from((3, 15)))
    dims = Dims(
        layers=layers,
        hidden=draw(st.integers(1, 3)),
        vocabulary=draw(st.integers(20, 40)),
        bias=draw(st.booleans()),
        batch=draw(st.integers(1, 3)),
        tokens=draw(st.integers(5, 9)),
    )
    sizes = draw(st.sampled_from(legal_sizes(world, sparse=family in SPARSE)))
    return Setup(family, sizes, dims)


@settings(max_examples=30, derandomize=True, deadline=None)
@given(_setups(), st.sampled_from(("cpu-gloo", "h200-nvlink-8")))
def test_the_folded_plan_is_the_plan(setup: Setup, topology: str) -> None:
    asked = setup.request()
    asked = replace(asked, target=replace(asked.target, topology=topology))
    folded = compile_until(asked, Stage.PLAN_MEMORY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_ENDS", ())
        assert compile_until(asked, Stage.PLAN_MEMORY) == folded


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folded_draft_is_finished_as_its_whole(family: Family) -> None:
    asked = _request(family, 16, 2)
    folded = compile_until(asked, Stage.PIN_KERNELS, folded=True)
    whole = unfold(folded)
    assert folded.repeats
    assert not whole.repeats
    assert finish(folded) == finish(whole)
    verify(whole, Stage.PIN_KERNELS)


def test_as_many_copies_as_asked_for_are_unfolded() -> None:
    folded = compile_until(_request("llama", 30), Stage.PLAN_MEMORY, folded=True)
    (repeat,) = folded.repeats
    for most in (1, 2, 3):
        whole = unfold(folded, most)
        layers = {layer_of(name) for name in whole.weights} - {None}
        assert layers == set(range(30 - repeat.count + most))
        verify(whole, Stage.PLAN_MEMORY)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_plan_pins_and_text_are_the_whole_models(family: Family, whole: pytest.MonkeyPatch) -> None:
    changes = {**MOE, "mlp_only_layers": [0, 1]} if family == "qwen3_moe" else {}
    asked = _request(family, 15, 2, **changes)
    wanted = compile_plan(asked)
    whole.undo()
    found = compile_plan(asked)
    assert found == wanted
    assert "layers 0" in found.text


def test_where_ends_are_too_short_more_layers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last layer goes on to the head, so that one layer at each end is not enough."""
    asked = _request("llama", 12)
    wanted = compile_plan(asked)
    tried: list[int] = []

    def folding(graph: Graph, lead: int, trail: int) -> Graph:
        tried.append(trail)
        return fold(graph, lead, trail)

    monkeypatch.setattr(pipeline, "fold", folding)
    monkeypatch.setattr(pipeline, "_ENDS", ((2, 1), (3, 2)))
    assert compile_plan(asked) == wanted
    assert tried == [1, 2]


def test_what_passes_visit_does_not_grow_with_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    def visited(layers: int) -> dict[Stage, list[int]]:
        found: dict[Stage, list[int]] = {}

        def counted(draft: Draft, stage: Stage, known: Known) -> None:
            found.setdefault(stage, []).append(sum(len(p.nodes) for p in draft.programs))
            verify(draft, stage, known)

        def alone(jobs: int, work: int) -> int:
            return 1

        monkeypatch.setattr(pipeline, "affordable", alone)
        monkeypatch.setattr(pipeline, "verify", counted)
        compile_until(_request("qwen3_moe", layers, mlp_only_layers=[0], **MOE), Stage.PLAN_MEMORY)
        return found

    few, many = visited(20), visited(61)
    assert few.keys() == many.keys() == set(Stage) - {Stage.PIN_KERNELS}
    assert few == many
    folded, copies = many[Stage.PLAN_MEMORY]
    assert folded < copies < 2 * folded


def test_errors_name_the_models_own_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense layers 0 to 9, of which seven stay: the experts' first layer is then the eighth."""
    asked = _request("qwen3_moe", 12, 2, mlp_only_layers=list(range(10)), **MOE)

    def refuse(draft: Draft) -> Draft:
        module = next(n.module for n in draft.programs[0].nodes if n.op == "experts")
        raise UnsupportedLayoutError(f"{module} is odd", remedy="none", where=module)

    monkeypatch.setattr(pipeline, "lower_reshards", refuse)
    with pytest.raises(UnsupportedLayoutError) as refused:
        compile_plan(asked)
    assert refused.value.where.startswith("model.layers.10.mlp")
    assert refused.value.message.startswith("model.layers.10.mlp")


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_unfolded_is_verified(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    def broken(draft: Draft, most: int | None = None) -> Draft:
        whole = unfold(draft, most)
        last = replace(whole.programs[-1], output="nowhere")
        return replace(whole, programs=(*whole.programs[:-1], last))

    def as_many(jobs: int, work: int) -> int:
        return workers

    monkeypatch.setattr(pipeline, "unfold", broken)
    monkeypatch.setattr(pipeline, "affordable", as_many)
    for compile_ in (compile_plan, partial(compile_until, last=Stage.PLAN_MEMORY)):
        with pytest.raises(VerifyError, match="nowhere is not defined") as refusal:
            compile_(_request("llama", 12))
        assert refusal.value.where == "program extend_32x4"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_violation_comes_before_the_error_that_it_causes(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """In the numbers of the model: of the folded draft's layers 0 to 6 the last but one."""

    def broken(draft: Draft) -> Draft:
        first = draft.programs[0]
        nodes = tuple(n for n in first.nodes if n.outputs[0] != "layers.5.down_proj")
        return replace(draft, programs=(replace(first, nodes=nodes), *draft.programs[1:]))

    def fails(draft: Draft, kv: object = None) -> Draft:
        raise UnsupportedLayoutError("a consequence", remedy="none", where="elsewhere")

    def as_many(jobs: int, work: int) -> int:
        return workers

    monkeypatch.setattr(pipeline, "affordable", as_many)
    monkeypatch.setattr(pipeline, "lower_reshards", broken)
    for later in ("localize", "plan_memory"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, later, fails)
            with pytest.raises(
                VerifyError, match=r"layers\.11.* reads layers\.10\.down_proj"
            ) as found:
                compile_plan(_request("llama", 12))
        assert found.value.where == "program decode_4"


def test_groups_of_unequal_sizes_fold() -> None:
    """First and last layers are placed otherwise than those between."""
    config = tiny_model_config("llama", num_hidden_layers=11)
    asked = tiny_request(config, ParallelSizes(6, 6, 3), buckets=Buckets((4,), ((32, 4),)))
    folded = compile_until(asked, Stage.FUSE_COMPUTE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_ENDS", ())
        assert compile_until(asked, Stage.FUSE_COMPUTE) == folded


@pytest.mark.parametrize(
    ("family", "sizes"),
    [("llama", ParallelSizes(4, 2, 4)), ("deepseek", ParallelSizes(2, 1, 2, 1, 2))],
)
def test_peers_are_compared_over_the_whole_model(
    monkeypatch: pytest.MonkeyPatch, family: Family, sizes: ParallelSizes
) -> None:
    config = tiny_model_config(family, num_hidden_layers=14)
    asked = tiny_request(config, sizes, buckets=Buckets((4,), ((32, 4),)))
    asked = replace(asked, target=replace(asked.target, topology="h200-nvlink-8"))
    found = peers.compare(asked)
    monkeypatch.setattr(pipeline, "_ENDS", ())
    assert peers.compare(asked) == found
