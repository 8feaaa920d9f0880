"""Abstract decoders for the search: embedding, layers (dense or with experts), head, sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.placement import REPLICATE, Placement, Placements, Shard
from tscompile.search.layout import View, dividing_axes, make_view, token_axes
from tscompile.search.program import Bound, Operation, Program
from tsruntime.artifact.schema import Mesh


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a model and of one program of it; `rows` and `sequences` are those of a replica."""

    sizes: ParallelSizes
    rows: int
    layers: int
    hidden: int = 64
    heads: int = 8
    kv_heads: int = 8
    head_dim: int = 8
    width: int = 128
    experts: int = 0
    top_k: int = 2
    dense_layers: int = 0
    vocabulary: int = 512
    sequences: int = 1
    context: int = 64
    itemsize: int = 2
    valid_rows_only: int = 0
    packed: bool = True
    cut_all: bool = False
    shared: bool = False
    whole: bool = True


class _Builder:
    def __init__(self, decoder: Decoder) -> None:
        self.d = decoder
        self.mesh: Mesh = build_mesh(decoder.sizes)
        self.replicas = self.mesh.size(self.mesh.groups["ATTN_DP"])
        self.values: dict[str, View] = {}
        self.operations: list[Operation] = []
        self.cuts: list[int] = []
        self.tokens = token_axes(self.mesh, decoder.rows)
        free = [a.name for a in self.mesh.axes if decoder.cut_all or a.name not in self.tokens]
        self.hidden_axes = dividing_axes(self.mesh.axes, free, decoder.hidden)

    def view(self, shape: Sequence[int], *digits: Sequence[str]) -> View:
        return make_view(self.mesh.axes, shape, digits, self.d.itemsize)

    def on(self, group: str | Sequence[str], placement: Placement) -> Placements:
        names = self.mesh.groups[group] if isinstance(group, str) else group
        return tuple(placement if a.name in names else REPLICATE for a in self.mesh.axes)

    def tokens_view(self, width: int, axes: Sequence[str]) -> View:
        return self.view((self.d.rows * self.replicas, width), self.tokens, axes)

    def hidden_view(self) -> View:
        return self.tokens_view(self.d.hidden, self.hidden_axes)

    def weight(self, name: str, rows: int, columns: int, dim: int, group: str) -> Bound:
        axes = self.mesh.groups[group]
        digits = (axes, ()) if dim == 0 else ((), axes)
        return Bound(name, self.view((rows, columns), *digits), self.on(group, Shard(dim)))

    def op(
        self,
        name: str,
        kind: str,
        inputs: Sequence[str],
        outputs: Mapping[str, View],
        *bound: Bound,
        **attributes: int,
    ) -> str:
        self.values.update(outputs)
        settings = tuple(sorted(attributes.items()))
        self.operations.append(
            Operation(name, kind, tuple(inputs), tuple(outputs), tuple(bound), settings)
        )
        return next(iter(outputs), "")

    def linear(self, x: str, name: str, weight: Bound, axes: Sequence[str], tokens: View) -> str:
        rows = self.view((tokens.shape[0], weight.view.shape[0]), tokens.digits[0], axes)
        return self.op(name, "linear", [x], {f"{name}.out": rows}, weight)

    def norm(self, x: str, name: str, view: View) -> str:
        return self.op(name, "rms_norm", [x], {f"{name}.out": view})

    def attention(self, x: str, at: str) -> str:
        d, group = self.d, self.mesh.groups["ATTN_TP"]
        view = self.hidden_view()
        query, kv = d.heads * d.head_dim, d.kv_heads * d.head_dim
        sizes = (query + 2 * kv,) if d.packed else (query, kv, kv)
        parts = [
            self.linear(
                x, f"{at}.{n}", self.weight(f"{at}.{n}", s, d.hidden, 0, "ATTN_TP"), group, view
            )
            for n, s in zip(("q", "k", "v"), sizes, strict=False)
        ]
        cache = Bound(
            f"{at}.cache",
            self.view(
                (d.sequences * self.replicas, 2, d.kv_heads, d.context, d.head_dim),
                self.mesh.groups["ATTN_DP"],
                (),
                group,
                (),
                (),
            ),
            tuple(Shard(2) if axis.name in group else Shard(0) for axis in self.mesh.axes),
        )
        mixed = self.op(
            f"{at}.mix",
            "attention",
            parts,
            {f"{at}.mix.out": self.tokens_view(query, group)},
            cache,
            context=d.context,
        )
        return self.linear(
            mixed,
            f"{at}.o",
            self.weight(f"{at}.o", d.hidden, query, 1, "ATTN_TP"),
            self.hidden_axes,
            view,
        )

    def dense(self, x: str, at: str) -> str:
        d, group = self.d, self.mesh.groups["DENSE_TP"]
        view = self.hidden_view()
        if d.packed:
            packed = self.weight(f"{at}.gate_up", 2 * d.width, d.hidden, 0, "DENSE_TP")
            parts = [self.linear(x, f"{at}.gate_up", packed, group, view)]
            return self._down(parts, at)
        parts = [
            self.linear(
                x,
                f"{at}.{n}",
                self.weight(f"{at}.{n}", d.width, d.hidden, 0, "DENSE_TP"),
                group,
                view,
            )
            for n in ("gate", "up")
        ]
        return self._down(parts, at)

    def _down(self, parts: Sequence[str], at: str) -> str:
        d, group = self.d, self.mesh.groups["DENSE_TP"]
        wide = self.tokens_view(d.width, group)
        act = self.op(f"{at}.act", "silu_mul", parts, {f"{at}.act.out": wide})
        down = self.weight(f"{at}.down", d.hidden, d.width, 1, "DENSE_TP")
        return self.linear(act, f"{at}.down", down, self.hidden_axes, self.hidden_view())

    def moe(self, x: str, at: str) -> str:
        d, ep, tp = self.d, self.mesh.groups["MOE_EP"], self.mesh.groups["MOE_TP"]
        gate_up = Bound(
            f"{at}.gate_up",
            self.view((d.experts, 2 * d.width, d.hidden), ep, tp, ()),
            self._experts(ep, tp, 1),
        )
        down = Bound(
            f"{at}.down",
            self.view((d.experts, d.hidden, d.width), ep, (), tp),
            self._experts(ep, tp, 2),
        )
        return self.op(
            at,
            "experts",
            [x],
            {f"{at}.out": self.hidden_view()},
            gate_up,
            down,
            experts=d.experts,
            top_k=d.top_k,
            valid_rows_only=d.valid_rows_only,
        )

    def _experts(self, ep: Sequence[str], tp: Sequence[str], dim: int) -> Placements:
        return tuple(
            Shard(0) if a.name in ep else Shard(dim) if a.name in tp else REPLICATE
            for a in self.mesh.axes
        )

    def add(self, x: str, y: str, name: str) -> str:
        return self.op(name, "add", [x, y], {f"{name}.out": self.values[x]})

    def layer(self, i: int, x: str, normed: str) -> tuple[str, str]:
        mixed = self.attention(normed, f"{i}.attn")
        self.cuts.append(len(self.operations))
        x = self.add(x, mixed, f"{i}.add")
        normed = self.norm(x, f"{i}.post_norm", self.hidden_view())
        dense = not self.d.experts or i < self.d.dense_layers
        if dense:
            return x, self.dense(normed, f"{i}.mlp")
        y = self.moe(normed, f"{i}.moe")
        if self.d.shared:
            y = self.add(y, self.dense(normed, f"{i}.shared"), f"{i}.both")
        return x, y

    def head(self, x: str) -> None:
        d, group = self.d, self.mesh.groups["ATTN_TP"]
        rows = d.sequences * self.replicas
        view = self.view((rows, d.hidden), token_axes(self.mesh, d.sequences), self.hidden_axes)
        flags = {
            f"replicas.{a.name}": int(a.name in self.mesh.groups["ATTN_DP"]) for a in self.mesh.axes
        }
        x = self.op("rows", "select_rows", [x], {"rows.out": view}, **flags)
        x = self.norm(x, "norm", view)
        head = self.weight("lm_head", d.vocabulary, d.hidden, 0, "ATTN_TP")
        logits = self.linear(x, "lm_head", head, group, view)
        ids = self.view((rows, 1), view.digits[0], ())
        ids_name = self.op("sample", "sample", [logits], {"ids": ids}, candidates=64)
        self.op("tokens", "output", [ids_name], {})

    def build(self) -> Program:
        d = self.d
        given: dict[str, Placements] = {}
        if d.whole:
            table = self.weight("embed", d.vocabulary, d.hidden, 0, "ATTN_TP")
            y = self.op("embed", "embedding", [], {"embed.out": self.hidden_view()}, table)
            x = self.op("embedded", "identity", [y], {"x": self.hidden_view()})
        else:
            self.values |= {"x": self.hidden_view(), "y": self.hidden_view()}
            given = {"x": self.on("ATTN_DP", REPLICATE), "y": self.on("ATTN_DP", REPLICATE)}
            x = self.add("x", "y", "first.add")
        for i in range(d.layers):
            normed = self.norm(x, f"{i}.norm", self.hidden_view())
            x, y = self.layer(i, x, normed)
            x = self.add(x, y, f"{i}.next")
        self.head(x)
        return Program(
            self.mesh.axes,
            self.values,
            tuple(self.operations),
            given,
            tuple(self.cuts),
        )


def build(decoder: Decoder) -> tuple[Mesh, Program]:
    """The mesh and the program."""
    builder = _Builder(decoder)
    program = builder.build()
    return builder.mesh, program
