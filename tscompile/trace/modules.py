"""The modules of a model and what they hold: their own state, since torch's walks take long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from torch import Tensor, nn

from tscompile.models.annotations import checkpoint_name

PARAMETERS, BUFFERS, CHILDREN = "_parameters", "_buffers", "_modules"
"""What a module's state holds its tensors and the modules in it under."""


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """All modules by path, one that is shared by its first."""
    return dict(cast("Iterable[tuple[str, nn.Module]]", model.named_modules()))


def held(module: nn.Module, table: str) -> Iterator[tuple[str, Tensor]]:
    """A module's own tensors by attribute name."""
    found = cast("Mapping[str, Tensor | None]", vars(module)[table])
    return ((name, tensor) for name, tensor in found.items() if tensor is not None)


def tensor_names(modules: Mapping[str, nn.Module]) -> dict[int, str]:
    """Names of a model's tensors by identity, parameters' as in checkpoints."""
    names: dict[int, str] = {}
    for path, module in modules.items():
        for attribute, tensor in held(module, PARAMETERS):
            names.setdefault(id(tensor), checkpoint_name(path, module, attribute))
        for attribute, tensor in held(module, BUFFERS):
            names.setdefault(id(tensor), f"{path}.{attribute}" if path else attribute)
    return names
