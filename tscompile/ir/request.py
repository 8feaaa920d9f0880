"""What the compiler is asked for, with every default already resolved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tscompile.ir.mesh import ParallelSizes
from tscompile.models.config import ModelConfig
from tskernels.schema import DType
from tsruntime.artifact.schema import Target


class PolicyName(StrEnum):
    """Whose communication; `ours` is the search without constraint."""

    OURS = "ours"
    NAIVE = "naive"
    TOKENSPEED = "tokenspeed"
    VLLM = "vllm"


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes of the programs: `decode` rows, and `extend` pairs of (tokens, sequences).

    `all_logits` are further pairs whose extend programs give the logits of every row.
    """

    decode: tuple[int, ...]
    extend: tuple[tuple[int, int], ...]
    all_logits: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KvCacheRequest:
    """The KV pool of one rank: either `pages` (the null page counted) or `memory` in bytes.

    Host memory for retracted requests is `host_pages`, or as many as `host_memory` bytes hold.
    """

    page_size: int
    dtype: DType
    pages: int | None = None
    memory: int | None = None
    host_pages: int = 0
    host_memory: int | None = None

    def __post_init__(self) -> None:
        if (self.pages is None) == (self.memory is None):
            raise ValueError("give either pages or memory")


@dataclass(frozen=True, slots=True)
class LimitsRequest:
    """What the runtime shall admit: tokens a sequence, sequences a step, tokens a step, steps."""

    max_model_len: int
    max_batch: int
    token_budget: int
    steps_in_flight: int = 1


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """One deployment. `dump_dir` receives `NN-pass.plan` after each pass where it is given.

    Kernels of `packs`, by name, may be pinned.
    """

    name: str
    model: ModelConfig
    dtype: DType
    target: Target
    parallel: ParallelSizes
    buckets: Buckets
    kv: KvCacheRequest
    limits: LimitsRequest
    dummy_seed: int | None = None
    dump_dir: Path | None = None
    policy: PolicyName = PolicyName.OURS
    packs: tuple[str, ...] = ()
