"""The recipe's `kv_cache`: how keys and values are paged."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from .section import Count, Default, RefusalError, Section, Vllm

Float: TypeAlias = Literal["float32", "bfloat16", "float16", "float64"]
"""Element types of weights, activations and caches."""

_UNITS: Final = {
    "B": 1,
    **{f"{p}iB": 1 << (10 * i) for i, p in enumerate("KMGT", 1)},
    **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)},
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?i?B)")


def parse_bytes(text: str) -> int:
    """Bytes of a size such as `8GiB`, `1.5 GB` (10^9) or `512MiB`, rounded down."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise RefusalError(f"{text!r} is not a size", "write a number and a unit, such as 8GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def _check_memory(text: str) -> str:
    if parse_bytes(text) == 0:
        raise RefusalError(f"{text!r} is nothing", "give the cache some memory, such as 8GiB")
    return text


class KvCache(Section):
    """Pages of one size, and either their number or the memory they may take on each rank.

    So too for pages in host memory.
    """

    page_size: Annotated[Count, Vllm("--block-size")] = 16
    """Tokens a page."""

    pages: Annotated[
        Count | None,
        Field(ge=2),
        Default("enough for max_batch sequences of max_model_len, unless memory is given"),
        Vllm("--num-gpu-blocks-override"),
    ] = None
    """Number of pages, of which one is the null page that padding writes to."""

    memory: Annotated[
        str | None,
        AfterValidator(lambda text: text if text is None else _check_memory(text)),
        Default("none: pages decides"),
        Vllm("--kv-cache-memory-bytes"),
    ] = None
    """Memory of the cache on each rank, such as `8GiB`, instead of `pages`."""

    host_pages: Annotated[
        int | None,
        Field(ge=0, strict=True),
        Default("0 unless host_memory is given: a retracted request is computed again"),
        Vllm(""),
    ] = None
    """Pages in host memory on each rank, where a request that loses its place leaves what it has
    computed, to be loaded when it comes back."""

    host_memory: Annotated[
        str | None,
        AfterValidator(lambda text: text if text is None else _check_memory(text)),
        Default("none: host_pages decides"),
        Vllm("--kv-offloading-size"),
    ] = None
    """Host memory for those pages on each rank, such as `8GiB`, instead of `host_pages`."""

    dtype: Annotated[Float, Default("dtype"), Vllm("--kv-cache-dtype")]
    """Element type of keys and values."""

    @property
    def memory_bytes(self) -> int | None:
        """`memory` in bytes."""
        return None if self.memory is None else parse_bytes(self.memory)

    @property
    def host_memory_bytes(self) -> int | None:
        """`host_memory` in bytes."""
        return None if self.host_memory is None else parse_bytes(self.host_memory)


def default_pages(page_size: int, max_model_len: int, max_batch: int) -> int:
    """Pages for `max_batch` sequences of `max_model_len` tokens, and the null page."""
    return max_batch * -(-max_model_len // page_size) + 1
