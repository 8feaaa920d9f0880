"""A checkpoint in a GGUF file, dequantized to float32 and named as in Hugging Face layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize
from torch import Tensor

from tscompile.checkpoint.base import FileDigests, TensorInfo, require_finite
from tscompile.checkpoint.gguf_config import architecture, hf_name, synthesise_config
from tscompile.checkpoint.gguf_file import GgufFile, TensorEntry
from tscompile.checkpoint.tokenizer import TokenizerBundle
from tscompile.errors import CheckpointDamagedError, CheckpointUnsupportedError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]


class GgufCheckpoint:
    """An opened GGUF file. Its structure is checked; tensors are dequantized when asked for."""

    def __init__(self, file: GgufFile, tokenizer: TokenizerBundle | None) -> None:
        self._file = file
        self.tokenizer = tokenizer
        self.config: Mapping[str, object] = synthesise_config(file)
        for entry in {entry.type: entry for entry in file.tensors.values()}.values():
            _require_dequantizer(entry, file.path)
        self._entries = {hf_name(entry.name): entry for entry in file.tensors.values()}
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo("float32", self._entries[name].shape) for name in sorted(self._entries)
        }
        self.files: Mapping[str, str] = FileDigests({file.path.name: file.path})
        self._row_heads = self._permuted_heads()

    def read(self, name: str) -> Tensor:
        """The tensor in float32."""
        return self.read_slice(name, 0, 0, self.tensors[name].shape[0])

    def read_slice(self, name: str, dim: int, start: int, size: int) -> Tensor:
        """A slice in float32; just the rows, or the quantization blocks, that hold it are read."""
        entry = self._entries[name]
        if dim == 0 and len(entry.shape) == 2:
            values = self._rows(name, entry, start, size)
        elif dim == 1 and len(entry.shape) == 2:
            values = self._columns(name, entry, start, size)
        else:
            whole = self._dequantize(entry, self._bytes(entry)).reshape(entry.shape)
            values = self._unpermuted(name, whole).take(range(start, start + size), axis=dim)
        tensor = torch.from_numpy(np.require(values, requirements=["C", "W"]))  # pyright: ignore[reportUnknownMemberType]
        return require_finite(tensor, name, str(self._file.path))

    def _rows(self, name: str, entry: TensorEntry, start: int, size: int) -> Floats:
        """Rows [start, start + size): of whole heads where rows move within their head."""
        step = entry.shape[0] // self._row_heads.get(name, entry.shape[0])
        first, last = start // step, -(-(start + size) // step)
        values = self._dequantize(entry, self._bytes(entry)[first * step : last * step])
        if name in self._row_heads:
            values = unpermute(values, last - first)
        return values[start - first * step :][:size]

    def _columns(self, name: str, entry: TensorEntry, start: int, size: int) -> Floats:
        """Columns [start, start + size), dequantizing the blocks that hold them."""
        block, block_bytes = GGML_QUANT_SIZES[entry.type]
        first, last = start // block, -(-(start + size) // block)
        raw = self._bytes(entry)[:, first * block_bytes : last * block_bytes]
        values = self._unpermuted(name, self._dequantize(entry, np.ascontiguousarray(raw)))
        return values[:, start - first * block :][:, :size]

    def _bytes(self, entry: TensorEntry) -> Bytes:
        """The stored bytes as [rows, bytes of a row], mapped."""
        flat = np.frombuffer(
            self._file.data, np.uint8, count=entry.end - entry.begin, offset=entry.begin
        )
        return flat.reshape(-1, entry.row_bytes)

    def _dequantize(self, entry: TensorEntry, raw: Bytes) -> Floats:
        return np.asarray(cast("Any", dequantize)(raw, entry.type), np.float32)

    def _unpermuted(self, name: str, values: Floats) -> Floats:
        heads = self._row_heads.get(name)
        return values if heads is None else unpermute(values, heads)

    def _permuted_heads(self) -> Mapping[str, int]:
        """Heads of each tensor whose rows are interleaved for ggml's RoPE, by name."""
        if not architecture(self._file).permuted:
            return {}
        heads = {
            "q_proj": cast("int", self.config["num_attention_heads"]),
            "k_proj": cast("int", self.config["num_key_value_heads"]),
        }
        found: dict[str, int] = {}
        for name, entry in self._entries.items():
            count = heads.get(name.split(".")[-2])
            if count is not None:
                if entry.shape[0] % (2 * count):
                    raise CheckpointDamagedError(
                        f"{entry.name} has {entry.shape[0]} rows, no multiple of 2 * {count} heads",
                        remedy="fetch the file again",
                        where=str(self._file.path),
                    )
                found[name] = count
        return found


def unpermute(values: Floats, heads: int) -> Floats:
    """Rows of `heads` heads from pairs (0, 1), (2, 3), … to halves, as Hugging Face's RoPE wants.

    Undoes llama.cpp's `permute` (convert_hf_to_gguf.py).
    """
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _require_dequantizer(entry: TensorEntry, path: Path) -> None:
    """Refuse a type that the gguf package cannot dequantize, by trying one block."""
    block = np.zeros((1, GGML_QUANT_SIZES[entry.type][1]), np.uint8)
    try:
        cast("Any", dequantize)(block, entry.type)
    except NotImplementedError:
        raise CheckpointUnsupportedError(
            f"{entry.name} has the type {entry.type.name}, which cannot be dequantized",
            remedy="use a checkpoint quantized otherwise, such as Q8_0 or Q4_K",
            where=str(path),
        ) from None
