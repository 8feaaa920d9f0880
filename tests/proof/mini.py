"""Plans of a few linears on two axes: sums that cross, sums of sums, independent collectives."""

from __future__ import annotations

from collections.abc import Callable

from proof.writer import Writer, plan_of

from tskernels.schema import DType
from tsruntime.artifact.proof.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    TracedGraph,
    TracedOp,
    TracedParameter,
)
from tsruntime.artifact.schema import (
    Axis,
    InputStorage,
    KvCache,
    Limits,
    Mesh,
    Phase,
    Plan,
    RankIndex,
    Weight,
    WeightPart,
    WeightStorage,
)

ROWS, WIDTH, VOCABULARY = 4, 8, 12
MESH = Mesh((Axis("a", 2), Axis("b", 2)), {"ATTN_TP": ("a", "b"), "ATTN_DP": ()})
_SHAPES = {
    "embed": (VOCABULARY, WIDTH),
    "left": (WIDTH, WIDTH),
    "right": (WIDTH, WIDTH),
    "mix": (WIDTH, WIDTH),
    "head": (VOCABULARY, WIDTH),
}


def mini_certificate() -> Certificate:
    """logits = head(mix(left(x) + right(x))), x embedded."""

    def linear(x: str, weight: str, out: str) -> TracedOp:
        return TracedOp("linear", (x, weight, None), (out,), {}, out)

    ops = (
        TracedOp("embedding", ("token_ids", "embed"), ("x",), {"vocab_start": 0}, "embed"),
        linear("x", "left", "u"),
        linear("x", "right", "v"),
        TracedOp("add", ("u", "v"), ("sum",), {}, "add"),
        linear("sum", "mix", "mixed"),
        linear("mixed", "head", "logits"),
    )
    return Certificate(
        version=CERTIFICATE_VERSION,
        vocab_size=VOCABULARY,
        parameters=tuple(TracedParameter(n, s, DType.FLOAT64) for n, s in _SHAPES.items()),
        constants=(),
        caches=(),
        graphs={"all": TracedGraph(("token_ids",), ops, "logits")},
    )


class MiniWriter(Writer):
    """Writes the mini program; weights are cut along dim 1 over the axes given."""

    def __init__(self) -> None:
        super().__init__(MESH)
        self.weights: dict[str, Weight] = {}
        self.bind("token_ids", DType.INT32, (ROWS,), InputStorage("token_ids"))

    def weight(self, tensor: str, axes: tuple[str, ...] = ()) -> str:
        rows, columns = _SHAPES[tensor]
        name, shape = f"{tensor}@{'+'.join(axes)}", (rows, columns // self.mesh.size(axes))
        part = (
            WeightPart(tensor, (rows, columns), 1, axes)
            if axes
            else WeightPart(tensor, (rows, columns))
        )
        self.weights[name] = Weight(name, DType.FLOAT64, shape, (part,), axes)
        return self.bind(name, DType.FLOAT64, shape, WeightStorage(name))

    def embed(self, axes: tuple[str, ...] = ()) -> str:
        return self.op("embedding", "token_ids", self.weight("embed", axes), module="embed")

    def linear(self, x: str, tensor: str, axes: tuple[str, ...] = ()) -> str:
        return self.op("linear", x, self.weight(tensor, axes), None, module=tensor)

    def columns(self, x: str, axes: tuple[str, ...]) -> str:
        """This rank's slice of the columns."""
        size = self.values[x].shape[1] // self.mesh.size(axes)
        return self.op("slice", x, dim=1, start=RankIndex(axes, size), size=size)

    def plan(self, output: str) -> Plan:
        program = self.program(Phase.DECODE, ROWS, ROWS, ("token_ids",), output)
        limits, cache = Limits(8, ROWS, ROWS, 2), KvCache(4, 9, ())
        return plan_of(
            "mini", MESH, DType.FLOAT64, VOCABULARY, limits, cache, self.weights, [program]
        )


def independent_sums() -> Plan:
    """One sum over `a` and one over `b`, next to each other, neither waiting for the other."""
    w = MiniWriter()
    u = w.linear(w.embed(("a",)), "left", ("a",))
    v = w.linear(w.embed(("b",)), "right", ("b",))
    total = w.op("add", w.all_reduce(u, ("a",)), w.all_reduce(v, ("b",)))
    return w.plan(w.linear(w.linear(total, "mix"), "head"))


Finish = Callable[[MiniWriter, str], str]


def sum_of_sums(finish: Finish) -> Plan:
    """A sum over `b` of products with sums over `a` that are still unfinished.

    `finish` reduces them.
    """
    w = MiniWriter()
    x = w.embed(("a",))
    total = w.op("add", w.linear(x, "left", ("a",)), w.linear(x, "right", ("a",)))
    mixed = finish(w, w.linear(w.columns(total, ("b",)), "mix", ("b",)))
    return w.plan(w.linear(mixed, "head"))
