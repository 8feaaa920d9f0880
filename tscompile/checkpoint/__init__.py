"""Checkpoints: tensors by Hugging Face names and a tokenizer, from whatever format holds them."""

from __future__ import annotations

from .base import Checkpoint, TensorInfo
from .open import locate_source, open_checkpoint, open_weights
from .tensors import check_tensors
from .tokenizer import TokenizerBundle

__all__ = [
    "Checkpoint",
    "TensorInfo",
    "TokenizerBundle",
    "check_tensors",
    "locate_source",
    "open_checkpoint",
    "open_weights",
]
