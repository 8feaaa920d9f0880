"""Routing and experts against transformers' and against formulas written out in numpy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DeepseekV3Config, GptOssConfig, Qwen3MoeConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts, GptOssTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from tskernels import ops
from tskernels.schema import AttributeValue, DType, TensorType
from tskernels.shapes import ShapeError

HIDDEN, WIDTH, EXPERTS, ROWS, TOP_K = 24, 10, 16, 33, 4


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]


def redrawn(module: torch.nn.Module) -> Any:
    """The module with every parameter and buffer drawn anew."""
    for tensor in (*module.parameters(), *module.buffers()):
        torch.nn.init.normal_(tensor)
    return module


def sorted_pairs(weights: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Both by rising id: transformers gives the chosen ones in no order."""
    order = ids.argsort(dim=1)
    return weights.gather(1, order), ids.gather(1, order)


def assert_routed(got: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor]) -> None:
    weights, ids = sorted_pairs(*got)
    wanted, chosen = sorted_pairs(*want)
    assert ids.dtype == torch.int32
    assert torch.equal(ids.long(), chosen)
    torch.testing.assert_close(weights, wanted, rtol=1e-5, atol=1e-6)


VALID = torch.ones(ROWS, dtype=torch.int32)


@pytest.mark.parametrize("normalize", [False, True])
def test_softmax_routing_is_qwen3_moes(normalize: bool) -> None:
    config = Qwen3MoeConfig(
        hidden_size=HIDDEN,
        num_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        norm_topk_prob=normalize,
    )
    router = redrawn(Qwen3MoeTopKRouter(config))
    logits, weights, ids = router(torch.randn(ROWS, HIDDEN))
    got = ops.route(logits, VALID, top_k=TOP_K, normalize=normalize)
    assert_routed(got, (weights, ids))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("groups", "top_groups"), [(1, 1), (4, 2), (8, 5)])
def test_sigmoid_routing_is_deepseek_v3s(groups: int, top_groups: int, normalize: bool) -> None:
    config = DeepseekV3Config(
        hidden_size=HIDDEN,
        n_routed_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        n_group=groups,
        topk_group=top_groups,
        norm_topk_prob=normalize,
        routed_scaling_factor=2.5,
    )
    router = redrawn(DeepseekV3TopkRouter(config))
    logits, weights, ids = router(torch.randn(ROWS, HIDDEN))
    got = ops.route(
        logits,
        VALID,
        router.e_score_correction_bias,
        top_k=TOP_K,
        scoring="sigmoid",
        normalize=normalize,
        groups=groups,
        top_groups=top_groups,
        scale=2.5,
    )
    assert_routed(got, (weights, ids))


def test_softmax_over_the_chosen_is_gpt_oss() -> None:
    config = GptOssConfig(hidden_size=HIDDEN, num_local_experts=EXPERTS, num_experts_per_tok=TOP_K)
    router = redrawn(GptOssTopKRouter(config))
    logits, weights, ids = router(torch.randn(ROWS, HIDDEN))
    assert_routed(ops.route(logits, VALID, top_k=TOP_K, scoring="softmax_topk"), (weights, ids))


def test_padding_reaches_no_expert_and_ties_go_to_the_lowest_id() -> None:
    logits = torch.tensor([[1.0, 3, 3, 1, 3], [float("nan")] * 5, [0.0] * 5])
    weights, ids = ops.route(logits, torch.tensor([7, 0, 1], dtype=torch.int32), top_k=4)
    assert ids.tolist() == [[1, 2, 4, 0], [-1] * 4, [0, 1, 2, 3]]  # pyright: ignore[reportUnknownMemberType]
    total = 3 * np.exp(3) + 2 * np.exp(1)
    want = np.array([np.exp([3, 3, 3, 1]) / total, [0] * 4, [0.2] * 4])
    np.testing.assert_allclose(weights.numpy(), want, rtol=1e-6)


def test_of_equal_groups_the_lowest_is_eligible() -> None:
    logits = torch.tensor([[2.0, 0, 1, 1, 2, 0]])
    slots = torch.ones(1, dtype=torch.int32)
    _, ids = ops.route(logits, slots, top_k=2, scoring="sigmoid", groups=3, top_groups=1)
    # sigmoid(2) + sigmoid(0) = 1.381 twice, 2 * sigmoid(1) = 1.462
    assert ids.tolist() == [[2, 3]]  # pyright: ignore[reportUnknownMemberType]
    _, ids = ops.route(logits, slots, top_k=3, scoring="sigmoid", groups=3, top_groups=2)
    assert ids.tolist() == [[0, 2, 3]]  # pyright: ignore[reportUnknownMemberType]


def written_out(x: Tensor, ids: Tensor, weights: Tensor, *parts: Tensor) -> np.ndarray:
    """Every row, choice and expert by itself, in numpy."""
    rows, chosen, share = x.numpy(), ids.numpy(), weights.numpy()
    gate, up, down, gate_bias, up_bias, down_bias = (p.numpy() for p in parts)
    y = np.zeros_like(rows)
    for t in range(rows.shape[0]):
        for j, e in enumerate(chosen[t]):
            g = gate[e] @ rows[t] + gate_bias[e]
            u = up[e] @ rows[t] + up_bias[e]
            y[t] += share[t, j] * (down[e] @ (g / (1 + np.exp(-g)) * u) + down_bias[e])
    return y


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def network() -> tuple[Tensor, ...]:
    matrices = (drawn(EXPERTS, WIDTH, HIDDEN), drawn(EXPERTS, WIDTH, HIDDEN))
    biases = (drawn(EXPERTS, WIDTH), drawn(EXPERTS, WIDTH), drawn(EXPERTS, HIDDEN))
    return (*matrices, drawn(EXPERTS, HIDDEN, WIDTH), *biases)


def chosen() -> tuple[Tensor, Tensor]:
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(ROWS)]).int()
    return ids, torch.rand(ROWS, TOP_K, dtype=torch.float64)


def test_experts_are_the_formula() -> None:
    x, (ids, weights), parts = drawn(ROWS, HIDDEN), chosen(), network()
    got = ops.experts(x, ids, weights, *parts)
    np.testing.assert_allclose(got.numpy(), written_out(x, ids, weights, *parts), rtol=1e-11)


def test_shards_by_experts_and_by_width_add_up() -> None:
    """Experts cut in three uneven shards, each cut in two by width, the down bias on one."""
    x, (ids, weights), parts = drawn(ROWS, HIDDEN), chosen(), network()
    gate, up, down, gate_bias, up_bias, down_bias = parts
    total = torch.zeros_like(x)
    for first, last in pairwise((0, 3, 4, EXPERTS)):
        for left, right in ((0, 6), (6, WIDTH)):
            e, f = slice(first, last), slice(left, right)
            bias = down_bias[e] if left == 0 else torch.zeros_like(down_bias[e])
            shard = (gate[e, f], up[e, f], down[e, :, f], gate_bias[e, f], up_bias[e, f], bias)
            total += ops.experts(x, ids, weights, *shard, expert_start=first)
    whole = ops.experts(x, ids, weights, *parts)
    torch.testing.assert_close(total, whole, rtol=1e-12, atol=1e-12)


def test_clamped_swiglu_is_gpt_oss() -> None:
    config = GptOssConfig(
        hidden_size=HIDDEN,
        intermediate_size=WIDTH,
        num_local_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
    )
    network = redrawn(GptOssExperts(config)).double()
    x, (ids, weights) = 3 * drawn(ROWS, HIDDEN), chosen()
    fused, bias = network.gate_up_proj.detach().mT, network.gate_up_proj_bias.detach()
    got = ops.experts(
        x,
        ids,
        weights,
        fused[:, ::2],
        fused[:, 1::2],
        network.down_proj.detach().mT,
        bias[:, ::2],
        bias[:, 1::2],
        network.down_proj_bias.detach(),
        activation="swiglu",
        alpha=config.swiglu_alpha,
        limit=config.swiglu_limit,
    )
    want = cast("Tensor", network(x, ids.long(), weights)).detach()
    assert (x @ fused[0, ::2].T).abs().max() > config.swiglu_limit
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)


def test_a_row_without_an_expert_here_is_zero_whatever_it_holds() -> None:
    x, (ids, weights), parts = drawn(ROWS, HIDDEN), chosen(), network()
    x[3], ids[3] = float("nan"), -1
    ids[5] = torch.tensor([0, 1, 2, 3])
    held = tuple(part[4:] for part in parts)
    y = ops.experts(x, ids, weights, *held, expert_start=4)
    assert y[[3, 5]].abs().max() == 0
    assert not y.isnan().any()


F32, I32 = DType.FLOAT32, DType.INT32


def t(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"top_k": 9}, "top_k is 9, but 8 experts are eligible"),
        ({"groups": 3}, "8 experts do not divide into 3 groups"),
        ({"groups": 4, "top_groups": 5}, "top_groups is 5, but there are 4 groups"),
        ({"groups": 4, "top_k": 3}, "top_k is 3, but 2 experts are eligible"),
        ({"scoring": "tanh"}, "scoring is 'tanh'"),
    ],
)
def test_routing_that_does_not_fit_is_refused(
    options: dict[str, AttributeValue], says: str
) -> None:
    attributes: dict[str, AttributeValue] = {
        "top_k": 2,
        "groups": 1,
        "top_groups": 1,
        "scoring": "softmax",
        **options,
    }
    with pytest.raises(ShapeError, match=says):
        ops.route.schema.infer((t(3, 8), t(3, dtype=I32), None), attributes)


@pytest.mark.parametrize(
    ("position", "shape", "says"),
    [
        (1, (3, 5), r"ids is \[3, 5\], but weights is \[3, 2\]"),
        (3, (4, 6, 9), r"x.shape\[1\] is 8, but gate.shape\[2\] is 9"),
        (4, (4, 5, 8), r"gate is \[4, 6, 8\], but up is \[4, 5, 8\]"),
        (5, (4, 6, 8), r"needed is \[4, 8, 6\], but down is \[4, 6, 8\]"),
        (8, (4, 6), r"down_bias: needed is \[4, 8\], but given is \[4, 6\]"),
    ],
)
def test_experts_that_do_not_fit_are_refused(
    position: int, shape: tuple[int, ...], says: str
) -> None:
    inputs = [t(3, 8), t(3, 2, dtype=I32), t(3, 2), t(4, 6, 8), t(4, 6, 8), t(4, 8, 6)]
    inputs += [t(4, 6), t(4, 6), t(4, 8)]
    options: dict[str, AttributeValue] = {
        "expert_start": 0,
        "activation": "silu",
        "alpha": 1.0,
        "limit": 0.0,
    }
    assert ops.experts.schema.infer(inputs, options) == (t(3, 8),)
    inputs[position] = TensorType(inputs[position].dtype, shape)
    with pytest.raises(ShapeError, match=says):
        ops.experts.schema.infer(inputs, options)


def test_swiglu_without_a_limit_is_refused() -> None:
    x, (ids, weights), parts = drawn(ROWS, HIDDEN), chosen(), network()
    with pytest.raises(ShapeError, match=r"limit is 0\.0, but 'swiglu' clamps"):
        ops.experts(x, ids, weights, *parts, activation="swiglu")
