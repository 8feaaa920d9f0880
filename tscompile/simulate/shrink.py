"""Transplanting a plan's frozen choices onto the smallest sizes that divide alike.

Ops, pins, collectives, axes and the order in memory stay; sizes, offsets and strides shrink. Which
sizes hang together follows from the traced program, where they are cut from the checker's tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from tscompile.simulate.arena import replaced
from tscompile.simulate.dims import dims_of, scope_of
from tscompile.simulate.errors import CannotShrink
from tscompile.simulate.relations.base import (
    PAGE_SIZE,
    PAGES,
    SEQUENCES,
    TOKENS,
    Dim,
    Dims,
    Scope,
)
from tscompile.simulate.relations.dense import BLOCK
from tscompile.simulate.sizes import Cuts, Scale, SmallSizes, row_scales, scales
from tskernels.errors import TsError
from tskernels.schema import AttributeValue
from tsruntime.artifact.proof.certificate import (
    Certificate,
    Rows,
    TracedOp,
    TracedParameter,
    rows_of,
)
from tsruntime.artifact.proof.checker import check_proof, derive
from tsruntime.artifact.proof.tile import Local
from tsruntime.artifact.schema import (
    Attribute,
    CacheGroup,
    CacheStorage,
    InputStorage,
    Op,
    Phase,
    Plan,
    Program,
    RankIndex,
    Value,
    Weight,
    WeightPart,
    WeightStorage,
)

_PAGE_SIZE, _MAX_PAGES, _WINDOW = 4, 6, 6
"""Small pages, pages of a sequence, and window in tokens, where the plan's are larger."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One program with its tiles."""

    index: int
    scope: Scope
    tiles: list[dict[str, Local]]
    rows: Mapping[Dim, Scale]


def shrink(plan: Plan, certificate: Certificate) -> tuple[Plan, Certificate]:
    """The plan and what it computes, small. The small plan is proven again.

    Raises PlanUnproven where the plan itself is not proven, CannotShrink where it does not shrink.
    """
    check_proof(plan, certificate)
    derived = [derive(plan, certificate, i) for i in range(len(plan.programs))]
    scopes = [
        scope_of(certificate, rows_of(program), traced)
        for program, (traced, _) in zip(plan.programs, derived, strict=True)
    ]
    dims = dims_of(certificate, _one_a_graph(scopes))
    cuts, parts = Cuts(dims), list[_Part]()
    for index, (scope, (_, tiles)) in enumerate(zip(scopes, derived, strict=True)):
        cuts.read_sizes(scope)
        units: dict[Dim, int] = {}
        cuts.add(scope, tiles, units)
        program = plan.programs[index]
        sizes = (program.tokens, program.sequences)
        rows = row_scales(dims, units, sizes, decode=program.phase is Phase.DECODE)
        parts.append(_Part(index, scope, tiles, rows))
    small = _Transplant(plan, certificate, dims, cuts, parts)
    return _proven(plan, small.plan(), small.certificate())


def _proven(plan: Plan, small: Plan, certificate: Certificate) -> tuple[Plan, Certificate]:
    try:
        check_proof(small, certificate)
    except TsError as error:
        raise CannotShrink(
            f"the small plan is not proven: {error.message}",
            remedy="simulate without --shrink",
            where=f"{plan.name}, {error.where}",
        ) from error
    return small, certificate


def _one_a_graph(scopes: list[Scope]) -> list[Scope]:
    return list({scope.rows: scope for scope in scopes}.values())


class _Transplant:
    """Writes the small plan and certificate."""

    def __init__(
        self, plan: Plan, certificate: Certificate, dims: Dims, cuts: Cuts, parts: list[_Part]
    ) -> None:
        self._plan, self._certificate, self._parts = plan, certificate, parts
        self._dims, self._sizes, self._scales = dims, cuts.sizes, scales(cuts)
        self._page_size = min(plan.kv_cache.page_size, _PAGE_SIZE)
        self._max_pages = min(plan.limits.max_pages, _MAX_PAGES)
        self._most = max(self._count(part, SEQUENCES) for part in parts)
        self._pages = min(plan.kv_cache.pages, 1 + self._most * self._max_pages)
        self._values = [self._small_values(part) for part in parts]

    def plan(self) -> Plan:
        """The small plan."""
        plan = self._plan
        programs = tuple(
            self._program(p, v) for p, v in zip(self._parts, self._values, strict=True)
        )
        limits = replace(
            plan.limits,
            max_model_len=self._page_size * self._max_pages,
            max_batch=self._most,
            token_budget=max(program.tokens for program in programs),
            max_pages=self._max_pages,
        )
        cache = replace(
            plan.kv_cache,
            page_size=self._page_size,
            pages=self._pages,
            groups=tuple(self._group(group) for group in plan.kv_cache.groups),
        )
        return replace(
            plan,
            vocab_size=self._vocabulary(),
            limits=limits,
            kv_cache=cache,
            weights=tuple(self._weight(weight) for weight in plan.weights),
            programs=programs,
        )

    def certificate(self) -> Certificate:
        """The same computation of the small sizes."""
        certificate, sizes = self._certificate, self._small(self._parts[0])
        graphs = {
            rows: replace(
                graph, ops=tuple(self._traced_op(self._scope(rows), op) for op in graph.ops)
            )
            for rows, graph in certificate.graphs.items()
            if any(part.scope.rows == rows for part in self._parts)
        }
        return replace(
            certificate,
            vocab_size=self._vocabulary(),
            parameters=tuple(self._parameter(p) for p in certificate.parameters),
            constants=tuple(
                replace(c, values=c.values[: sizes.whole(("", c.name, 0), len(c.values))])
                for c in certificate.constants
            ),
            caches=tuple(
                replace(
                    c,
                    kv_heads=sizes.whole(("", c.name, 2), c.kv_heads),
                    head_dim=sizes.whole(("", c.name, 4), c.head_dim),
                    window=_window(c.window),
                )
                for c in certificate.caches
            ),
            graphs=graphs,
        )

    def _count(self, part: _Part, kind: Dim) -> int:
        program = self._plan.programs[part.index]
        scale = part.rows[self._dims.find(kind)]
        return scale.of(program.tokens if kind == TOKENS else program.sequences)

    def _small(self, part: _Part) -> SmallSizes:
        find = self._dims.find
        fixed = {find(PAGES): self._pages, find(PAGE_SIZE): self._page_size}
        return SmallSizes(self._dims, self._sizes, {**self._scales, **part.rows}, fixed)

    def _scope(self, rows: Rows) -> Scope:
        return next(part.scope for part in self._parts if part.scope.rows == rows)

    def _vocabulary(self) -> int:
        part = self._parts[0]
        output = self._values[0][self._plan.programs[part.index].output]
        return output.shape[-1]

    def _small_values(self, part: _Part) -> dict[str, Value]:
        sizes, (tiles, *_) = self._small(part), part.tiles
        values: dict[str, Value] = {}
        for value in self._plan.programs[part.index].values:
            shape = sizes.shape(part.scope, tiles[value.name])
            if isinstance(value.storage, InputStorage):
                shape = self._input_shape(part, value.storage.input)
            values[value.name] = replace(value, shape=shape)
        return values

    def _input_shape(self, part: _Part, name: str) -> tuple[int, ...]:
        sequences = self._count(part, SEQUENCES)
        match name.partition(".")[0]:
            case "query_starts":
                return (sequences + 1,)
            case "block_table":
                return (sequences, self._max_pages)
            case "seq_lens" | "logit_rows":
                return (sequences,)
            case _:
                return (self._count(part, TOKENS),)

    def _program(self, part: _Part, values: dict[str, Value]) -> Program:
        program = self._plan.programs[part.index]
        before = {value.name: value for value in program.values}
        ops = tuple(self._op(op, before, values) for op in program.ops)
        placed, end = replaced(before, values, ops)
        return replace(
            program,
            tokens=self._count(part, TOKENS),
            sequences=self._count(part, SEQUENCES),
            values=tuple(placed.values()),
            ops=ops,
            arena_bytes=end,
        )

    def _op(self, op: Op, before: Mapping[str, Value], after: Mapping[str, Value]) -> Op:
        attributes: dict[str, Attribute] = dict(op.attributes)
        first = after[op.outputs[0]].shape
        match op.op:
            case "split":
                attributes["sizes"] = tuple(after[name].shape[-1] for name in op.outputs)
            case "unflatten":
                attributes["size"] = first[2]
            case "slice" | "narrow":
                dim = cast("int", attributes["dim"])
                attributes["size"] = first[dim]
                large = before[op.outputs[0]].shape[dim]
                attributes["start"] = _scaled(op, attributes["start"], first[dim], large)
            case "embedding":
                weight = op.inputs[1] or ""
                small, large = after[weight].shape[0], before[weight].shape[0]
                attributes["vocab_start"] = _scaled(op, attributes["vocab_start"], small, large)
            case "attention":
                attributes["window"] = _window(cast("int", attributes["window"])) or 0
            case "scaled_linear" | "scaled_linear_silu_mul":
                attributes["block"] = self._block(self._small(self._parts[0]), attributes["block"])
            case _:
                pass
        return replace(op, attributes=attributes)

    def _traced_op(self, scope: Scope, op: TracedOp) -> TracedOp:
        sizes = self._small(next(p for p in self._parts if p.scope.rows == scope.rows))
        attributes: dict[str, AttributeValue] = dict(op.attributes)
        if op.op == "unflatten":
            width = cast("int", attributes["size"])
            attributes["size"] = sizes.whole(scope(op.outputs[0], 2), width)
        if op.op == "attention":
            attributes["window"] = _window(cast("int", attributes["window"])) or 0
        if op.op == "scaled_linear":
            attributes["block"] = self._block(sizes, attributes["block"])
        if op.op == "narrow":
            dim, start, size = (cast("int", attributes[n]) for n in ("dim", "start", "size"))
            first, last = (
                sizes.whole(scope(op.inputs[0] or "", dim), end) for end in (start, start + size)
            )
            attributes.update(start=first, size=last - first)
        return replace(op, attributes=attributes)

    def _block(self, sizes: SmallSizes, block: Attribute) -> tuple[int, ...]:
        """Rows and columns of a weight's part that shares a scale."""
        large = cast("tuple[int, int]", block)
        return tuple(sizes.whole(dim, size) for dim, size in zip(BLOCK, large, strict=True))

    def _parameter(self, parameter: TracedParameter) -> TracedParameter:
        return replace(parameter, shape=self._shape(parameter.name, parameter.shape))

    def _shape(self, tensor: str, shape: tuple[int, ...], first: int = 0) -> tuple[int, ...]:
        """The sizes of the tensor's dims from `first` on."""
        sizes = self._small(self._parts[0])
        return tuple(sizes.whole(("", tensor, dim), size) for dim, size in enumerate(shape, first))

    def _weight(self, weight: Weight) -> Weight:
        """Weights that no program reads keep their sizes, and are left out of the certificate."""
        sizes = self._small(self._parts[0])
        parts = tuple(self._part(part, sizes) for part in weight.parts)
        shape = next(
            (
                value.shape
                for values in self._values
                for value in values.values()
                if value.storage == WeightStorage(weight.name)
            ),
            weight.shape,
        )
        constant = None if weight.constant is None else weight.constant[: shape[0]]
        return replace(weight, shape=shape, parts=parts, constant=constant)

    def _part(self, part: WeightPart, sizes: SmallSizes) -> WeightPart:
        """One tensor of a stack has the dims behind the first; their number stays."""
        first, padded = (0 if part.stack is None else 1), part.padded
        if padded is not None and part.dim is not None:
            padded = sizes.whole(("", part.tensor, first + part.dim), padded)
        return replace(part, shape=self._shape(part.tensor, part.shape, first), padded=padded)

    def _group(self, group: CacheGroup) -> CacheGroup:
        pool = next(
            value.shape
            for values in self._values
            for value in values.values()
            if isinstance(value.storage, CacheStorage) and value.storage.group == group.name
        )
        return replace(group, kv_heads=pool[2], head_dim=pool[4], window=_window(group.window))


def _window(window: int | None) -> int | None:
    return min(window, _WINDOW) if window else window


def _scaled(op: Op, value: Attribute, small: int, large: int) -> Attribute:
    """An offset in units of the local size, which shrinks from `large` to `small`."""
    stride = value.stride if isinstance(value, RankIndex) else cast("int", value)
    if stride * small % large:
        raise CannotShrink(
            f"an offset of {stride} is no multiple of the local size {large}",
            remedy="simulate without --shrink",
            where=op.module,
        )
    scaled = stride * small // large
    return replace(value, stride=scaled) if isinstance(value, RankIndex) else scaled
