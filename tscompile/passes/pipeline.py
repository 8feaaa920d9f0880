"""The compiler on one screen: the passes in order.

`fuse_collectives` and `fuse_compute` come after `localize`: they check one rank's types, and gate
and up are one product only once they are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TypeAlias, TypeVar

import torch

from tscompile.ir.draft import Draft, PinRecord
from tscompile.ir.errors import VerifyError
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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The frozen plan, why each kernel was pinned, and the plan's text."""

    plan: Plan
    pins: tuple[PinRecord, ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Compilation:
    """What is asked for, the last pass to be run, and what was verified and is still to be."""

    request: CompileRequest
    last: Stage
    known: Known = field(default_factory=Known)
    pending: list[tuple[Draft, Stage]] = field(default_factory=list[tuple[Draft, Stage]])

    def until(self, last: Stage) -> _Compilation:
        """The same, ending after `last` already."""
        return replace(self, last=min(self.last, last))

    def verified(self, make: Callable[[], T]) -> T:
        """What `make` gives, while another process verifies what the passes gave before.

        Raises the first violation, or else what `make` does.
        """
        drafts = self.pending.copy()
        self.pending.clear()
        nodes = sum(len(program.nodes) for draft, _ in drafts for program in draft.programs)
        work = nodes // 4  # in what takes the search as long
        return checked(lambda: self.verify(drafts), make, affordable(2, work))

    def verify(self, drafts: Iterable[tuple[Draft, Stage]]) -> None:
        """Raise the first violation in drafts after passes.

        After the last one, of layers that stand for more two copies are looked at, too: a third is
        to the second as that is to the first.
        """
        for draft, stage in drafts:
            try:
                verify(draft, stage, self.known)
            except VerifyError as error:
                _speak_of_the_model(error, draft.repeats)
                raise
            if draft.repeats and stage == self.last:
                verify(unfold(draft, most=2), stage, self.known)


@uncollected()
def compile_plan(request: CompileRequest) -> CompileResult:
    """Compile a request to a verified plan; every expected failure is a TsError."""
    asked = _Compilation(request, Stage.PIN_KERNELS)
    draft = _compiled(asked)
    return asked.verified(lambda: CompileResult(finish(draft), draft.pins, print_draft(draft)))


@uncollected()
def compile_until(request: CompileRequest, last: Stage, *, folded: bool = False) -> Draft:
    """The draft after the pass `last`: what is communicated needs no kernel, so none is pinned.

    It is left `folded` where layers repeat, if that is asked for.
    """
    asked = _Compilation(request, last)
    draft = _compiled(asked)
    return asked.verified(lambda: draft if folded else unfold(draft))


def bucketed(request: CompileRequest) -> Draft:
    """The verified programs of all buckets, nothing placed yet, of the whole model."""
    return _bucketed(_traced(request), request)


def where_alike(request: CompileRequest, make: Callable[[Draft], T]) -> T:
    """What `make` gives of the programs of all buckets, nothing placed yet.

    Of a folded draft where layers repeat; of one folded less where it raises UnlikeLayersError.
    """
    graph = _traced(request)
    for folded in _folded(graph):
        try:
            return make(_bucketed(folded, request))
        except UnlikeLayersError:
            continue
    return make(_bucketed(graph, request))


def _bucketed(graph: Graph, request: CompileRequest) -> Draft:
    asked = _Compilation(request, Stage.PLAN_BUCKETS)
    draft = _passed(graph, asked)
    return asked.verified(lambda: draft)


_ENDS = ((3, 2), (6, 4), (12, 8))
"""Periods that stay at the two ends of a run of equal layers, fewest first.

The first layers and the last may be placed otherwise than those between, which then are alike, and
it takes a few layers until each lies in the arena where the one before it lay.
"""


def _folded(graph: Graph) -> Iterator[Graph]:
    """The graph folded where layers repeat, with ever more of them left as they are."""
    return takewhile(lambda folded: folded.repeats, (fold(graph, *ends) for ends in _ENDS))


def _compiled(asked: _Compilation) -> Draft:
    """The draft after the last pass, folded where all copies of layers are alike.

    What is still to be verified is pending.
    """
    graph = _traced(asked.request)
    for folded in _folded(graph):
        try:
            return _alike(_passed(folded, asked.until(Stage.FUSE_COMPUTE)), asked)
        except UnlikeLayersError:
            asked.pending.clear()
        except VerifyError:
            raise
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
    return asked.verified(lambda: _stored_alike(placed, asked))


def _stored_alike(placed: Draft, asked: _Compilation) -> Draft:
    """The draft after the last passes, unfolded where copies are not stored alike."""
    try:
        draft = _stored(placed, asked)
        check_alike(draft)
    except UnlikeLayersError:
        return _stored(unfold(placed), asked)
    return draft


def _speak_of_the_model(error: TsError, repeats: Repeats) -> None:
    """Let an error name layers by the numbers that they have in the model."""
    number = first_copies(repeats)
    error.message, error.remedy, error.where = (
        renumbered(text, number) for text in (error.message, error.remedy, error.where)
    )


def _passed(graph: Graph, asked: _Compilation) -> Draft:
    """The draft after all passes up to the last, which are to be verified."""
    graphs = {"all": without_selection(graph), "selected": graph}
    request = asked.request
    draft = plan_buckets(graphs, request)
    _note(draft, Stage.PLAN_BUCKETS, asked)
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
            try:
                draft = pass_(draft)
            except Exception:
                asked.verify(asked.pending)  # which may be why
                raise
            _note(draft, stage, asked)
    return draft


def _traced(request: CompileRequest) -> Graph:
    """The forward that selects rows; first of all, whether the sizes divide the model's."""
    check_sizes(request.model, request.parallel)
    with torch.device("meta"):
        model = build(request.model)
    check_blocks(model, request.parallel)
    return trace(model, "selected", copying=True)


def _note(draft: Draft, stage: Stage, asked: _Compilation) -> None:
    """Dump the plan after a pass where that is asked for; it is to be verified."""
    dump_dir = asked.request.dump_dir
    if dump_dir is not None:
        dump_dir.mkdir(parents=True, exist_ok=True)
        path = dump_dir / f"{stage.number:02}-{stage.name.lower()}.plan"
        path.write_text(print_draft(draft), encoding="utf-8")
    asked.pending.append((draft, stage))
