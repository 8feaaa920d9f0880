"""Spells out every default that depends on another key, before the recipe is validated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import cast, get_args

from .buckets import default_decode, default_extend
from .kv_cache import Float, default_pages
from .limits import DEFAULT_MAX_BATCH, DEFAULT_STEPS_IN_FLIGHT, DEFAULT_TOKEN_BUDGET
from .source import plain
from .target import ARCHS, TOPOLOGIES, Device


def spell_out(data: dict[str, object]) -> dict[str, object]:
    """A copy of a recipe's data with derived defaults filled in.

    Where the key that a default derives from is itself wrong, the default is derived from that
    key's own default instead; validation then reports the wrong key alone.
    """
    full: dict[str, object] = {
        name: _written(plain(value)) if _is_section(value) else value
        for name, value in _written(data).items()
    }
    device = _device(full)
    full.setdefault("dtype", "float32" if device == "cpu" else "bfloat16")
    _fill(full, "model", _model(plain(full.get("model"))))
    if device == "cpu":
        _fill(full, "target", {"arch": ARCHS["cpu"][0], "topology": TOPOLOGIES["cpu"][0]})
    _fill(full, "parallel", _parallel(plain(full.get("parallel"))))
    limits = {
        "max_batch": DEFAULT_MAX_BATCH[device],
        "token_budget": DEFAULT_TOKEN_BUDGET[device],
        "max_model_len": 2048,
    }
    _fill(full, "limits", {**limits, "steps_in_flight": DEFAULT_STEPS_IN_FLIGHT[device]})
    limits = {name: _count(plain(full["limits"]), name, value) for name, value in limits.items()}
    _fill(full, "buckets", _buckets(limits))
    _fill(full, "kv_cache", _kv_cache(plain(full.get("kv_cache")), limits, full["dtype"]))
    full.setdefault("chat", {})
    return full


def _written(data: Mapping[str, object]) -> dict[str, object]:
    """The keys that have a value: `key:` with nothing after it is as good as not written."""
    return {name: value for name, value in data.items() if value is not None}


def _is_section(value: object) -> bool:
    return isinstance(value, dict)


def _device(data: dict[str, object]) -> Device:
    return "cuda" if plain(data.get("target")).get("device") == "cuda" else "cpu"


def _fill(data: dict[str, object], section: str, defaults: Mapping[str, object]) -> None:
    """Add what is missing in a section; one that isn't a mapping stays for validation to refuse."""
    present = data.setdefault(section, {})
    if isinstance(present, dict):
        for name, value in defaults.items():
            cast("dict[str, object]", present).setdefault(name, value)


def _count(section: object, name: str, default: int) -> int:
    value = plain(section).get(name)
    return value if type(value) is int and value > 0 else default


def _model(model: object) -> dict[str, object]:
    return {"seed": 0} if plain(model).get("weights") == "dummy" else {}


def _parallel(parallel: object) -> dict[str, object]:
    given = plain(parallel)
    world = _count(given, "world", 1)
    ep = _count(given, "moe_ep", 1)
    if "moe_ep" not in given and "moe_tp" in given:
        ep = max(world // _count(given, "moe_tp", world), 1)
    return {
        "attn_tp": world,
        "dense_tp": world,
        "moe_ep": ep,
        "moe_tp": max(world // ep, 1),
    }


def _buckets(limits: dict[str, int]) -> dict[str, object]:
    return {
        "decode": default_decode(limits["max_batch"]),
        "extend": default_extend(limits["token_budget"], limits["max_batch"]),
    }


def _kv_cache(kv_cache: object, limits: dict[str, int], dtype: object) -> dict[str, object]:
    given = plain(kv_cache)
    defaults: dict[str, object] = {"dtype": dtype if dtype in get_args(Float) else "float32"}
    if given.get("memory") is None:
        page_size = _count(given, "page_size", 16)
        defaults["pages"] = default_pages(page_size, limits["max_model_len"], limits["max_batch"])
    if given.get("host_memory") is None:
        defaults["host_pages"] = 0
    return defaults


def spell_digest(data: dict[str, object]) -> None:
    """Turn `model.sha256: text` into a mapping from the GGUF source's file name."""
    model = data.get("model")
    if not isinstance(model, dict):
        return
    section = cast("dict[str, object]", model)
    digest, source = section.get("sha256"), section.get("source")
    if isinstance(digest, str) and isinstance(source, str) and source.endswith(".gguf"):
        section["sha256"] = {PurePosixPath(source).name: digest}
