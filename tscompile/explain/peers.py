"""Predicted times of a deployment's programs beside those of its peers' communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tscompile.cost.model import CostModel, Price
from tscompile.cost.topology import find_topology
from tscompile.ir.draft import Draft
from tscompile.ir.errors import PolicyError
from tscompile.ir.request import CompileRequest, PolicyName
from tscompile.passes.check_annotations import check_annotations
from tscompile.passes.pipeline import where_alike
from tscompile.passes.propagate_placements import bytes_beside_weights
from tscompile.search.drafts import Laid, fitting_layouts, read, under
from tscompile.search.segment import Tables

PEERS = (PolicyName.NAIVE, PolicyName.TOKENSPEED, PolicyName.VLLM)


@dataclass(frozen=True, slots=True)
class Against:
    """A peer's price of each program under our layout, and Σ weight · time under its own best."""

    peer: PolicyName
    prices: tuple[Price, ...]
    time: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A deployment's programs by name with our price of each, and Σ weight · time.

    `unable` are the peers that cannot express its sizes, with what they say.
    """

    name: str
    programs: tuple[str, ...]
    prices: tuple[Price, ...]
    time: int
    peers: tuple[Against, ...]
    unable: tuple[tuple[PolicyName, str], ...]


def compare(request: CompileRequest) -> Comparison:
    """Search every program of a request, once free and once as each peer would communicate."""
    return where_alike(request, partial(_compared, request))


def _compared(request: CompileRequest, draft: Draft) -> Comparison:
    """Of a draft that may be folded: prices are the whole model's."""
    topology = find_topology(request.target.topology)
    check_annotations(draft)
    tables = Tables(CostModel(topology, draft.mesh.axes))
    seen = [read(draft, program) for program in draft.programs]
    every = fitting_layouts(draft, topology, bytes_beside_weights(draft, request.kv))
    ours = min(
        (under(draft, seen, tables, PolicyName.OURS, placed) for placed in every),
        key=lambda laid: laid.time,
    )
    peers: list[Against] = []
    unable: list[tuple[PolicyName, str]] = []
    for peer in PEERS:
        try:
            laid = [under(draft, seen, tables, peer, placed) for placed in every]
        except PolicyError as refusal:
            unable.append((peer, refusal.message))
            continue
        same = next(one for one in laid if one.placed == ours.placed)
        peers.append(Against(peer, _prices(same), min(one.time for one in laid)))
    names = tuple(program.name for program in draft.programs)
    return Comparison(request.name, names, _prices(ours), ours.time, tuple(peers), tuple(unable))


def _prices(laid: Laid) -> tuple[Price, ...]:
    return tuple(run.price for _, _, run in laid.runs)


def table(comparison: Comparison) -> list[str]:
    """Markdown: a row a program, times in µs, and behind each launches and KB on the wire."""
    peers = [against.peer.value for against in comparison.peers]
    lines = [
        f"| program | ours | {' | '.join(peers)} | why |",
        f"|{' --- |' * (len(peers) + 3)}",
    ]
    for i, name in enumerate(comparison.programs):
        ours = comparison.prices[i]
        theirs = [against.prices[i] for against in comparison.peers]
        cells = [_cell(price, ours) for price in theirs]
        lines.append(
            f"| {name} | {_cell(ours, ours)} | {' | '.join(cells)} | {_reason(ours, theirs)} |"
        )
    return lines


def _cell(price: Price, ours: Price) -> str:
    ratio = "" if price is ours else f" ({price.picoseconds / ours.picoseconds:.3f}x)"
    return f"{price.picoseconds / 1e6:,.1f}{ratio}, {price.launches}, {price.wire_bytes / 1e3:,.0f}"


def _reason(ours: Price, theirs: Sequence[Price]) -> str:
    """Where a peer launches less or sends less than we do, what that buys."""
    found: list[str] = []
    fewest = min((p.launches for p in theirs), default=ours.launches)
    least = min((p.wire_bytes for p in theirs), default=ours.wire_bytes)
    if ours.launches > fewest:
        found.append(f"{ours.launches - fewest} launches more")
    if ours.wire_bytes > least:
        found.append(f"{(ours.wire_bytes - least) / 1e3:,.0f} KB more")
    if not found:
        return ""
    rivals = [p for p in theirs if p.launches < ours.launches or p.wire_bytes < ours.wire_bytes]
    saved = min(p.picoseconds for p in rivals) - ours.picoseconds
    return f"{' and '.join(found)} save {saved / 1e6:,.1f} us"
