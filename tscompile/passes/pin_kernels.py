"""Pin a kernel to every op, and record why it won and why each other one lost."""

from __future__ import annotations

from dataclasses import replace

from tscompile.ir.draft import Draft, DraftProgram, PinRecord
from tscompile.ir.graph import Node
from tscompile.ir.typing import for_one_rank
from tskernels.kernel import KernelQuery
from tskernels.ops import OPS
from tskernels.schema import OpKind
from tskernels.selection import Selection, select

VIEW_PIN = "view"


def pin_kernels(draft: Draft, packs: tuple[str, ...] = ()) -> Draft:
    """The draft with every pin, and one record for each distinct question, sorted by text.

    Kernels that need a pack are pinned where it is one of `packs`. Raises NoKernelError where no
    kernel fits.
    """
    selections: dict[str, tuple[str, Selection]] = {}
    programs = tuple(_pinned(draft, program, packs, selections) for program in draft.programs)
    records = tuple(
        PinRecord(op, text, s.winner.name, s.reason, s.losers)
        for text, (op, s) in sorted(selections.items())
    )
    return replace(draft, programs=programs, pins=records)


def _pinned(
    draft: Draft,
    program: DraftProgram,
    packs: tuple[str, ...],
    selections: dict[str, tuple[str, Selection]],
) -> DraftProgram:
    def pin(node: Node) -> Node:
        if OPS[node.op].schema.kind is OpKind.VIEW:
            return node.pinned(VIEW_PIN)
        query = replace(_query(draft, program, node), packs=packs)
        text = describe(query)
        if text not in selections:
            selections[text] = (node.op, select(query))
        return node.pinned(selections[text][1].winner.name)

    return replace(program, nodes=tuple(pin(node) for node in program.nodes))


def _query(draft: Draft, program: DraftProgram, node: Node) -> KernelQuery:
    types = tuple(None if i is None else program.values[i].type for i in node.inputs)
    return KernelQuery(
        op=node.op,
        mode=program.phase.value,
        dtypes=tuple(None if t is None else t.dtype for t in types),
        shapes=tuple(None if t is None else t.shape for t in types),
        device=draft.target.device,
        arch=draft.target.arch,
        attributes=for_one_rank(node.attributes),
    )


def describe(query: KernelQuery) -> str:
    """A query in one line: `decode linear(float32[8,576], float32[320,576], -)`."""
    inputs = ", ".join(
        "-" if dtype is None or shape is None else f"{dtype}[{','.join(map(str, shape))}]"
        for dtype, shape in zip(query.dtypes, query.shapes, strict=True)
    )
    given = "".join(f"; {name}={value}" for name, value in sorted(query.attributes.items()))
    return f"{query.mode} {query.op}({inputs}{given})"
