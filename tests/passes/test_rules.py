"""Every strategy of every rule, run: each rank's op on its tiles must make up the whole op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tscompile.ir.placement import Partial, Placement, Replicate, Shard
from tscompile.rewrites.table import REWRITES
from tscompile.rules import RULES, OpTypes, Strategy
from tskernels.op import resolve_attributes, tensor_type
from tskernels.ops import OPS
from tskernels.schema import OpKind

RANKS = 3


@dataclass(frozen=True)
class Case:
    """An op on sizes that three ranks divide."""

    op: str
    inputs: tuple[Tensor | None, ...]
    attributes: dict[str, Any]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


ROWS = tuple(range(6))
# Two sequences of 3 rows each, on pages 1 and 2 of four tokens.
SLOTS, TABLE = whole(4, 5, 6, 8, 9, 10), torch.tensor([[1], [2]], dtype=torch.int32)
LENS, STARTS = whole(3, 3), whole(0, 3, 6)
# Two of six experts for each row; the last row reaches none.
IDS = torch.tensor([[0, 5], [3, 1], [2, 4], [5, 0], [1, 2], [-1, -1]], dtype=torch.int32)
NETWORK = (draw(6, 3, 5), draw(6, 3, 5, seed=1), draw(6, 5, 3, seed=2))

CASES = (
    Case("linear", (draw(6, 9), draw(12, 9), draw(12)), {}),
    Case("linear", (draw(6, 9), draw(12, 9), None), {}),
    Case(
        "scaled_linear",
        (draw(6, 12), draw(18, 12), draw(9, 6), draw(18)),
        {"block": (2, 2)},
    ),
    Case("scaled_linear", (draw(6, 12), draw(18, 12), draw(9, 6), None), {"block": (2, 2)}),
    Case("embedding", (whole(8, 0, 3, 5, 1, 1), draw(9, 6)), {"vocab_start": 0}),
    Case("add", (draw(6, 9), draw(6, 9, seed=1)), {}),
    Case("add", (draw(6, 3, 3), draw(6, 3, 3, seed=1)), {}),
    Case("silu_mul", (draw(6, 9), draw(6, 9, seed=1)), {}),
    Case("rms_norm", (draw(6, 9), draw(9)), {"eps": 1e-6}),
    Case("rms_norm", (draw(6, 3, 4), draw(4)), {"eps": 1e-6}),
    Case("rotary_table", (whole(*ROWS), draw(2)), {"scale": 1.5}),
    Case("rotary", (draw(6, 3, 4), draw(6, 4)), {}),
    Case("kv_write", (draw(6, 3, 4), draw(6, 3, 4, seed=1), draw(3, 2, 3, 4, 4), SLOTS), {}),
    Case(
        "attention",
        (draw(6, 6, 4), draw(3, 2, 3, 4, 4), TABLE, LENS, STARTS, None),
        {"scale": 0.5, "window": 0},
    ),
    Case(
        "attention",
        (draw(6, 6, 4), draw(3, 2, 3, 4, 4), TABLE, LENS, STARTS, draw(6)),
        {"scale": 0.5, "window": 2},
    ),
    Case("route", (draw(6, 9), SLOTS, draw(9)), {"top_k": 2, "groups": 3, "top_groups": 2}),
    Case("experts", (draw(6, 5), IDS, draw(6, 2), *NETWORK, None, None, None), {}),
    Case(
        "experts",
        (draw(6, 5), IDS, draw(6, 2), *NETWORK, draw(6, 3), draw(6, 3), draw(6, 5)),
        {"activation": "swiglu", "alpha": 1.7, "limit": 2.0},
    ),
    Case("latent_write", (draw(6, 5), draw(6, 1, 4), draw(3, 1, 1, 4, 9), SLOTS), {}),
    *(
        Case(
            "mla",
            (
                *(draw(6, 3, 4), draw(6, 3, 2, seed=1), draw(3, 1, 1, 4, 7)),
                *(draw(3 * (4 + 3), 5), TABLE, LENS, STARTS),
            ),
            {"scale": 0.5, "absorbed": absorbed},
        )
        for absorbed in (False, True)
    ),
    Case("select_rows", (draw(6, 9), whole(5, 2, 2)), {}),
    Case("unflatten", (draw(6, 12),), {"size": 4}),
    Case("flatten", (draw(6, 3, 4),), {}),
    Case("split", (draw(6, 9),), {"sizes": (4, 3, 2)}),
    Case("narrow", (draw(6, 9),), {"dim": 1, "start": 2, "size": 5}),
    Case("narrow", (draw(6, 9),), {"dim": 0, "start": 1, "size": 3}),
    Case("narrow", (draw(6, 3, 5),), {"dim": 2, "start": 1, "size": 3}),
)


def run(case: Case, inputs: Sequence[Tensor | None], **changes: object) -> tuple[Tensor, ...]:
    schema = OPS[case.op].schema
    attributes = resolve_attributes(schema, {**case.attributes, **changes})
    fresh = [None if i is None else i.clone() for i in inputs]
    result = schema.reference(*fresh, **attributes)
    return result if isinstance(result, tuple) else (result,)


def tiles(x: Tensor, placement: Placement) -> list[Tensor]:
    """What each rank holds of x; parts of a Partial are random but for their sum."""
    match placement:
        case Replicate():
            return [x] * RANKS
        case Shard(dim):
            return list(x.chunk(RANKS, dim))
        case Partial():
            parts = [draw(*x.shape, seed=10 + rank) for rank in range(RANKS - 1)]
            return [*parts, x - torch.stack(parts).sum(0)]


def joined(parts: list[Tensor], placement: Placement) -> Tensor:
    match placement:
        case Replicate():
            assert all(torch.equal(part, parts[0]) for part in parts)
            return parts[0]
        case Shard(dim):
            return torch.cat(parts, dim)
        case Partial():
            return torch.stack(parts).sum(0)


def types(case: Case) -> OpTypes:
    inputs = tuple(None if i is None else tensor_type(i) for i in case.inputs)
    outputs = tuple(tensor_type(o) for o in run(case, case.inputs))
    return OpTypes(inputs, outputs, case.attributes)


ALL = [
    pytest.param(case, strategy, id=f"{case.op}-{i}-{','.join(map(str, strategy.inputs))}")
    for i, case in enumerate(CASES)
    for strategy in RULES[case.op].strategies(types(case))
]


@pytest.mark.parametrize(("case", "strategy"), ALL)
def test_strategy(case: Case, strategy: Strategy) -> None:
    expected = run(case, case.inputs)
    held = [
        [None] * RANKS if value is None else tiles(value, placement)
        for value, placement in zip(case.inputs, strategy.inputs, strict=True)
    ]
    results: list[tuple[Tensor, ...]] = []
    for rank in range(RANKS):
        changes: dict[str, object] = {}
        if case.op == "embedding" and strategy.inputs[1] == Shard(0):
            changes["vocab_start"] = rank * 3
        if case.op == "experts" and strategy.inputs[3] == Shard(0):
            changes["expert_start"] = rank * 2
        results.append(run(case, [value[rank] for value in held], **changes))
    for position, placement in enumerate(strategy.outputs):
        parts = [result[position] for result in results]
        torch.testing.assert_close(
            joined(parts, placement), expected[position], rtol=1e-9, atol=1e-9
        )


def test_every_op_that_a_model_may_call_has_a_rule_and_a_case() -> None:
    for_compiler = {"mask", "permute", "slice", "dispatch", "combine", *REWRITES}
    called = {
        name
        for name, op in OPS.items()
        if op.schema.kind is not OpKind.COLLECTIVE and name not in for_compiler
    }
    assert set(RULES) == called
    assert {case.op for case in CASES} == called


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        ("rms_norm", ("Partial", "Replicate"), ("Partial",)),
        ("rms_norm", ("Shard(1)", "Replicate"), ("Shard(1)",)),
        ("silu_mul", ("Partial", "Partial"), ("Partial",)),
        ("add", ("Partial", "Replicate"), ("Partial",)),
        ("linear", ("Shard(1)", "Shard(1)", "Replicate"), ("Partial",)),
    ],
)
def test_what_would_be_wrong_is_not_offered(
    op: str, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    case = next(
        c for c in CASES if c.op == op and c.inputs[0] is not None and c.inputs[0].dim() == 2
    )
    offered = {
        (tuple(map(str, s.inputs)), tuple(map(str, s.outputs)))
        for s in RULES[op].strategies(types(case))
    }
    assert (inputs, outputs) not in offered


def test_arithmetic_shrinks_with_the_tiles() -> None:
    """Cut over three ranks, a matrix product costs each a third of its 2 * T * N * K."""
    case = CASES[1]
    assert RULES["linear"].flops(types(case)) == 2 * 6 * 12 * 9
    x, weight = case.inputs[:2]
    assert x is not None
    assert weight is not None
    third = Case("linear", (x, weight[:4], None), {})
    assert RULES["linear"].flops(types(third)) * 3 == RULES["linear"].flops(types(case))
