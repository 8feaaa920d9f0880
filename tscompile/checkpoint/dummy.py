"""A config without a checkpoint: the weights are generated, for any model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from torch import Tensor

from tscompile.checkpoint.base import FileDigests, TensorInfo
from tscompile.checkpoint.huggingface import read_config
from tscompile.checkpoint.tokenizer import TokenizerBundle


class DummyCheckpoint:
    """A config.json. It has no tensors to read: the runtime generates them."""

    def __init__(self, config: Path, tokenizer: TokenizerBundle | None) -> None:
        self.config: Mapping[str, object] = read_config(config)
        self.tensors: Mapping[str, TensorInfo] = {}
        self.files: Mapping[str, str] = FileDigests({config.name: config})
        self.tokenizer = tokenizer

    def read(self, name: str) -> NoReturn:
        """Always a KeyError: dummy weights are generated."""
        raise KeyError(name)

    def read_slice(self, name: str, dim: int, start: int, size: int) -> Tensor:
        """Always a KeyError: dummy weights are generated."""
        raise KeyError(name)
