"""Rotary position embeddings: parameters from a config, and their inverse frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tscompile.ir.errors import ModelConfigError

_Floats: TypeAlias = npt.NDArray[np.float32]

SCALINGS = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Base, kind of scaling and its parameters, as `config.json` names them.

    `table_scale` multiplies cosine and sine (YaRN's attention factor; 1 for the other kinds).
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    original_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    table_scale: float = 1.0


def read_rope(config: Mapping[str, object]) -> RopeScaling:
    """RoPE of a config: `rope_parameters` (transformers 5), or rope_theta with rope_scaling.

    Raises ModelConfigError for a scaling type that is not in SCALINGS and for missing parameters.
    """
    key, parameters = _parameters(config)
    kind = str(parameters.get("rope_type", parameters.get("type", "default")))
    if kind not in SCALINGS:
        raise ModelConfigError(
            f"the RoPE scaling type {kind!r} is not supported",
            remedy=f"supported types: {', '.join(SCALINGS)}",
            where=f"{key}.rope_type",
        )
    if (
        float(parameters.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)))
        != 1
    ):
        raise ModelConfigError(
            "partial_rotary_factor other than 1 is not supported for this architecture",
            remedy="use a checkpoint that rotates whole heads",
            where=f"{key}.partial_rotary_factor",
        )
    theta = float(parameters.get("rope_theta", cast("float", config.get("rope_theta", 10000.0))))
    if kind == "default":
        return RopeScaling(theta)
    return _read_scaling(kind, theta, parameters, key, config)


def _parameters(config: Mapping[str, object]) -> tuple[str, Mapping[str, Any]]:
    """The key that holds the parameters of RoPE, and they."""
    new = cast("Mapping[str, Any] | None", config.get("rope_parameters"))
    key = "rope_scaling" if new is None else "rope_parameters"
    return key, new or cast("Mapping[str, Any] | None", config.get("rope_scaling")) or {}


def _read_scaling(
    kind: str,
    theta: float,
    parameters: Mapping[str, Any],
    key: str,
    config: Mapping[str, object],
) -> RopeScaling:
    def number(name: str, default: float | None = None) -> float:
        value = parameters.get(name)
        if value is None:
            value = default
        if not isinstance(value, int | float):
            raise ModelConfigError(
                f"{name} = {value!r} is no number, and RoPE scaling {kind!r} needs it",
                remedy=f"give {key}.{name}",
                where=f"{key}.{name}",
            )
        return float(value)

    positions = cast("float", config.get("max_position_embeddings", 0))
    rope = RopeScaling(theta, kind, number("factor"))
    if kind == "linear":
        return rope
    original = int(number("original_max_position_embeddings", positions))
    if kind == "llama3":
        low, high = number("low_freq_factor"), number("high_freq_factor")
        return RopeScaling(theta, kind, rope.factor, original, low, high)
    return RopeScaling(
        theta,
        kind,
        rope.factor,
        original,
        beta_fast=number("beta_fast", 32.0),
        beta_slow=number("beta_slow", 1.0),
        truncate=bool(parameters.get("truncate", True)),
        table_scale=_attention_factor(rope.factor, parameters),
    )


def _attention_factor(factor: float, parameters: Mapping[str, Any]) -> float:
    """YaRN's factor on cosine and sine: 0.1 ln(factor) + 1 (arXiv 2309.00071, equation 22)."""
    given = parameters.get("attention_factor")
    if given is not None:
        return float(given)
    above, below = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return (
        _mscale(factor, above) / _mscale(factor, below) if above and below else _mscale(factor, 1.0)
    )


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def attention_scale(config: Mapping[str, object], rope: RopeScaling) -> float:
    """What scaled RoPE multiplies the scores of DeepSeek's attention by: mscale_all_dim's factor
    squared, once for queries and once for keys (DeepSeek-V3's modeling code).
    """
    weight = _parameters(config)[1].get("mscale_all_dim")
    return 1.0 if rope.kind == "default" or not weight else _mscale(rope.factor, weight) ** 2


def inverse_frequencies(rope: RopeScaling, dim: int) -> tuple[float, ...]:
    """The dim / 2 inverse frequencies in float32, rounded where transformers rounds.

    Powers are taken in float64 and rounded once, so that they do not depend on the vector
    instructions of the machine that builds.
    """
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    powers = np.power(np.float64(rope.theta), exponents.astype(np.float64)).astype(np.float32)
    plain = (np.float32(1) / powers).astype(np.float32)
    match rope.kind:
        case "linear":
            scaled = plain / np.float32(rope.factor)
        case "llama3":
            scaled = _llama3(rope, plain)
        case "yarn":
            scaled = _yarn(rope, powers, dim)
        case _:
            scaled = plain
    return tuple(float(x) for x in scaled.astype(np.float32))


def _llama3(rope: RopeScaling, plain: _Floats) -> _Floats:
    """Llama 3.1: long waves divided by the factor, short ones kept, a ramp between them."""
    wavelength = np.float32(2 * math.pi) / plain
    longest = rope.original_positions / rope.low_freq_factor
    shortest = rope.original_positions / rope.high_freq_factor
    factor = np.float32(rope.factor)
    ramp = (np.float32(rope.original_positions) / wavelength - np.float32(rope.low_freq_factor)) / (
        np.float32(rope.high_freq_factor - rope.low_freq_factor)
    )
    between = (np.float32(1) - ramp) * plain / factor + ramp * plain
    outer = np.where(wavelength > longest, plain / factor, plain)
    medium = (wavelength >= shortest) & (wavelength <= longest)
    return np.where(medium, between, outer).astype(np.float32)


def _yarn(rope: RopeScaling, powers: _Floats, dim: int) -> _Floats:
    """YaRN (arXiv 2309.00071): interpolate slow dims, keep fast ones, a linear ramp between."""

    def correction(rotations: float) -> float:
        span = math.log(rope.original_positions / (rotations * 2 * math.pi))
        return dim * span / (2 * math.log(rope.theta))

    low, high = correction(rope.beta_fast), correction(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    steps = np.arange(dim // 2, dtype=np.float32)
    keep = 1 - np.clip((steps - np.float32(low)) / np.float32(high - low), 0, 1)
    kept = np.float32(1) / powers
    interpolated = np.float32(1) / (np.float32(rope.factor) * powers)
    return (interpolated * (1 - keep) + kept * keep).astype(np.float32)
