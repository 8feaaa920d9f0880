"""Layers that are equal modules are run once: the graph is that of a trace of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from checkpoints import FAMILIES, Family
from compile_requests import tiny_model_config
from torch import Tensor, nn

from tscompile.ir.mesh import ATTN_TP
from tscompile.models import CausalLM, build
from tscompile.models.annotations import CacheLayer, ForwardInputs, Shard
from tscompile.models.config import ModelConfig
from tscompile.models.layers import Linear, RMSNorm
from tscompile.trace import trace
from tskernels import ops

LAYERS = 6


def _check(model: CausalLM, calls: Callable[[], int], run: int) -> None:
    """The copying trace runs so many layers, and its graph is the whole trace's."""
    whole = trace(model, "selected")
    before = calls()
    assert trace(model, "selected", copying=True) == whole
    assert calls() - before == run


def _meta(family: Family, **changes: Any) -> CausalLM:
    with torch.device("meta"):
        return build(tiny_model_config(family, num_hidden_layers=LAYERS, **changes))


KINDS: dict[Family, int] = {"deepseek": 2, "gpt_oss": 2}
"""Kinds of layers, where they are several: dense and sparse, window and full."""


@pytest.mark.parametrize("family", FAMILIES)
def test_one_layer_of_each_kind_is_run(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _meta(family)
    assert isinstance(model, nn.Module)
    kind = type(model.get_submodule("model.layers.0"))
    forward, runs = kind.forward, Counter[str]()

    def counting(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        runs["all"] += 1
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(kind, "forward", counting)
    _check(model, lambda: runs["all"], KINDS.get(family, 1))


@pytest.mark.parametrize("dense", [[], [0], [1, 3, 5], [5]])
def test_layers_of_two_kinds_in_any_order(dense: list[int]) -> None:
    model = _meta("qwen3_moe", mlp_only_layers=dense, num_experts=4, num_experts_per_tok=2)
    assert trace(model, "selected", copying=True) == trace(model, "selected")


class Layer(nn.Module):
    """A norm and a linear, of which each test makes something that differs."""

    again: Linear

    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(8, 1e-6)
        self.proj = Linear(8, 8, bias=False, placement=Shard(ATTN_TP, dim=0))
        self.runs = Counter[str]()

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        self.runs["all"] += 1
        return ops.add(others[0] if others else x, self.proj(self.norm(x)))


class Stack(nn.Module):
    """Layers of which each gets what `given` picks from the values so far."""

    def __init__(self, given: Callable[[list[Tensor]], list[Tensor]] = lambda v: v[-1:]) -> None:
        super().__init__()
        self.config: ModelConfig = tiny_model_config("llama")
        self.cache_layers: tuple[CacheLayer, ...] = ()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.given = given

    def forward(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        values = [inputs.token_ids]
        for layer in self.layers:
            values.append(layer(*self.given(values)))
        return values[-1]


def _stack(given: Callable[[list[Tensor]], list[Tensor]] = lambda v: v[-1:]) -> Stack:
    """Its layers share one counter of runs, and are equal."""
    stack = Stack(given)
    first = stack.layers[0]
    assert isinstance(first, Layer)
    for layer in _layers(stack):
        layer.runs = first.runs
    return stack


def _layers(stack: Stack) -> list[Layer]:
    return [layer for layer in stack.layers if isinstance(layer, Layer)]


def _runs(stack: Stack) -> Callable[[], int]:
    return lambda: _layers(stack)[0].runs["all"]


def test_equal_layers_are_run_once() -> None:
    stack = _stack()
    _check(stack, _runs(stack), 1)


CHANGES: list[tuple[Callable[[Any], Any], int]] = [
    (lambda layer: setattr(layer.norm, "eps", 1e-5), 2),
    (lambda layer: setattr(layer, "norm", nn.Identity()), 2),
    (lambda layer: setattr(layer.proj, "bias", nn.Parameter(torch.empty(8))), 2),
    (lambda layer: setattr(layer.proj, "weight", nn.Parameter(torch.empty(9, 8))), 2),
    (lambda layer: layer.register_buffer("table", torch.empty(8)), 2),
    (lambda layer: setattr(layer, "given", torch.empty(8)), 2),
]


@pytest.mark.parametrize(("change", "run"), CHANGES)
def test_a_layer_that_differs_is_run(change: Callable[[Any], Any], run: int) -> None:
    stack = _stack()
    change(stack.layers[2])
    _check(stack, _runs(stack), run)


def test_attributes_that_are_not_known_to_be_equal_keep_layers_apart() -> None:
    stack = _stack()
    for layer in _layers(stack)[1:]:
        setattr(layer, "given", [torch.empty(8)])  # noqa: B010
    _check(stack, _runs(stack), LAYERS)


GIVEN: list[tuple[Callable[[list[Tensor]], list[Tensor]], int]] = [
    (lambda values: [values[-1], values[-1]], 1),
    (lambda values: [values[-1], values[max(len(values) - 3, 0)]], 2),
    (lambda values: [values[-1], values[0]], 2),
    (lambda values: values[-1:] if len(values) % 2 else [values[-1], values[0]], 2),
]


@pytest.mark.parametrize(("given", "run"), GIVEN)
def test_what_layers_are_called_with(
    given: Callable[[list[Tensor]], list[Tensor]], run: int
) -> None:
    stack = _stack(given)
    _check(stack, _runs(stack), run)


def test_tied_tensors_keep_their_first_name() -> None:
    stack = _stack()
    first, *others = _layers(stack)
    for layer in others[2:]:
        layer.proj.weight = first.proj.weight
    whole = trace(stack, "selected")
    assert trace(stack, "selected", copying=True) == whole
    assert [node.inputs[1] for node in whole.nodes if node.op == "linear"][2:4] == [
        "layers.2.proj.weight",
        "layers.0.proj.weight",
    ]


def test_tensors_that_are_one_in_a_layer_are_one_in_its_copies() -> None:
    stack = _stack()
    for layer in _layers(stack):
        layer.again = Linear(8, 8, bias=False, placement=Shard(ATTN_TP, dim=0))
        layer.again.weight = layer.proj.weight
    _check(stack, _runs(stack), 1)
    last = _layers(stack)[-1]
    last.again.weight = nn.Parameter(torch.empty(8, 8))
    _check(stack, _runs(stack), 2)


def test_a_layer_that_is_used_twice_is_named_twice() -> None:
    stack = _stack()
    stack.layers = nn.ModuleList([_layers(stack)[0]] * 3)
    _check(stack, _runs(stack), 1)


class Nested(nn.Module):
    """A layer of layers, whose values are named after the inner ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_layers_within_layers() -> None:
    stack = _stack()
    runs = Counter[str]()
    stack.layers = nn.ModuleList(Nested() for _ in range(3))
    for nested in stack.layers:
        assert isinstance(nested, Nested)
        for layer in nested.layers:
            assert isinstance(layer, Layer)
            layer.runs = runs
    _check(stack, lambda: runs["all"], 2)
