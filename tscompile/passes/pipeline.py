"""The compiler on one screen: the passes in order.

`fuse_collectives` and `fuse_compute` come after `localize`: they check one rank's types, and gate
and up are one product only once they are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import torch

from tscompile.ir.draft import Draft, PinRecord
from tscompile.ir.finish import finish
from tscompile.ir.graph import Graph
from tscompile.ir.printer import print_draft
from tscompile.ir.repeats import Repeats, UnlikeLayersError, first_copies, renumbered
from tscompile.ir.request import CompileRequest
from tscompile.ir.verifier import Known, Stage, verify
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
from tscompile.passes.uncollected import uncollected
from tscompile.passes.unfold import check_alike, unfold
from tscompile.search.workers import affordable, checked
from tscompile.trace import fold, trace, without_selection
from tskernels.errors import TsError
from tsruntime.artifact.schema import Plan


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The frozen plan, why each kernel was pinned, and the plan's text."""

    plan: Plan
    pins: tuple[PinRecord, ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Compilation:
    """What is asked for, the last pass to be run, and what was verified so far."""

    request: CompileRequest
    last: Stage
    known: Known = field(default_factory=Known)

    def until(self, last: Stage) -> _Compilation:
        """The same, ending after `last` already."""
        return replace(self, last=min(self.last, last))


@uncollected()
def compile_plan(request: CompileRequest) -> CompileResult:
    """Compile a request to a verified plan; every expected failure is a TsError."""
    asked = _Compilation(request, Stage.PIN_KERNELS)
    draft = _compiled(asked)

    def printed() -> str:
        _check_copies(draft, asked)
        return print_draft(draft)

    nodes = sum(len(program.nodes) for program in draft.programs)
    text, plan = checked(printed, lambda: finish(draft), affordable(2, nodes))
    return CompileResult(plan, draft.pins, text)


@uncollected()
def compile_until(request: CompileRequest, last: Stage, *, folded: bool = False) -> Draft:
    """The draft after the pass `last`: what is communicated needs no kernel, so none is pinned.

    It is left `folded` where layers repeat, if that is asked for.
    """
    asked = _Compilation(request, last)
    draft = _compiled(asked)
    _check_copies(draft, asked)
    return draft if folded else unfold(draft)


def bucketed(request: CompileRequest, *, folded: bool = False) -> Draft:
    """The programs of all buckets, nothing placed yet; `folded` where layers repeat, if asked."""
    graph = _traced(request)
    graph = fold(graph, *_ENDS[0]) if folded else graph
    return _passed(graph, _Compilation(request, Stage.PLAN_BUCKETS))


_ENDS = ((3, 2), (6, 4), (12, 8))
"""Periods that stay at the two ends of a run of equal layers, fewest first.

The first layers and the last may be placed otherwise than those between, which then are alike, and
it takes a few layers until each lies in the arena where the one before it lay.
"""


def _compiled(asked: _Compilation) -> Draft:
    """The verified draft after the last pass, folded where all copies of layers are alike."""
    graph = _traced(asked.request)
    for folded in (fold(graph, *ends) for ends in _ENDS):
        if not folded.repeats:
            break
        try:
            return _alike(_passed(folded, asked.until(Stage.FUSE_COMPUTE)), asked)
        except UnlikeLayersError:
            continue
        except TsError as error:
            _speak_of_the_model(error, folded.repeats)
            raise
    return _passed(graph, asked)


def _alike(placed: Draft, asked: _Compilation) -> Draft:
    """The draft after the last pass, unfolded where copies are not stored alike.

    Raises UnlikeLayersError where copies are placed otherwise.
    """
    check_alike(placed)
    if asked.last <= Stage.FUSE_COMPUTE:
        return placed
    try:
        draft = _stored(placed, asked)
        check_alike(draft)
    except UnlikeLayersError:
        return _stored(unfold(placed), asked)
    return draft


def _check_copies(draft: Draft, asked: _Compilation) -> None:
    """Verify two copies of what is repeated: a third is to the second as that is to the first."""
    if draft.repeats:
        verify(unfold(draft, most=2), asked.last, asked.known)


def _speak_of_the_model(error: TsError, repeats: Repeats) -> None:
    """Let an error name layers by the numbers that they have in the model."""
    number = first_copies(repeats)
    error.message, error.remedy, error.where = (
        renumbered(text, number) for text in (error.message, error.remedy, error.where)
    )


def _passed(graph: Graph, asked: _Compilation) -> Draft:
    """The draft after all passes up to the last, each of them verified."""
    graphs = {"all": without_selection(graph), "selected": graph}
    request = asked.request
    draft = plan_buckets(graphs, request)
    _check(draft, Stage.PLAN_BUCKETS, asked)
    placed = partial(propagate_placements, policy=request.policy, kv=request.kv)
    passes = (
        (Stage.PROPAGATE_PLACEMENTS, placed),
        (Stage.LOWER_RESHARDS, lower_reshards),
        (Stage.LOCALIZE, localize),
        (Stage.FUSE_COLLECTIVES, fuse_collectives),
        (Stage.FUSE_COMPUTE, fuse_compute),
    )
    return _stored(_through(passes, draft, asked), asked)


def _stored(draft: Draft, asked: _Compilation) -> Draft:
    """The last passes: where values lie, and which kernels compute them."""
    passes = (
        (Stage.PLAN_MEMORY, partial(plan_memory, kv=asked.request.kv)),
        (Stage.PIN_KERNELS, partial(pin_kernels, packs=asked.request.packs)),
    )
    return _through(passes, draft, asked)


Passes: TypeAlias = Sequence[tuple[Stage, Callable[[Draft], Draft]]]


def _through(passes: Passes, draft: Draft, asked: _Compilation) -> Draft:
    for stage, pass_ in passes:
        if stage <= asked.last:
            draft = pass_(draft)
            _check(draft, stage, asked)
    return draft


def _traced(request: CompileRequest) -> Graph:
    """The forward that selects rows; first of all, whether the sizes divide the model's."""
    check_sizes(request.model, request.parallel)
    with torch.device("meta"):
        model = build(request.model)
    check_blocks(model, request.parallel)
    return trace(model, "selected", copying=True)


def _check(draft: Draft, stage: Stage, asked: _Compilation) -> None:
    """Dump the plan after a pass where that is asked for, then verify it."""
    dump_dir = asked.request.dump_dir
    if dump_dir is not None:
        dump_dir.mkdir(parents=True, exist_ok=True)
        path = dump_dir / f"{stage.number:02}-{stage.name.lower()}.plan"
        path.write_text(print_draft(draft), encoding="utf-8")
    verify(draft, stage, asked.known)
