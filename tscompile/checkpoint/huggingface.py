"""A checkpoint in Hugging Face layout: config.json, safetensors in one file or more, tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final, NoReturn, cast

from torch import Tensor

from tscompile.checkpoint.base import FileDigests, TensorInfo, require_finite
from tscompile.checkpoint.json_file import read_json
from tscompile.checkpoint.safetensors_file import SafetensorsFile
from tscompile.checkpoint.tokenizer import TokenizerBundle
from tscompile.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointUnsupportedError,
)

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
AUXILIARY: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
"""Files besides the weights that a build may read."""


class HuggingFaceCheckpoint:
    """An opened directory. Headers are read and checked; tensors when asked for."""

    def __init__(self, directory: Path, tokenizer: TokenizerBundle | None) -> None:
        self.directory = directory
        self.tokenizer = tokenizer
        self.config: Mapping[str, object] = read_config(directory / "config.json")
        names, index = _weight_files(directory)
        self._files = {name: SafetensorsFile(directory / name) for name in names}
        self._owner = _owners(self._files)
        _check_index(index, self._owner, directory / INDEX)
        self.tensors: Mapping[str, TensorInfo] = {
            name: self._files[file].entries[name].info for name, file in self._owner.items()
        }
        self.files: Mapping[str, str] = FileDigests(consumed_files(directory, names))

    def read(self, name: str) -> Tensor:
        """The tensor as stored, mapped from its file."""
        return self._finite(self._file(name).read(name), name)

    def read_slice(self, name: str, dim: int, start: int, size: int) -> Tensor:
        """A contiguous copy of a slice of the tensor."""
        part = self._file(name).read(name).narrow(dim, start, size).contiguous()
        return self._finite(part, name)

    def _file(self, name: str) -> SafetensorsFile:
        return self._files[self._owner[name]]

    def _finite(self, tensor: Tensor, name: str) -> Tensor:
        return require_finite(tensor, name, str(self._file(name).path))


def read_config(path: Path) -> Mapping[str, object]:
    """A config.json, of a checkpoint whose tensors are plain or scaled in blocks: fp8, MXFP4.

    Other quantizations are refused here; whether the compiler takes the blocks is for it to say.
    """
    config = read_json(path)
    quantization = config.get("quantization_config")
    if quantization is not None:
        method = cast("Mapping[str, object]", quantization).get("quant_method", "unknown")
        if method in ("fp8", "mxfp4"):
            return config
        raise CheckpointUnsupportedError(
            f"the checkpoint is quantized ({method}), which is not supported",
            remedy="use the model's unquantized checkpoint",
            where=f"{path} quantization_config",
        )
    return config


def consumed_files(directory: Path, weights: tuple[str, ...]) -> dict[str, Path]:
    """Every file of `directory` that a build reads, by name."""
    names = [*AUXILIARY, *weights, *(() if weights == (SINGLE,) else (INDEX,))]
    return {name: directory / name for name in names if (directory / name).is_file()}


def _weight_files(directory: Path) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Weight files by name, and the index from tensor to file (empty for a single file)."""
    if (directory / SINGLE).exists():
        return (SINGLE,), {}
    index = directory / INDEX
    if not index.exists():
        _no_weights(directory)
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        _damaged(index, "weight_map is missing or empty")
    table = cast("dict[str, object]", weight_map)
    for tensor, file in table.items():
        if not isinstance(file, str) or PurePath(file).name != file:
            _damaged(index, f"{tensor} is in {file!r}, which is no plain file name")
    owners = cast("dict[str, str]", table)
    return tuple(sorted(set(owners.values()))), owners


def _no_weights(directory: Path) -> NoReturn:
    pickled = sorted(p.name for p in directory.glob("*.bin")) if directory.is_dir() else []
    found = f"; {pickled[0]} is a pickle, which is never read" if pickled else ""
    raise CheckpointNotFoundError(
        f"there is neither {SINGLE} nor {INDEX}{found}",
        remedy="name a directory with safetensors weights",
        where=str(directory),
    )


def _owners(files: Mapping[str, SafetensorsFile]) -> Mapping[str, str]:
    """The file of each tensor; one in two files is refused."""
    owner: dict[str, str] = {}
    for file, opened in files.items():
        for name in opened.entries:
            if name in owner:
                _damaged(opened.path, f"{name} is in {owner[name]} too")
            owner[name] = file
    return dict(sorted(owner.items()))


def _check_index(index: Mapping[str, str], owner: Mapping[str, str], path: Path) -> None:
    for name, file in index.items():
        if owner.get(name) != file:
            actual = f"it is in {owner[name]}" if name in owner else "that file does not have it"
            _damaged(path, f"{name} should be in {file}, but {actual}")


def _damaged(path: Path, message: str) -> NoReturn:
    raise CheckpointDamagedError(message, remedy="fetch the checkpoint again", where=str(path))
