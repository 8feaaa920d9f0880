"""GPT-OSS checkpoints: experts' tensors by number, cut out of those that hold all of them.

A layer's `experts.gate_up_proj` [E, H, 2F] holds gate and up projections of all experts, column by
column in turn, and `experts.down_proj` [E, F, H] theirs: both transposed. In MXFP4 they are
`*_blocks` [E, rows, n, 16] and `*_scales` [E, rows, n], not transposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from torch import Tensor

from tscompile.checkpoint.base import Checkpoint, TensorInfo, require_finite
from tscompile.checkpoint.mxfp4 import BLOCK, dequantize
from tscompile.checkpoint.tokenizer import TokenizerBundle
from tscompile.errors import CheckpointDamagedError

ARCHITECTURE: Final = "GptOssForCausalLM"

_FUSED = re.compile(r"(.*\.experts)\.(gate_up|down)_proj(_bias|_blocks|_scales|)")


@dataclass(frozen=True, slots=True)
class _Source:
    """Where an expert's tensor is: entry `expert` of the tensor `stem` + `kind`.

    Of its rows every second one from `half` on, all where that is None.
    """

    stem: str
    kind: str
    expert: int
    half: int | None


class GptOssCheckpoint:
    """`inner` with `…experts.3.up_proj.weight` and its like in place of what holds them."""

    def __init__(self, inner: Checkpoint) -> None:
        self._inner = inner
        self.config: Mapping[str, object] = inner.config
        self.files: Mapping[str, str] = inner.files
        self.tokenizer: TokenizerBundle | None = inner.tokenizer
        self._sources: dict[str, _Source] = {}
        self.tensors: Mapping[str, TensorInfo] = dict(sorted(self._unpacked()))

    def read(self, name: str) -> Tensor:
        """The tensor, dequantized to bfloat16 where it is MXFP4."""
        source = self._sources.get(name)
        if source is None:
            return self._inner.read(name)
        rows = self._rows(source)
        part = rows if source.half is None else rows[source.half :: 2]
        return require_finite(part.contiguous(), name, source.stem)

    def read_slice(self, name: str, dim: int, start: int, size: int) -> Tensor:
        """A slice of the tensor."""
        if name not in self._sources:
            return self._inner.read_slice(name, dim, start, size)
        return self.read(name).narrow(dim, start, size).contiguous()

    def _rows(self, source: _Source) -> Tensor:
        """All rows [rows, columns] of one expert, or its biases [rows]."""

        def own(kind: str) -> Tensor:
            return self._inner.read_slice(f"{source.stem}{kind}", 0, source.expert, 1)[0]

        if source.kind == "_blocks":
            return dequantize(own("_blocks"), own("_scales"))
        found = own(source.kind)
        return found if source.kind == "_bias" else found.mT

    def _unpacked(self) -> Iterator[tuple[str, TensorInfo]]:
        for name, info in self._inner.tensors.items():
            match = _FUSED.fullmatch(name)
            if match is None:
                yield name, info
            elif match[3] != "_scales":
                yield from self._experts(name, match, info)
            elif f"{name.removesuffix('_scales')}_blocks" not in self._inner.tensors:
                _damaged(name, "has no blocks beside it")

    def _experts(
        self, name: str, match: re.Match[str], info: TensorInfo
    ) -> Iterator[tuple[str, TensorInfo]]:
        experts, word, kind = match.groups()
        one = self._one(name, kind, info)
        parts = {"gate_proj": 0, "up_proj": 1} if word == "gate_up" else {"down_proj": None}
        if word == "gate_up" and one.shape[0] % 2:
            _damaged(name, f"holds {one.shape[0]} rows, which are not gates and ups in turn")
        rows = one.shape[0] // len(parts)
        last = "bias" if kind == "_bias" else "weight"
        for expert in range(info.shape[0]):
            for part, half in parts.items():
                made = f"{experts}.{expert}.{part}.{last}"
                self._sources[made] = _Source(f"{experts}.{word}_proj", kind, expert, half)
                yield made, TensorInfo(one.dtype, (rows, *one.shape[1:]))

    def _one(self, name: str, kind: str, info: TensorInfo) -> TensorInfo:
        """Type of one expert's rows, before gate and up are told apart."""
        wanted = {"_bias": 2, "_blocks": 4, "": 3}[kind]
        if len(info.shape) != wanted:
            _damaged(name, f"is {list(info.shape)}, not of {wanted} dims")
        if kind == "_bias":
            return TensorInfo(info.dtype, info.shape[1:])
        if kind == "":
            return TensorInfo(info.dtype, (info.shape[2], info.shape[1]))
        scales = self._inner.tensors.get(f"{name.removesuffix('_blocks')}_scales")
        if (
            scales is None
            or scales.shape != info.shape[:3]
            or info.shape[3] != BLOCK // 2
            or {info.dtype, scales.dtype} != {"uint8"}
        ):
            beside = "none" if scales is None else f"{scales.dtype} {list(scales.shape)}"
            _damaged(name, f"is {info.dtype} {list(info.shape)}, its scales are {beside}")
        return TensorInfo("bfloat16", (info.shape[1], info.shape[2] * BLOCK))


def _damaged(name: str, what: str) -> NoReturn:
    raise CheckpointDamagedError(f"{name} {what}", remedy="fetch the checkpoint again", where=name)
