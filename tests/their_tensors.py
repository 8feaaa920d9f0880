"""The tensors of a transformers model as our modules name and shape them, as views of theirs."""

from __future__ import annotations

from typing import Any

from checkpoints import named_tensors
from torch import Tensor


def their_tensors(reference: Any) -> dict[str, Tensor]:
    """By our parameters' names; changing a view changes the reference.

    transformers keeps gate and up of all experts in one tensor: one behind the other [E, 2F, H],
    or, in GPT-OSS, interleaved and transposed [E, H, 2F].
    """
    found: dict[str, Tensor] = {}
    for name, tensor in named_tensors(reference):
        found.update(
            _views(name, tensor.detach(), gpt_oss=hasattr(reference.config, "swiglu_limit"))
        )
    return found


def saved_tensors(reference: Any) -> dict[str, Tensor]:
    """By the names in checkpoints, which hold each expert's matrices by themselves."""
    found: dict[str, Tensor] = {}
    for name, tensor in their_tensors(reference).items():
        stem, _, last = name.rpartition(".")
        if stem.endswith(".experts"):
            kind = "bias" if last.endswith("_bias") else "weight"
            word = last.removesuffix("_bias")
            found.update({f"{stem}.{i}.{word}.{kind}": one for i, one in enumerate(tensor)})
        else:
            found[name] = tensor
    return found


def _views(name: str, tensor: Tensor, *, gpt_oss: bool) -> dict[str, Tensor]:
    stem, _, last = name.rpartition(".")
    if not stem.endswith(".experts"):
        return {name: tensor}
    if gpt_oss:
        tensor = tensor if last.endswith("_bias") else tensor.mT
        halves = (tensor[:, ::2], tensor[:, 1::2])
    else:
        halves = (tensor[:, : tensor.shape[1] // 2], tensor[:, tensor.shape[1] // 2 :])
    if not last.startswith("gate_up_proj"):
        return {name: tensor}
    suffix = last.removeprefix("gate_up_proj")
    gate, up = halves
    return {f"{stem}.gate_proj{suffix}": gate, f"{stem}.up_proj{suffix}": up}
