"""Small deployments for tests of plans and their differences, each compiled once a session."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from checkpoints import Family
from compile_requests import tiny_model_config, tiny_request

from tscompile.communication.compiled import planned_request
from tscompile.communication.parser import parse_golden
from tscompile.communication.plan import CommunicationPlan
from tscompile.communication.printer import golden_text
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest
from tskernels.schema import DType
from tsruntime.artifact.schema import Target

H200 = Target("cpu", "x86_64", "h200-nvlink-8")
"""Kernels of the CPU, which are all there, priced as if on H200s."""


def deployment(
    family: Family = "llama",
    sizes: ParallelSizes | int = 2,
    *,
    dtype: DType = DType.FLOAT32,
    pages: int = 40,
    config: dict[str, Any] | None = None,
    **changes: Any,
) -> CompileRequest:
    """A request of a tiny model; `changes` override its fields, `config` the model's."""
    fields: dict[str, Any] = {
        "dtype": dtype,
        "kv": KvCacheRequest(8, dtype, pages=pages),
        "target": H200,
        "buckets": Buckets((1, 4), ((32, 4),)),
    }
    return tiny_request(tiny_model_config(family, **(config or {})), sizes, **(fields | changes))


@lru_cache(maxsize=64)
def planned_once(request: CompileRequest) -> CommunicationPlan:
    """The communication plan of a request."""
    return planned_request(request)


def edited(plan: CommunicationPlan, old: str, new: str) -> CommunicationPlan:
    """The plan whose committed text has `new` wherever this one's has `old`."""
    text = golden_text(plan)
    assert old in text, old
    return parse_golden(text.replace(old, new), "edited.plan")
