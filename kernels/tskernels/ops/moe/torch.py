"""route.torch and experts.torch: one stable sort each; only the experts that are reached run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from tskernels.kernel import PORTABLE, BoundCall, Kernel, KernelSpec
from tskernels.ops.moe.reference import TINY
from tskernels.signatures import floats, indices


def bind_route(call: BoundCall) -> Kernel:
    """Scores of logits [T, E], the best by a stable sort, and their weights."""
    logits, slots, bias = call.tensor(0), call.tensor(1), call.inputs[2]
    weights, ids = call.outputs
    wide = torch.promote_types(logits.dtype, torch.float32)
    top_k, groups, top_groups = (call.integer(n) for n in ("top_k", "groups", "top_groups"))
    score = _scorer(cast("str", call.attributes["scoring"]))
    late = call.attributes["scoring"] == "softmax_topk"
    normalize, scale = bool(call.attributes["normalize"]), call.number("scale")

    def run() -> None:
        scores = score(logits.to(wide))
        ranked = scores if bias is None else scores + bias.to(wide)
        if groups > 1:
            ranked = _limited(ranked, groups, top_groups)
        best = ranked.argsort(dim=1, descending=True, stable=True)[:, :top_k]
        chosen = scores.gather(1, best)
        if late:
            chosen = chosen.softmax(dim=1)
        if normalize:
            chosen = chosen / (chosen.sum(dim=1, keepdim=True) + TINY)
        padding = (slots == 0).unsqueeze(1)
        weights.copy_((chosen * scale).masked_fill_(padding, 0.0))
        ids.copy_(best.masked_fill(padding, -1))

    return run


def _scorer(scoring: str) -> Callable[[Tensor], Tensor]:
    if scoring == "softmax":
        return lambda logits: logits.softmax(dim=1)
    return torch.sigmoid if scoring == "sigmoid" else lambda logits: logits


def _limited(scores: Tensor, groups: int, top_groups: int) -> Tensor:
    """Scores [T, E], minus infinity outside the groups whose best two sum highest."""
    grouped = scores.view(scores.shape[0], groups, -1)
    pairs = grouped.sort(dim=2, descending=True).values[:, :, :2].sum(dim=2)
    worst = pairs.argsort(dim=1, descending=True, stable=True)[:, top_groups:]
    index = worst.unsqueeze(2).expand(-1, -1, grouped.shape[2])
    return grouped.scatter(1, index, float("-inf")).flatten(1)


@dataclass(frozen=True, slots=True)
class _Network:
    """The experts' weights of one bound call."""

    gate: Tensor
    up: Tensor
    down: Tensor
    biases: tuple[Tensor | None, Tensor | None, Tensor | None]
    swiglu: tuple[float, float] | None

    def run(self, expert: int, x: Tensor) -> Tensor:
        """Expert `expert` of this shard on rows x [n, H]."""
        gate_bias, up_bias, down_bias = (b if b is None else b[expert] for b in self.biases)
        gate = functional.linear(x, self.gate[expert], gate_bias)
        up = functional.linear(x, self.up[expert], up_bias)
        if self.swiglu is None:
            return functional.linear(functional.silu(gate) * up, self.down[expert], down_bias)
        alpha, limit = self.swiglu
        gate.clamp_(max=limit)
        inner = up.clamp_(-limit, limit).add_(1).mul_(gate).mul_(torch.sigmoid(gate * alpha))
        return functional.linear(inner, self.down[expert], down_bias)


def bind_experts(call: BoundCall) -> Kernel:
    """Rows sorted by expert, one network an expert that some row reaches."""
    x, ids, weights = (call.tensor(i) for i in range(3))
    y = call.outputs[0]
    network = _network(call)
    start, count, top_k = call.integer("expert_start"), network.gate.shape[0], ids.shape[1]
    wide = torch.promote_types(x.dtype, torch.float32)
    total = y if y.dtype == wide else y.new_empty(y.shape, dtype=wide)

    def run() -> None:
        total.zero_()
        local = ids.flatten() - start
        local = local.where((local >= 0) & (local < count), count)
        order = local.argsort(stable=True)
        sizes = torch.bincount(local, minlength=count + 1)[:count]
        first = 0
        for expert in _integers(sizes.nonzero().flatten()):
            last = first + int(sizes[expert])
            places, first = order[first:last], last
            rows = places // top_k
            out = network.run(expert, x[rows])
            share = weights.take(places).to(wide).unsqueeze(1)
            total.index_add_(0, rows, out.to(wide) * share)
        if total is not y:
            y.copy_(total)

    return run


def _network(call: BoundCall) -> _Network:
    gate, up, down = (call.tensor(i) for i in range(3, 6))
    swiglu = (call.number("alpha"), call.number("limit"))
    clamped = swiglu if call.attributes["activation"] == "swiglu" else None
    return _Network(
        gate, up, down, cast("tuple[Tensor, Tensor, Tensor]", call.inputs[6:9]), clamped
    )


def _integers(values: Tensor) -> list[int]:
    return cast("list[int]", values.tolist())  # pyright: ignore[reportUnknownMemberType]


_WEIGHTS = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")

SPECS = (
    KernelSpec(
        "route", "torch", bind_route, PORTABLE, {**floats("logits", "bias"), **indices("slots")}
    ),
    KernelSpec(
        "experts",
        "torch",
        bind_experts,
        PORTABLE,
        {**floats("x", "weights", *_WEIGHTS), **indices("ids")},
    ),
)
