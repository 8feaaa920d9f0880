"""The priced ways of one op: absorbed and expanded latent attention, at DeepSeek-V3's sizes."""

from __future__ import annotations

import pytest

from tscompile.cost.model import CostModel
from tscompile.cost.topology import find_topology
from tscompile.rules import RULES, OpTypes
from tscompile.rules.mla import PRICED_CONTEXT
from tscompile.search.variants import cheapest
from tskernels.schema import DType, TensorType
from tsruntime.artifact.schema import Axis

HEADS, NOPE, ROPE, RANK, VALUE, PAGE = 128, 128, 64, 512, 128, 64


def types(tokens: int, sequences: int, pages: int = 512, heads: int = HEADS) -> OpTypes:
    def half(*shape: int) -> TensorType:
        return TensorType(DType.BFLOAT16, shape)

    def whole(*shape: int) -> TensorType:
        return TensorType(DType.INT32, shape)

    inputs = (
        half(tokens, heads, NOPE),
        half(tokens, heads, ROPE),
        half(0, 1, 1, PAGE, RANK + ROPE),
        half(heads * (NOPE + VALUE), RANK),
        whole(sequences, pages),
        whole(sequences),
        whole(sequences + 1),
    )
    attributes = {"scale": 1.0, "absorbed": False}
    return OpTypes(inputs, (half(tokens, heads, VALUE),), attributes)


@pytest.mark.parametrize(
    ("tokens", "sequences", "absorbed"),
    [(1, 1, True), (64, 64, True), (256, 256, True), (128, 1, True), (8192, 8, False)],
)
@pytest.mark.parametrize("heads", [HEADS, HEADS // 4])
def test_decode_absorbs_and_long_prefill_expands(
    tokens: int, sequences: int, absorbed: bool, heads: int
) -> None:
    costs = CostModel(find_topology("h200-nvlink-8"), (Axis("a", 8),))
    way = cheapest(costs, RULES["mla"], types(tokens, sequences, heads=heads))
    assert way.attributes == {"scale": 1.0, "absorbed": absorbed}


def test_operations_are_those_of_the_products() -> None:
    """Counted by the shapes of the matrices that each way multiplies, at 16 rows of 2 sequences."""
    expanded, absorbed = RULES["mla"].ways(types(16, 2))
    keys, context = HEADS * (NOPE + VALUE), PRICED_CONTEXT
    products = [(2 * context, RANK, keys)]
    products += [(16 * HEADS, NOPE + ROPE, context), (16 * HEADS, context, VALUE)]
    assert RULES["mla"].flops(expanded) == sum(2 * m * k * n for m, k, n in products)
    products = [(16 * HEADS, NOPE, RANK), (16 * HEADS, RANK, VALUE)]
    products += [(16 * HEADS, RANK + ROPE, context), (16 * HEADS, context, RANK)]
    assert RULES["mla"].flops(absorbed) == sum(2 * m * k * n for m, k, n in products)


def test_the_context_is_what_a_sequence_can_hold() -> None:
    def traffic(pages: int) -> int:
        return RULES["mla"].traffic(types(1, 1, pages))

    assert traffic(1) < traffic(2) < traffic(PRICED_CONTEXT // PAGE) == traffic(512)


def test_an_op_of_one_way_keeps_its_attributes() -> None:
    row = TensorType(DType.FLOAT32, (4, 8))
    plain = OpTypes((row, row), (row,), {})
    costs = CostModel(find_topology("cpu-gloo"), (Axis("a", 1),))
    assert cheapest(costs, RULES["add"], plain) == plain
