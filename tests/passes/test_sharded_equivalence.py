"""Plans of one to six ranks, interpreted on real buffers, against the unsharded eager module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from batches import Chunk, batch_inputs, run_whole, worst_position
from checkpoints import FAMILIES, Family
from compile_requests import random_model, tiny_model_config, tiny_request
from interpreter import Interpreter
from torch import Tensor

from tscompile.ir.mesh import ParallelSizes
from tscompile.models import CausalLM
from tscompile.models.annotations import checkpoint_names
from tscompile.passes.pipeline import compile_plan
from tsruntime.artifact.schema import Plan

LIMIT = 1e-9
PAGE_SIZE, MAX_PAGES = 8, 12


def tokens(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return [int(t) for t in torch.randint(300, (length,), generator=generator)]


def state(model: CausalLM) -> dict[str, Tensor]:
    """Parameters by their checkpoint names."""
    assert isinstance(model, torch.nn.Module)
    names = checkpoint_names(model)
    return {names[id(parameter)]: parameter.detach() for parameter in model.parameters()}


def batch(plan: Plan, name: str, chunks: list[Chunk]) -> dict[str, Tensor]:
    program = next(p for p in plan.programs if p.name == name)
    return batch_inputs(
        chunks,
        tokens=program.tokens,
        sequences=program.sequences,
        page_size=PAGE_SIZE,
        max_pages=MAX_PAGES,
        groups=[group.name for group in plan.kv_cache.groups],
    )


def run(interpreter: Interpreter, name: str, chunks: list[Chunk]) -> Tensor:
    """Logits of a step; every rank must hold the same bits."""
    first, *others = interpreter.run(name, batch(interpreter.plan, name, chunks))
    rows = slice(0, sum(len(c.tokens) for c in chunks) if name.endswith("_all") else len(chunks))
    assert all(torch.equal(other[rows], first[rows]) for other in others)
    return first[rows]


def serve(interpreter: Interpreter, model: CausalLM) -> None:
    """Two sequences: chunked prefill beside decodes, in mixed and in pure decode steps."""
    long, short = tokens(50, 1), tokens(12, 2)
    expected_long = run_whole(model, long, torch.float64)
    expected_short = run_whole(model, short, torch.float64)
    pages_long, pages_short = [7, 2, 9, 4, 30, 12, 1], [3, 39]

    def long_chunk(start: int, end: int) -> Chunk:
        return Chunk(long[start:end], start, pages_long)

    def short_chunk(start: int, end: int) -> Chunk:
        return Chunk(short[start:end], start, pages_short)

    def check(logits: Tensor, *rows: Tensor) -> None:
        assert worst_position(logits, torch.stack(rows)) < LIMIT

    whole = run(interpreter, "extend_64x4_all", [long_chunk(0, 30)])
    assert worst_position(whole, expected_long[:30]) < LIMIT
    mixed = run(interpreter, "extend_32x4", [short_chunk(0, 9), long_chunk(30, 47)])
    check(mixed, expected_short[8], expected_long[46])
    mixed = run(interpreter, "extend_32x4", [long_chunk(47, 48), short_chunk(9, 10)])
    check(mixed, expected_long[47], expected_short[9])
    decoded = run(interpreter, "decode_4", [short_chunk(10, 11), long_chunk(48, 49)])
    check(decoded, expected_short[10], expected_long[48])
    decoded = run(interpreter, "decode_1", [long_chunk(49, 50)])
    check(decoded, expected_long[49])
    decoded = run(interpreter, "decode_1", [short_chunk(11, 12)])
    check(decoded, expected_short[11])


def deployed(
    family: Family, sizes: int | ParallelSizes, changes: Mapping[str, Any]
) -> tuple[Interpreter, CausalLM]:
    config = tiny_model_config(family, **changes)
    model = random_model(config, torch.float64)
    plan = compile_plan(tiny_request(config, sizes)).plan
    return Interpreter(plan, state(model)), model


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: Family, world: int) -> None:
    serve(*deployed(family, world, {}))


@pytest.mark.parametrize(
    ("family", "sizes", "changes"),
    [
        # A vocabulary that the ranks do not divide: padded, and the padding cut off.
        ("qwen3", 3, {"vocab_size": 302}),
        ("llama", 6, {"vocab_size": 305}),  # tied
        # Biases after row-parallel linears count once.
        ("llama3", 2, {"attention_bias": True, "mlp_bias": True}),
        ("llama3", 3, {"attention_bias": True, "mlp_bias": True}),
        # Several axes: attention and MLP over different numbers of ranks.
        ("qwen2", ParallelSizes(6, 6, 3), {}),
        ("qwen2", ParallelSizes(6, 6, 2), {"vocab_size": 301}),
        ("llama", ParallelSizes(4, 4, 1), {"num_key_value_heads": 12}),
        ("llama3", ParallelSizes(4, 4, 2, 2, 2), {"num_key_value_heads": 12, "mlp_bias": True}),
        ("llama", ParallelSizes(3, 3, 1), {}),
        # Experts cut over ranks, each one's width over others.
        ("qwen3_moe", ParallelSizes(6, 6, 6, 1, 6), {}),
        ("qwen3_moe", ParallelSizes(6, 6, 6, 2, 3), {}),
        ("qwen3_moe", ParallelSizes(6, 6, 3, 3, 2), {"mlp_only_layers": []}),
    ],
)
def test_options(family: Family, sizes: int | ParallelSizes, changes: dict[str, Any]) -> None:
    serve(*deployed(family, sizes, changes))


def test_the_interpreter_sees_a_wrong_plan() -> None:
    """The check above has teeth: one rank's part of a projection shifted by a column."""
    interpreter, model = deployed("llama", 2, {})
    expected = run_whole(model, tokens(20, 1), torch.float64)
    chunk = Chunk(tokens(20, 1), 0, [5, 6, 8])
    assert worst_position(run(interpreter, "extend_64x4_all", [chunk]), expected) < LIMIT
    weights = interpreter.weights[1]
    name = "model.layers.0.self_attn.o_proj.weight"
    weights[name] = weights[name].roll(1, 1)
    assert worst_position(run(interpreter, "extend_64x4_all", [chunk]), expected) > 1e-3
