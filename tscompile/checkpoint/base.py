"""What the compiler needs of a checkpoint, wherever it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from tscompile.checkpoint.digest import file_sha256
from tscompile.checkpoint.tokenizer import TokenizerBundle
from tscompile.errors import NonFiniteWeightError


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Type of a checkpoint tensor as `read` returns it: torch's dtype name, and shape."""

    dtype: str
    shape: tuple[int, ...]


class Checkpoint(Protocol):
    """Config, tensors by Hugging Face names, tokenizer. Opening it reads headers alone."""

    @property
    def config(self) -> Mapping[str, object]:
        """config.json of the Hugging Face layout; synthesised where the format has none."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name. Empty for dummy weights, which fit any model."""
        ...

    @property
    def files(self) -> Mapping[str, str]:
        """SHA-256 of each file that the checkpoint consists of, by file name; read when asked."""
        ...

    @property
    def tokenizer(self) -> TokenizerBundle | None:
        """Tokenizer, template and special tokens; None takes token ids only."""
        ...

    def read(self, name: str) -> Tensor:
        """The tensor `name`, dequantized. Raises `NonFiniteWeightError`; KeyError for no such."""
        ...

    def read_slice(self, name: str, dim: int, start: int, size: int) -> Tensor:
        """`read(name).narrow(dim, start, size)`, reading little more than that from the file."""
        ...


class FileDigests(Mapping[str, str]):
    """SHA-256 by file name, computed once when first asked."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = dict(sorted(paths.items()))
        self._digests: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._digests:
            self._digests[name] = file_sha256(self._paths[name])
        return self._digests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def require_finite(tensor: Tensor, name: str, where: str) -> Tensor:
    """`tensor` itself, refused where it holds NaN or infinity."""
    if not tensor.is_floating_point():
        return tensor
    wide = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # torch cannot look at float8
    if bool(torch.isfinite(wide).all()):
        return tensor
    finite = torch.isfinite(wide).reshape(-1)
    index = int((~finite).nonzero()[0])
    value = float(wide.reshape(-1)[index])
    count = int(tensor.numel()) - int(finite.sum())
    raise NonFiniteWeightError(
        f"{name} holds {count} values that are not finite, first {value} at flat index {index}",
        remedy="fetch the checkpoint again, or fix its export",
        where=where,
    )
