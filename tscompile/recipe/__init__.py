"""The recipe: one deployment in YAML, validated, every default spelled out."""

from __future__ import annotations

from .against_model import check_model_length, check_parallel, kv_pages
from .load import load
from .recipe import Recipe

__all__ = ["Recipe", "check_model_length", "check_parallel", "kv_pages", "load"]
