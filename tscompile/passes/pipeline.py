"""The compiler on one screen: the passes in order.

`fuse_collectives` and `fuse_compute` come after `localize`: they check one rank's types, and gate
and up are one product only once they are packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tscompile.ir.draft import Draft, PinRecord
from tscompile.ir.finish import finish
from tscompile.ir.graph import Graph
from tscompile.ir.printer import print_draft
from tscompile.ir.request import CompileRequest
from tscompile.ir.verifier import Stage, verify
from tscompile.models import build
from tscompile.models.blocks import check_blocks
from tscompile.models.sizes import check_sizes
from tscompile.passes.fuse_collectives import fuse_collectives
from tscompile.passes.fuse_compute import fuse_compute
from tscompile.passes.localize import localize
from tscompile.passes.lower_reshards import lower_reshards
from tscompile.passes.pin_kernels import pin_kernels
from tscompile.passes.plan_buckets import plan_buckets
from tscompile.passes.plan_memory import plan_memory
from tscompile.passes.propagate_placements import propagate_placements
from tscompile.trace import trace, without_selection
from tsruntime.artifact.schema import Plan


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The frozen plan, why each kernel was pinned, and the plan's text."""

    plan: Plan
    pins: tuple[PinRecord, ...]
    text: str


def compile_plan(request: CompileRequest) -> CompileResult:
    """Compile a request to a verified plan; every expected failure is a TsError."""
    draft = compile_until(request, Stage.PIN_KERNELS)
    return CompileResult(finish(draft), draft.pins, print_draft(draft))


def compile_until(request: CompileRequest, last: Stage) -> Draft:
    """The draft after the pass `last`: what is communicated needs no kernel, so none is pinned."""
    draft = bucketed(request)
    placed = partial(propagate_placements, policy=request.policy, kv=request.kv)
    passes: tuple[tuple[Stage, Callable[[Draft], Draft]], ...] = (
        (Stage.PROPAGATE_PLACEMENTS, placed),
        (Stage.LOWER_RESHARDS, lower_reshards),
        (Stage.LOCALIZE, localize),
        (Stage.FUSE_COLLECTIVES, fuse_collectives),
        (Stage.FUSE_COMPUTE, fuse_compute),
        (Stage.PLAN_MEMORY, partial(plan_memory, kv=request.kv)),
        (Stage.PIN_KERNELS, pin_kernels),
    )
    for stage, pass_ in passes:
        if stage <= last:
            draft = pass_(draft)
            _check(draft, stage, request.dump_dir)
    return draft


def bucketed(request: CompileRequest) -> Draft:
    """The programs of all buckets, nothing placed yet."""
    check_sizes(request.model, request.parallel)
    draft = plan_buckets(_graphs(request), request)
    _check(draft, Stage.PLAN_BUCKETS, request.dump_dir)
    return draft


def _graphs(request: CompileRequest) -> dict[str, Graph]:
    with torch.device("meta"):
        model = build(request.model)
    check_blocks(model, request.parallel)
    selected = trace(model, "selected")
    return {"all": without_selection(selected), "selected": selected}


def _check(draft: Draft, stage: Stage, dump_dir: Path | None) -> None:
    """Dump the plan after a pass where that is asked for, then verify it."""
    if dump_dir is not None:
        dump_dir.mkdir(parents=True, exist_ok=True)
        path = dump_dir / f"{stage.number:02}-{stage.name.lower()}.plan"
        path.write_text(print_draft(draft), encoding="utf-8")
    verify(draft, stage)
