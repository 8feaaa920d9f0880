from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from compile_requests import smollm2_request, tiny_model_config, tiny_request
from hypothesis import given, settings
from hypothesis import strategies as st

from tscompile.ir.draft import Draft, DraftProgram, DraftValue, DraftWeight, Edge
from tscompile.ir.errors import PlanTextError
from tscompile.ir.graph import Node
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.parser import parse_draft
from tscompile.ir.placement import PARTIAL, REPLICATE, Placement, Shard
from tscompile.ir.printer import print_draft
from tscompile.ir.strides import contiguous_strides
from tscompile.passes.pipeline import compile_plan
from tskernels.schema import DType, TensorType
from tsruntime.artifact.schema import (
    ArenaStorage,
    Attribute,
    CacheGroup,
    CacheStorage,
    InputStorage,
    KvCache,
    Limits,
    Phase,
    RankIndex,
    Stack,
    Target,
    WeightPart,
    WeightStorage,
)

MESH = build_mesh(ParallelSizes(world=4, attn_tp=2, dense_tp=4))
PLACEMENT: st.SearchStrategy[Placement] = st.one_of(
    st.just(REPLICATE), st.just(PARTIAL), st.builds(Shard, st.integers(0, 2))
)
PLACEMENTS = st.tuples(PLACEMENT, PLACEMENT)
TYPE = st.builds(
    TensorType,
    st.sampled_from(DType),
    st.lists(st.integers(0, 5000), max_size=4).map(tuple),
)
ATTRIBUTE: st.SearchStrategy[Attribute] = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["sum", "max"]),
    st.lists(st.integers(), max_size=3).map(tuple),
    st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
    st.builds(RankIndex, st.sampled_from([("a",), ("a", "b")]), st.integers(1, 9999)),
)
MODULES = ("", "model", "model.layers.{}", "model.layers.{}.self_attn", "lm_head")


@st.composite
def _drafts(draw: st.DrawFn) -> Draft:
    """Drafts of several layers, each a copy of the one before or drawn anew."""
    weight = DraftWeight(
        "model.norm.weight",
        draw(TYPE),
        draw(PLACEMENTS),
        (
            WeightPart("norm", (6, 3)),
            WeightPart("other", (5, 2), 0, ("a", "b"), draw(st.sampled_from([5, 8]))),
        ),
    )
    over = draw(st.sampled_from([(), ("a",), ("a", "b")]))
    one = WeightPart("layers.1.experts.{}.up", (6, 3), stack=Stack(4, over))
    cut = replace(one, dim=1, axes=("b",), padded=3)
    stacked = DraftWeight(
        "layers.1.experts.{}.up", draw(TYPE), draw(PLACEMENTS), (draw(st.sampled_from([one, cut])),)
    )
    constant = DraftWeight(
        "inv_freq", TensorType(DType.FLOAT32, (2,)), (REPLICATE,) * 2, (), (1.0, 1e-7)
    )
    values: dict[str, DraftValue] = {
        "token_ids": DraftValue(
            "token_ids", draw(TYPE), draw(PLACEMENTS), InputStorage("token_ids")
        )
    }
    nodes: list[Node] = []
    edges: list[Edge] = []
    before = "token_ids"
    pattern: list[tuple[TensorType, tuple[Placement, ...], dict[str, Attribute], str, int]] = []
    for layer in range(draw(st.integers(0, 4))):
        if not pattern or draw(st.booleans()):
            pattern = draw(
                st.lists(
                    st.tuples(
                        TYPE,
                        PLACEMENTS,
                        st.dictionaries(st.sampled_from(["eps", "axes", "size"]), ATTRIBUTE),
                        st.sampled_from(MODULES),
                        st.integers(0, 2),
                    ),
                    min_size=1,
                    max_size=3,
                )
            )
        cache = f"layers.{layer}.cache"
        values[cache] = DraftValue(cache, draw(TYPE), (REPLICATE,) * 2, CacheStorage("full", layer))
        for number, (type_, placed, attributes, module, stored) in enumerate(pattern):
            name = f"layers.{layer}.v{number}"
            strides = tuple(s + stored for s in contiguous_strides(type_.shape))
            storage = ArenaStorage(64 * number, strides) if stored else None
            values[name] = DraftValue(name, type_, placed, storage)
            inputs = (before, None, weight.name, cache)
            values[weight.name] = DraftValue(
                weight.name, weight.type, weight.placements, WeightStorage(weight.name)
            )
            pin = "op.torch" if stored else ""
            nodes.append(Node("op", inputs, (name,), attributes, module.format(layer), pin))
            before = name
        edges.append(Edge(f"model.layers.{layer}", "output", before, (draw(PLACEMENT), None)))
    program = DraftProgram(
        name="decode_1",
        phase=draw(st.sampled_from(Phase)),
        tokens=4,
        sequences=2,
        logits=draw(st.sampled_from(["last", "all"])),
        inputs=("token_ids",),
        values=values,
        nodes=tuple(nodes),
        output=before,
        edges=tuple(edges),
        arena_bytes=draw(st.integers(0, 10**12)),
    )
    group = CacheGroup(
        "full",
        (0, 1, 2, 5),
        3,
        64,
        DType.BFLOAT16,
        draw(st.sampled_from([(), ("a",)])),
        draw(st.sampled_from([None, 32])),
        draw(st.sampled_from([1, 2])),
    )
    return Draft(
        name="tiny",
        architecture="LlamaForCausalLM",
        target=Target("cuda", "sm_90", "h200-nvlink-8"),
        mesh=MESH,
        dtype=DType.FLOAT16,
        vocab_size=99,
        limits=Limits(100, 4, 64, 7, draw(st.integers(1, 2))),
        kv_cache=KvCache(16, draw(st.integers(0, 99)), (group,), draw(st.integers(0, 99))),
        weights={w.name: w for w in (weight, stacked, constant)},
        programs=(program, replace(program, name="other")),
        dummy_seed=draw(st.sampled_from([None, 0, 7])),
    )


@settings(max_examples=150, deadline=None)
@given(_drafts())
def test_any_draft_parses_back(draft: Draft) -> None:
    assert parse_draft(print_draft(draft)) == draft


@pytest.mark.parametrize(
    "sizes", [ParallelSizes(1, 1, 1), ParallelSizes(4, 4, 2), ParallelSizes(3, 3, 3)]
)
def test_every_pass_of_a_real_plan_parses_back(sizes: ParallelSizes, tmp_path: Path) -> None:
    config = tiny_model_config("qwen2", num_attention_heads=12, num_key_value_heads=12)
    compile_plan(tiny_request(config, sizes, dump_dir=tmp_path))
    dumps = sorted(tmp_path.glob("*.plan"))
    assert [d.name for d in dumps] == [
        "01-plan_buckets.plan",
        "02-propagate_placements.plan",
        "03-lower_reshards.plan",
        "04-localize.plan",
        "05-fuse_collectives.plan",
        "06-fuse_compute.plan",
        "07-plan_memory.plan",
        "08-pin_kernels.plan",
    ]
    for dump in dumps:
        text = dump.read_text()
        assert print_draft(parse_draft(text)) == text


def test_identical_layers_print_once() -> None:
    text = compile_plan(smollm2_request(3)).text
    program = text[text.index("program decode_8") : text.index("program extend_64x8")]
    assert "layers 1..29 {" in program  # the first one reads and reduces the embedding
    assert program.count("down_proj: ") == 2
    assert len(program.splitlines()) < 50


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("mesh [", "mash [", 3),
        ("vocab 384", "vocab many", 1),
        (" = add(", " = add{", None),
        ("float64[1,96]", "float64[1,96", None),
        ("float64[1,96]", "float65[1,96]", None),
    ],
)
def test_text_that_does_not_parse_names_its_line(old: str, new: str, line: int | None) -> None:
    text = compile_plan(tiny_request(tiny_model_config("llama"), 2)).text
    assert old in text
    broken = text.replace(old, new, 1)
    with pytest.raises(PlanTextError) as refusal:
        parse_draft(broken)
    wrong = next(
        n
        for n, pair in enumerate(zip(text.splitlines(), broken.splitlines(), strict=True), 1)
        if pair[0] != pair[1]
    )
    assert line in (None, wrong)
    assert refusal.value.where.startswith("line ")


def test_text_that_is_cut_short() -> None:
    lines = compile_plan(tiny_request(tiny_model_config("llama"))).text.splitlines()
    for end in range(len(lines)):
        closed = end > 0 and "}" in (lines[end - 1], lines[end - 2])  # fewer programs: still a plan
        if not closed:
            with pytest.raises(PlanTextError):
                parse_draft("\n".join(lines[:end]))
