"""Make the programs: one for each phase and bucket, every value typed, weights and caches bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.errors import BucketError
from tscompile.ir.graph import Graph, Node, cache_name
from tscompile.ir.mesh import build_mesh, replicas_of
from tscompile.ir.placement import by_replica
from tscompile.ir.repeats import unrolled
from tscompile.ir.request import CompileRequest
from tscompile.ir.typing import infer_types
from tscompile.passes.binding import bind_cache, bind_cache_groups, bind_edges, bind_weights
from tskernels.ops import OPS
from tskernels.schema import DType, TensorType
from tsruntime.artifact.schema import (
    CacheStorage,
    InputStorage,
    KvCache,
    Limits,
    Phase,
    WeightStorage,
)


def plan_buckets(graphs: Mapping[str, Graph], request: CompileRequest) -> Draft:
    """Programs for every bucket of the request.

    `graphs` holds the graph that gives logits for all rows ("all", which decode programs use:
    their rows are one a sequence) and the one that selects rows ("selected").
    Raises BucketError where the largest buckets do not hold what the limits admit.
    """
    _check_buckets(request)
    mesh = build_mesh(request.parallel, request.model.kv_heads)
    page_size = request.kv.page_size
    max_pages = -(-request.limits.max_model_len // page_size)
    limits = Limits(
        request.limits.max_model_len,
        request.limits.max_batch,
        request.limits.token_budget,
        max_pages,
        request.limits.steps_in_flight,
    )
    graph = graphs["all"]
    caches = unrolled(graph.caches, graph.repeats)
    draft = Draft(
        name=request.name,
        architecture=request.model.architecture,
        target=request.target,
        mesh=mesh,
        dtype=request.dtype,
        vocab_size=request.model.vocab_size,
        limits=limits,
        kv_cache=KvCache(page_size, 0, bind_cache_groups(caches, request.kv.dtype)),
        weights=bind_weights(graph, mesh, request.dtype),
        programs=(),
        dummy_seed=request.dummy_seed,
        repeats=graph.repeats,
    )
    return replace(draft, programs=tuple(_programs(graphs, draft, request)))


def _check_buckets(request: CompileRequest) -> None:
    """Some bucket of each phase must hold the most that one step may carry."""
    limits, buckets = request.limits, request.buckets
    if max(buckets.decode, default=0) < limits.max_batch:
        raise BucketError(
            f"no decode bucket holds max_batch = {limits.max_batch} rows: {list(buckets.decode)}",
            remedy=f"add a decode bucket of {limits.max_batch}, or lower limits.max_batch",
            where="buckets.decode",
        )
    if not any(t >= limits.token_budget and s >= limits.max_batch for t, s in buckets.extend):
        raise BucketError(
            f"no extend bucket holds token_budget = {limits.token_budget} tokens of "
            f"max_batch = {limits.max_batch} sequences: {[list(b) for b in buckets.extend]}",
            remedy=f"add an extend bucket of {limits.token_budget} tokens and "
            f"{limits.max_batch} sequences, or lower the limits",
            where="buckets.extend",
        )


def _programs(
    graphs: Mapping[str, Graph], draft: Draft, request: CompileRequest
) -> list[DraftProgram]:
    buckets = request.buckets
    programs = [
        _program(graphs["all"], draft, f"decode_{rows}", Phase.DECODE, rows, rows, "last")
        for rows in sorted(set(buckets.decode))
    ]
    for tokens, sequences in sorted(set(buckets.extend)):
        name, sizes = f"extend_{tokens}x{sequences}", (Phase.EXTEND, tokens, sequences)
        programs.append(_program(graphs["selected"], draft, name, *sizes, "last"))
    for tokens, sequences in sorted(set(buckets.all_logits)):
        name, sizes = f"extend_{tokens}x{sequences}_all", (Phase.EXTEND, tokens, sequences)
        programs.append(_program(graphs["all"], draft, name, *sizes, "all"))
    return programs


def _program(
    graph: Graph,
    draft: Draft,
    name: str,
    phase: Phase,
    tokens: int,
    sequences: int,
    logits: Literal["last", "all"],
) -> DraftProgram:
    values = {
        **_input_values(graph, draft, tokens, sequences),
        **_cache_values(graph, draft),
        **{
            w.name: DraftValue(w.name, w.type, w.placements, WeightStorage(w.name))
            for w in draft.weights.values()
        },
    }
    nodes, output = _without_padding(graph, draft)
    for node in nodes:
        types = infer_types(node, values, replicas_of(draft.mesh))
        for out, type_ in zip(node.outputs, types, strict=True):
            values[out] = _produced(node, out, type_, values)
    read = {value for node in nodes for value in node.inputs}
    return DraftProgram(
        name=name,
        phase=phase,
        tokens=tokens,
        sequences=sequences,
        logits=logits,
        inputs=graph.inputs,
        values={n: v for n, v in values.items() if n in read or not v.is_bound or n == output},
        nodes=nodes,
        output=output,
        edges=bind_edges(graph, draft.mesh),
    )


def _produced(
    node: Node, name: str, type_: TensorType, values: Mapping[str, DraftValue]
) -> DraftValue:
    """An op's output; what a cache write yields is the cache itself, bound as that is."""
    source = (OPS[node.op].schema.mutates or {}).get(node.outputs.index(name))
    if source is None:
        return DraftValue(name, type_)
    cache = node.inputs[source]
    assert cache is not None
    return replace(values[cache], name=name)


def _without_padding(graph: Graph, draft: Draft) -> tuple[tuple[Node, ...], str]:
    """The graph's nodes, and one more that cuts off logits of padded vocabulary rows."""
    head = graph.nodes[-1]
    weights = [draft.weights[i] for i in head.inputs if i is not None and i in draft.weights]
    if not any(w.parts and w.parts[0].padded is not None for w in weights):
        return graph.nodes, graph.output
    cut = Node(
        "narrow",
        (graph.output,),
        ("logits",),
        {"dim": 1, "start": 0, "size": draft.vocab_size},
        head.module,
    )
    return (*graph.nodes, cut), "logits"


def _input_values(graph: Graph, draft: Draft, tokens: int, sequences: int) -> dict[str, DraftValue]:
    def shape(name: str) -> tuple[int, ...]:
        rows, *others = of_one(name)
        return (rows * replicas_of(draft.mesh), *others)

    def of_one(name: str) -> tuple[int, ...]:
        match name.partition(".")[0]:
            case "query_starts":
                return (sequences + 1,)
            case "seq_lens" | "logit_rows":
                return (sequences,)
            case "block_table":
                return (sequences, draft.limits.max_pages)
            case _:
                return (tokens,)

    own = by_replica(draft.mesh)
    return {
        name: DraftValue(name, TensorType(DType.INT32, shape(name)), own, InputStorage(name))
        for name in graph.inputs
    }


def _cache_values(graph: Graph, draft: Draft) -> dict[str, DraftValue]:
    values: dict[str, DraftValue] = {}
    kv = draft.kv_cache
    for index, layer in enumerate(graph.caches):
        dtype = next(group.dtype for group in kv.groups if group.name == layer.group)
        shape = (kv.pages, layer.planes, layer.kv_heads, kv.page_size, layer.head_dim)
        values[cache_name(index)] = DraftValue(
            cache_name(index),
            TensorType(dtype, shape),
            bind_cache(draft.mesh, layer),
            CacheStorage(layer.group, index),
        )
    return values
