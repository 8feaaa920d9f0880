"""Schemas of routing and of the experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tskernels.op import define
from tskernels.ops.moe import reference
from tskernels.schema import AttributeValue, DType, TensorType
from tskernels.shapes import (
    floating,
    integer,
    integer_attribute,
    ranked,
    require,
    same,
    same_dtype,
)

SCORINGS = ("softmax", "sigmoid", "softmax_topk")
ACTIVATIONS = ("silu", "swiglu")


def _infer_route(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    logits = ranked("route.logits", inputs[0], 2)
    slots = ranked("route.slots", inputs[1], 1)
    floating("route.logits", logits)
    integer("route.slots", slots)
    rows, count = logits.shape
    same("route rows", ("logits.shape[0]", rows), ("len(slots)", slots.shape[0]))
    if inputs[2] is not None:
        bias = ranked("route.bias", inputs[2], 1)
        floating("route.bias", bias)
        same("route experts", ("logits.shape[1]", count), ("len(bias)", bias.shape[0]))
    top_k = _check_choice(attributes, count)
    shape = (rows, top_k)
    return (TensorType(logits.dtype, shape), TensorType(DType.INT32, shape))


def _check_choice(attributes: Mapping[str, AttributeValue], count: int) -> int:
    """The number of experts a row, which the eligible groups must hold."""
    top_k, groups, top_groups = (
        integer_attribute(attributes, name) for name in ("top_k", "groups", "top_groups")
    )
    scoring = attributes["scoring"]
    require(scoring in SCORINGS, f"route: scoring is {scoring!r}, but must be one of {SCORINGS}")
    require(
        groups >= 1 and count % groups == 0,
        f"route: {count} experts do not divide into {groups} groups",
    )
    require(
        1 <= top_groups <= groups,
        f"route: top_groups is {top_groups}, but there are {groups} groups",
    )
    eligible = count // groups * top_groups
    require(
        1 <= top_k <= eligible,
        f"route: top_k is {top_k}, but {eligible} experts are eligible",
    )
    return top_k


def _infer_experts(
    inputs: Sequence[TensorType | None], attributes: Mapping[str, AttributeValue]
) -> tuple[TensorType, ...]:
    x = ranked("experts.x", inputs[0], 2)
    ids = ranked("experts.ids", inputs[1], 2)
    weights = ranked("experts.weights", inputs[2], 2)
    gate, up, down = (
        ranked(f"experts.{name}", value, 3)
        for name, value in zip(("gate", "up", "down"), inputs[3:6], strict=True)
    )
    same_dtype("experts", x=x, weights=weights, gate=gate, up=up, down=down)
    integer("experts.ids", ids)
    same("experts choices", ("ids", list(ids.shape)), ("weights", list(weights.shape)))
    same("experts rows", ("x.shape[0]", x.shape[0]), ("ids.shape[0]", ids.shape[0]))
    count, width, hidden = gate.shape
    same("experts columns", ("x.shape[1]", x.shape[1]), ("gate.shape[2]", hidden))
    same("experts weights", ("gate", list(gate.shape)), ("up", list(up.shape)))
    same("experts weights", ("needed", [count, hidden, width]), ("down", list(down.shape)))
    _check_biases(inputs, x, gate)
    _check_activation(attributes)
    return (x,)


def _check_biases(inputs: Sequence[TensorType | None], x: TensorType, gate: TensorType) -> None:
    count, width, hidden = gate.shape
    names = (("gate_bias", width), ("up_bias", width), ("down_bias", hidden))
    for (name, size), value in zip(names, inputs[6:9], strict=True):
        if value is not None:
            bias = ranked(f"experts.{name}", value, 2)
            same_dtype("experts", x=x, **{name: bias})
            same(f"experts {name}", ("needed", [count, size]), ("given", list(bias.shape)))


def _check_activation(attributes: Mapping[str, AttributeValue]) -> None:
    start, activation = integer_attribute(attributes, "expert_start"), attributes["activation"]
    limit = attributes["limit"]
    assert isinstance(limit, float)
    require(start >= 0, f"experts: expert_start is {start}, but 0 is the least")
    require(
        activation in ACTIVATIONS,
        f"experts: activation is {activation!r}, but must be one of {ACTIVATIONS}",
    )
    require(
        activation == "silu" or limit > 0,
        f"experts: limit is {limit}, but 'swiglu' clamps to a positive one",
    )


route = define(reference.route, _infer_route, outputs=("weights", "ids"))
experts = define(reference.experts, _infer_experts)
