"""What model authors write: placements by group, on weights and at module boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from torch import Tensor, nn

from tscompile.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Replicate:
    """Equal on every rank of `group`."""

    group: str


@dataclass(frozen=True, slots=True)
class Shard:
    """Dimension `dim` cut over the ranks of `group`.

    `padded` marks a vocabulary: zeros may stand behind the dim's end where the ranks do not divide
    it, and the compiler may replicate the weight instead where that is predicted to be faster.
    """

    group: str
    dim: int
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Partial:
    """The sum over the ranks of `group`."""

    group: str


Annotation: TypeAlias = Replicate | Shard | Partial

WeightAnnotation: TypeAlias = Annotation | tuple[Annotation, ...]
"""Of a weight: over one group, or over several that share no axis."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Placements at a module's edge: of its first argument and of what it returns.

    They speak of their groups' axes only, and are checked against the body.
    """

    input: Annotation
    output: Annotation


def boundary_of(module: nn.Module) -> Boundary | None:
    """What a module declares as its class's or its own `boundary`, if it does."""
    return cast("Boundary | None", getattr(module, "boundary", None))


def placements_of(module: nn.Module) -> Mapping[str, WeightAnnotation]:
    """How a module places its own parameters, by attribute name: its `placements`."""
    return cast("Mapping[str, WeightAnnotation]", getattr(module, "placements", {}))


def wide_of(module: nn.Module) -> frozenset[str]:
    """Parameters of a module, by attribute name, that stay float32 in a narrower model: `wide`."""
    return cast("frozenset[str]", getattr(module, "wide", frozenset[str]()))


def quantized_of(module: nn.Module) -> frozenset[str]:
    """Parameters of a module, by attribute name, that stay float8_e4m3fn: its `quantized`."""
    return cast("frozenset[str]", getattr(module, "quantized", frozenset[str]()))


def stacks_of(module: nn.Module) -> Mapping[str, str]:
    """Parameters of a module that stack checkpoint tensors along dim 0: its `stacks`.

    By attribute name, what those tensors are called below the module's own path, `{}` standing
    for their number: `{}.gate_proj.weight`.
    """
    return cast("Mapping[str, str]", getattr(module, "stacks", {}))


def checkpoint_name(path: str, module: nn.Module, attribute: str) -> str:
    """Checkpoint name of the parameter `attribute` of the module at `path`.

    `model.layers.3.mlp.gate.weight`; of a stack `model.layers.3.mlp.experts.{}.up_proj.weight`.
    """
    local = stacks_of(module).get(attribute, attribute)
    return f"{path}.{local}" if path else local


def checkpoint_names(model: nn.Module) -> dict[int, str]:
    """Checkpoint names of a model's parameters by identity: a shared one has its first name."""
    names: dict[int, str] = {}
    for path, module in cast("Iterable[tuple[str, nn.Module]]", model.named_modules()):
        for attribute, tensor in module.named_parameters(recurse=False):
            names.setdefault(id(tensor), checkpoint_name(path, module, attribute))
    return names


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """KV cache of one layer: [pages, planes, kv_heads, page_size, head_dim].

    `window` in tokens or 0; two `planes` hold keys and values, one holds latents.
    """

    group: str
    kv_heads: int
    head_dim: int
    window: int
    placement: Annotation
    planes: int = 2


@dataclass(frozen=True, slots=True)
class ForwardInputs:
    """Inputs of one forward: int32 tensors with the names and shapes of `schema.Program`.

    `logit_rows` is None where every row gives logits. Slots and block tables are by cache group.
    """

    token_ids: Tensor
    positions: Tensor
    query_starts: Tensor
    seq_lens: Tensor
    logit_rows: Tensor | None
    slot_mapping: Mapping[str, Tensor]
    block_table: Mapping[str, Tensor]


class CausalLM(Protocol):
    """A decoder that the compiler can trace and that runs eagerly as the reference."""

    config: ModelConfig
    cache_layers: tuple[CacheLayer, ...]

    def forward(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        """Logits [rows, vocab_size]; writes keys and values into `caches`, one a layer."""
        ...

    def __call__(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        """Run `forward`."""
        ...

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """As nn.Module's."""
        ...
