"""The recipe's `kernels`: what kernels may come from beside those that ship."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .section import Section, Vllm


class Kernels(Section):
    """Sources of kernels beyond the registry."""

    packs: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], Vllm("--attention-backend")
    ] = ()
    """Kernel packs, as folders that `tscompile kernels pack` wrote, relative to the recipe. Their
    kernels are pinned where they win; `tsrun` must be told to trust each pack's digest."""
