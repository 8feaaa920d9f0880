"""The traced graph: ops, parameters and module boundaries of a model, without any size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tscompile.ir.repeats import Names, Repeats
from tscompile.models.annotations import Boundary, CacheLayer, WeightAnnotation
from tskernels.schema import DType
from tsruntime.artifact.schema import Attribute

RESHARD = "reshard"
"""Op of a node that changes a value's placement, before a collective is chosen for it."""

SCATTER_DIGITS, GATHER_DIGITS = "scatter_digits", "gather_digits"
"""Attributes of a reshard: the axes that may cut the dim that it scatters (gathers), innermost
first, where there are several.
"""

_LAYER = re.compile(r"^(?:.*\.)?layers\.(\d+)(?=\.|$)")


@dataclass(frozen=True, slots=True)
class Node:
    """One op: schema name (or RESHARD), values by name, attributes, and who asked for it.

    `pin` is the kernel's name once `pin_kernels` has run, empty before. `fused` marks the nodes
    that the search took as one: `<fused op>:<last value>`, the same for all of them, until the
    passes that fuse have made them one node.
    """

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    module: str
    pin: str = ""
    fused: str = ""

    @property
    def layer(self) -> int | None:
        """The layer in which it ends: that of the last value which it, or its fusion, gives."""
        return layer_of(self.fused.partition(":")[2] or self.outputs[-1])

    def reading(self, inputs: tuple[str | None, ...]) -> Node:
        """The same op of other inputs."""
        kept = self.outputs, self.attributes, self.module, self.pin, self.fused
        return self if inputs == self.inputs else Node(self.op, inputs, *kept)

    def pinned(self, kernel: str) -> Node:
        """The same op done by a kernel."""
        kept = self.inputs, self.outputs, self.attributes, self.module
        return Node(self.op, *kept, kernel, self.fused)

    def renamed(self, names: Names) -> Node:
        """The same op of another layer."""
        return Node(
            self.op,
            tuple([None if name is None else names[name] for name in self.inputs]),
            tuple([names[name] for name in self.outputs]),
            self.attributes,
            names[self.module],
            self.pin,
            names[self.fused],
        )


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight of the model by its checkpoint name, with its annotation if it has one.

    A `stacked` one is made of as many checkpoint tensors as its dim 0 has entries; `{}` in its name
    stands for their number. A `wide` one is float32 in a plan of a narrower dtype, a `quantized`
    one float8_e4m3fn in any.
    """

    name: str
    shape: tuple[int, ...]
    annotation: WeightAnnotation | None
    stacked: bool = False
    wide: bool = False
    quantized: bool = False

    def dtype(self, model: DType) -> DType:
        """Its type in a plan of dtype `model`."""
        if self.quantized:
            return DType.FLOAT8_E4M3
        return model.wide if self.wide else model


@dataclass(frozen=True, slots=True)
class Constant:
    """A one-dimensional value derived from the config alone."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ModuleEdges:
    """The values that enter (first argument) and leave a module that annotates its boundary."""

    module: str
    input: str
    output: str
    boundary: Boundary


@dataclass(frozen=True, slots=True)
class Graph:
    """A model's forward, traced once for each set of inputs it can be given.

    `inputs` are the program inputs that it reads; caches are the values that `cache_name` names;
    `output` holds the logits. Its `repeats` are layers that stand for more of the model's.
    """

    inputs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    constants: tuple[Constant, ...]
    caches: tuple[CacheLayer, ...]
    nodes: tuple[Node, ...]
    edges: tuple[ModuleEdges, ...]
    output: str
    repeats: Repeats = ()


def cache_name(layer: int) -> str:
    """Name of the cache value of a layer."""
    return f"layers.{layer}.cache"


@lru_cache(maxsize=1 << 16)
def layer_of(name: str) -> int | None:
    """The layer that a module, weight or value belongs to by its name, or None."""
    match = _LAYER.match(name)
    return int(match[1]) if match else None
