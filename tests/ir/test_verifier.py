from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from compile_requests import tiny_model_config, tiny_request

from tscompile.ir.draft import Draft, DraftValue
from tscompile.ir.errors import VerifyError
from tscompile.ir.graph import Node
from tscompile.ir.parser import parse_draft
from tscompile.ir.placement import REPLICATE, Shard
from tscompile.ir.verifier import TABLE, Known, Looked, Stage, verify
from tscompile.passes.pipeline import compile_plan
from tskernels.schema import DType
from tsruntime.artifact.schema import ArenaStorage

LAYER = "layers.1."


@cache
def drafts() -> dict[Stage, Draft]:
    """A real plan of two ranks after each pass."""
    with TemporaryDirectory() as directory:
        compile_plan(tiny_request(tiny_model_config("llama"), 2, dump_dir=Path(directory)))
        texts = [path.read_text() for path in sorted(Path(directory).glob("*.plan"))]
    return {Stage(n): parse_draft(text) for n, text in enumerate(texts, 1)}


def edit_value(draft: Draft, name: str, **changes: object) -> Draft:
    first = draft.programs[0]
    changed: DraftValue = replace(first.values[name], **changes)  # pyright: ignore[reportArgumentType]
    program = replace(first, values={**first.values, name: changed})
    return replace(draft, programs=(program, *draft.programs[1:]))


def edit_nodes(draft: Draft, edit: Callable[[list[Node]], list[Node]]) -> Draft:
    program = replace(draft.programs[0], nodes=tuple(edit(list(draft.programs[0].nodes))))
    return replace(draft, programs=(program, *draft.programs[1:]))


def edit_node(draft: Draft, output: str, **changes: object) -> Draft:
    def edit(nodes: list[Node]) -> list[Node]:
        return [
            replace(n, **changes)  # pyright: ignore[reportArgumentType]
            if output in n.outputs
            else n
            for n in nodes
        ]

    return edit_nodes(draft, edit)


def node(draft: Draft, output: str) -> Node:
    return next(n for n in draft.programs[0].nodes if output in n.outputs)


def swapped(draft: Draft) -> Draft:
    """The last layer's two adds in the other order."""
    return edit_nodes(draft, lambda nodes: [*reversed(nodes[-8:]), *nodes[:-8]])


def old_cache(draft: Draft) -> Draft:
    inputs = tuple(
        i.replace("kv_write", "cache") if i else i for i in node(draft, LAYER + "attention").inputs
    )
    return edit_node(draft, LAYER + "attention", inputs=inputs)


def other_weight_type(draft: Draft) -> Draft:
    name = "model.norm.weight"
    return edit_value(
        draft, name, type=replace(draft.programs[0].values[name].type, dtype=DType.FLOAT32)
    )


def wrong_shape(draft: Draft, name: str) -> Draft:
    type_ = draft.programs[0].values[name].type
    return edit_value(
        draft, name, type=replace(type_, shape=(*type_.shape[:-1], type_.shape[-1] + 2))
    )


def attribute(draft: Draft, output: str, **changes: object) -> Draft:
    attributes = {**node(draft, output).attributes, **changes}
    return edit_node(draft, output, attributes=attributes)


def without_attribute(draft: Draft) -> Draft:
    return edit_node(draft, "norm", attributes={})


def other_output(draft: Draft) -> Draft:
    program = replace(draft.programs[0], output=LAYER + "q_proj")
    return replace(draft, programs=(program, *draft.programs[1:]))


def apart(draft: Draft) -> Draft:
    """What is reduced for a norm long before it is added."""
    return edit_node(draft, LAYER + "add", fused="")


def overlapping(draft: Draft) -> Draft:
    storage = draft.programs[0].values[LAYER + "add"].storage
    return edit_value(draft, LAYER + "post_attention_layernorm", storage=storage)


def outside_view(draft: Draft) -> Draft:
    return edit_value(draft, LAYER + "q_proj", storage=ArenaStorage(0, (1, 1)))


def longer_part(draft: Draft) -> Draft:
    name = "model.layers.1.self_attn.qkv_proj.weight"
    weight = draft.weights[name]
    return replace(draft, weights={**draft.weights, name: replace(weight, parts=weight.parts[:2])})


MUTATIONS: tuple[tuple[Stage, Callable[[Draft], Draft], str], ...] = (
    (Stage.PLAN_BUCKETS, swapped, "not defined yet"),
    (Stage.PLAN_BUCKETS, lambda d: edit_nodes(d, lambda n: [*n, n[-1]]), "defined twice"),
    (Stage.PLAN_BUCKETS, without_attribute, "attributes []"),
    (Stage.PLAN_BUCKETS, lambda d: edit_node(d, "norm", op="layer_norm"), "is no operator"),
    (Stage.PLAN_BUCKETS, old_cache, "old version of its cache"),
    (Stage.PLAN_BUCKETS, other_weight_type, "differs from the plan's weight"),
    (Stage.PLAN_BUCKETS, lambda d: wrong_shape(d, LAYER + "q_proj"), "q_proj has type"),
    (Stage.PROPAGATE_PLACEMENTS, lambda d: edit_value(d, "norm", placements=()), "no placement"),
    (
        Stage.PROPAGATE_PLACEMENTS,
        lambda d: edit_value(d, "rotary_emb", placements=(Shard(0),)),
        "does not divide in dim 0",
    ),
    (
        Stage.PROPAGATE_PLACEMENTS,
        lambda d: edit_value(d, LAYER + "o_proj", placements=(REPLICATE,)),
        "no strategy does that",
    ),
    (
        Stage.PROPAGATE_PLACEMENTS,
        other_output,
        "the output layers.1.q_proj is Shard(1)@a",
    ),
    (
        Stage.LOWER_RESHARDS,
        lambda d: edit_node(d, LAYER + "o_proj.replicate", op="reshard"),
        "still a reshard",
    ),
    (
        Stage.LOWER_RESHARDS,
        lambda d: attribute(d, LAYER + "o_proj.replicate", reduce="max"),
        "from Partial to Replicate",
    ),
    (
        Stage.LOWER_RESHARDS,
        lambda d: attribute(d, LAYER + "o_proj.replicate", size=3),
        "has size 3",
    ),
    (
        Stage.LOWER_RESHARDS,
        lambda d: edit_node(
            d,
            LAYER + "o_proj.replicate",
            op="all_gather",
            attributes={"axes": ("a",), "size": 2, "dim": 0},
        ),
        "all_gather of layers.1.o_proj.replicate over a takes axis a from Partial to Replicate",
    ),
    (Stage.LOWER_RESHARDS, apart, "stand apart"),
    (
        Stage.FUSE_COLLECTIVES,
        lambda d: edit_node(d, LAYER + "o_proj", fused="all_reduce_add_rms_norm:norm"),
        "still marked",
    ),
    (
        Stage.FUSE_COMPUTE,
        lambda d: edit_node(d, LAYER + "o_proj", fused="linear_silu_mul:norm"),
        "still marked",
    ),
    (
        Stage.FUSE_COLLECTIVES,
        lambda d: edit_value(d, LAYER + "o_proj", placements=(REPLICATE,)),
        "has (Replicate, Replicate, Replicate, Replicate) along axis a",
    ),
    (Stage.LOCALIZE, lambda d: wrong_shape(d, LAYER + "silu_mul"), "silu_mul"),
    (Stage.LOCALIZE, lambda d: attribute(d, LAYER + "q_proj", sizes=(48, 24, 12)), "split"),
    (Stage.LOCALIZE, longer_part, "is not its parts"),
    (Stage.PLAN_MEMORY, overlapping, "overwrites layers.1.add"),
    (Stage.PLAN_MEMORY, outside_view, "reaches outside layers.1.qkv_proj"),
    (
        Stage.PLAN_MEMORY,
        lambda d: edit_value(d, "norm", storage=ArenaStorage(10**9, (96, 1))),
        "of an arena of",
    ),
    (Stage.PIN_KERNELS, lambda d: edit_node(d, LAYER + "q_proj", pin="linear.torch"), "the view"),
    (Stage.PIN_KERNELS, lambda d: edit_node(d, "norm", pin="add.torch"), "pinned to add.torch"),
)


@pytest.mark.parametrize("stage", list(Stage))
def test_what_the_passes_make_is_accepted(stage: Stage) -> None:
    verify(drafts()[stage], stage)


@pytest.mark.parametrize(
    ("stage", "mutate", "fragment"), MUTATIONS, ids=[m[2].replace(" ", "-") for m in MUTATIONS]
)
def test_a_broken_plan_is_refused(
    stage: Stage, mutate: Callable[[Draft], Draft], fragment: str
) -> None:
    with pytest.raises(VerifyError) as refusal:
        verify(mutate(drafts()[stage]), stage)
    assert fragment in refusal.value.message
    assert stage.name.lower() in refusal.value.message
    assert refusal.value.where == "program decode_1"


@pytest.mark.parametrize(
    ("stage", "mutate", "fragment"), MUTATIONS, ids=[m[2].replace(" ", "-") for m in MUTATIONS]
)
def test_what_is_known_of_the_plan_hides_no_mutation(
    stage: Stage, mutate: Callable[[Draft], Draft], fragment: str
) -> None:
    known = Known()
    for before in Stage:
        verify(drafts()[before], before, known)
    for _ in range(2):  # what was refused is not known to hold
        with pytest.raises(VerifyError) as refusal:
            verify(mutate(drafts()[stage]), stage, known)
        assert fragment in refusal.value.message


def test_what_is_known_on_one_mesh_is_not_known_on_another() -> None:
    draft, known = drafts()[Stage.LOWER_RESHARDS], Known()
    verify(draft, Stage.LOWER_RESHARDS, known)
    wider = replace(draft.mesh, axes=(replace(draft.mesh.axes[0], size=3),))
    with pytest.raises(VerifyError):
        verify(replace(draft, mesh=wider), Stage.LOWER_RESHARDS, known)


def test_every_invariant_is_the_first_to_refuse_some_mutation() -> None:
    idle = {invariant.check.__name__ for invariant in TABLE}
    for stage, mutate, _ in MUTATIONS:
        draft = mutate(drafts()[stage])
        looked = Looked(draft, draft.programs[0], Known())
        for invariant in TABLE:
            if invariant.first <= stage <= invariant.last and any(
                True for _ in invariant.violations(looked)
            ):
                idle.discard(invariant.check.__name__)
                break
    assert not idle
