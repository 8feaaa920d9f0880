"""Compares the checkpoint's tensors with those of the model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from tscompile.checkpoint.base import Checkpoint
from tscompile.errors import TensorMismatchError

HARMLESS: Final = re.compile(r"(.*\.)?rotary_emb\.inv_freq")
"""A buffer that old transformers releases saved and that the config determines."""

LAYER: Final = re.compile(r"(?:.*\.)?layers\.(\d+)\.")

FLOATS: Final = ("float32", "bfloat16", "float16", "float64")
QUANTIZED: Final = ("float8_e4m3fn",)

MAX_LISTED: Final = 50
"""Differences listed in full; the rest are counted."""


def check_tensors(
    checkpoint: Checkpoint,
    expected: Mapping[str, tuple[int, ...]],
    *,
    tied: bool,
    where: str,
    drafts: range = range(0),
    quantized: Collection[str] = frozenset(),
) -> None:
    """Refuse a tensor too many, one too few, of another shape or no float; all in one error.

    `expected` maps each parameter's Hugging Face name to its shape; the `quantized` of them are
    float8, and no others. A saved `lm_head.weight` is
    ignored where the embedding is `tied` to it, as transformers does, and so are `HARMLESS` and
    everything of the layers `drafts`, which only guess further tokens.
    """
    found = checkpoint.tensors
    lines = [
        f"{name} {list(shape)} is missing"
        for name, shape in sorted(expected.items())
        if name not in found
    ]
    for name, info in sorted(found.items()):
        wanted = expected.get(name)
        if wanted is None and not _harmless(name, tied=tied, drafts=drafts):
            lines.append(f"{name} {list(info.shape)} is one too many")
        elif wanted is not None and info.dtype not in (legal := _legal(name, quantized)):
            lines.append(f"{name} has the dtype {info.dtype}, not one of {', '.join(legal)}")
        elif wanted is not None and tuple(wanted) != info.shape:
            lines.append(f"{name} is {list(info.shape)}, the model's is {list(wanted)}")
    if not lines:
        return
    shown = lines[:MAX_LISTED]
    if len(lines) > MAX_LISTED:
        shown.append(f"and {len(lines) - MAX_LISTED} more")
    text = shown[0] if len(shown) == 1 else f"{len(lines)} differences\n  " + "\n  ".join(shown)
    raise TensorMismatchError(
        f"the checkpoint's tensors are not the model's: {text}",
        remedy="use the config.json that the checkpoint was saved with, or fetch it again",
        where=where,
    )


def _legal(name: str, quantized: Collection[str]) -> tuple[str, ...]:
    return QUANTIZED if name in quantized else FLOATS


def _harmless(name: str, *, tied: bool, drafts: range) -> bool:
    layer = LAYER.match(name)
    return (
        HARMLESS.fullmatch(name) is not None
        or (tied and name == "lm_head.weight")
        or (layer is not None and int(layer[1]) in drafts)
    )
