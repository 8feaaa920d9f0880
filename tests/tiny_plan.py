"""A one-layer language model as a plan written by hand, and its logits in plain numpy.

x = token embedding + position embedding; x += o(attention(qkv(x))); logits = head(x). In a world of
several ranks, heads, vocabulary and head columns are sharded over the axis `a`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tskernels.platform import cpu_arch
from tskernels.schema import DType
from tsruntime.artifact.schema import (
    SCHEMA_VERSION,
    ArenaStorage,
    Attribute,
    Axis,
    CacheGroup,
    CacheStorage,
    InputStorage,
    KvCache,
    Limits,
    Mesh,
    Op,
    Phase,
    Plan,
    Program,
    RankIndex,
    Storage,
    Target,
    Value,
    Weight,
    WeightPart,
    WeightStorage,
)
from tsruntime.artifact.weights import WeightStore

VOCAB, HIDDEN, HEADS, KV_HEADS, WIDTH = 24, 24, 6, 3, 4
SCALE = 0.5
MAX_LEN = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a test varies. A bucket is (tokens, sequences)."""

    world: int = 1
    page_size: int = 4
    pages: int = 33
    max_batch: int = 4
    token_budget: int = 16
    decode: tuple[int, ...] = (1, 2, 4)
    extend: tuple[tuple[int, int], ...] = ((8, 2), (16, 4))
    host_pages: int = 0
    steps_in_flight: int = 1


@dataclass(slots=True)
class _Builder:
    """Collects the values and ops of one program; every value has its own bytes."""

    program: str
    values: list[Value] = field(default_factory=list[Value])
    ops: list[Op] = field(default_factory=list[Op])
    inputs: list[str] = field(default_factory=list[str])
    bytes: int = 0

    def value(self, name: str, dtype: DType, shape: tuple[int, ...], storage: Storage) -> str:
        self.values.append(Value(name, dtype, shape, storage))
        return name

    def arena(self, name: str, *shape: int) -> str:
        storage = ArenaStorage(self.bytes, _strides(shape))
        self.bytes += (int(np.prod(shape)) * 4 + 63) // 64 * 64
        return self.value(name, DType.FLOAT32, shape, storage)

    def alias(
        self, name: str, base: str, shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0
    ) -> str:
        """A value in the bytes of `base`, from its element `start` on."""
        storage = next(v.storage for v in self.values if v.name == base)
        assert isinstance(storage, ArenaStorage)
        place = ArenaStorage(storage.offset_bytes + 4 * start, strides)
        return self.value(name, DType.FLOAT32, shape, place)

    def input(self, name: str, *shape: int) -> str:
        self.inputs.append(name)
        return self.value(name, DType.INT32, shape, InputStorage(name))

    def op(
        self,
        op: str,
        inputs: tuple[str | None, ...],
        outputs: tuple[str, ...],
        pin: str = "torch",
        **attributes: Attribute,
    ) -> str:
        pin = pin if pin == "view" else f"{op}.{pin}"
        self.ops.append(Op(op, pin, inputs, outputs, attributes, "tiny"))
        return outputs[0]


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides)


def tiny_plan(sizes: Sizes = Sizes()) -> Plan:
    """The plan of the model at these sizes."""
    world = sizes.world
    axes = ("a",) if world > 1 else ()
    max_pages = -(-MAX_LEN // sizes.page_size)
    decode = [_program(sizes, Phase.DECODE, n, n) for n in sizes.decode]
    extend = [_program(sizes, Phase.EXTEND, t, s) for t, s in sizes.extend]
    group = CacheGroup("full", (0,), KV_HEADS // world, WIDTH, DType.FLOAT32, axes)
    return Plan(
        SCHEMA_VERSION,
        "tiny",
        "TinyForTests",
        Target("cpu", cpu_arch(), "host"),
        Mesh((Axis("a", world),), {"ATTN_TP": ("a",), "DENSE_TP": ("a",), "MOE_TP_EP": ("a",)}),
        DType.FLOAT32,
        VOCAB,
        Limits(MAX_LEN, sizes.max_batch, sizes.token_budget, max_pages, sizes.steps_in_flight),
        KvCache(sizes.page_size, sizes.pages, (group,), sizes.host_pages),
        tuple(_weight(world, name) for name in NAMES),
        (*decode, *extend),
        dummy_seed=0,
    )


NAMES = ("tokens", "positions", "qkv", "o", "head")


def _parts(world: int, name: str) -> tuple[WeightPart, ...]:
    """The checkpoint tensors of weight `name`; all but the positions are sharded over `a`."""
    axes = ("a",) if world > 1 else ()
    rows, columns = 0 if axes else None, 1 if axes else None
    return {
        "tokens": (WeightPart("tokens", (VOCAB, HIDDEN), rows, axes),),
        "positions": (WeightPart("places", (MAX_LEN, HIDDEN)),),
        "qkv": (
            WeightPart("query", (HEADS * WIDTH, HIDDEN), rows, axes),
            WeightPart("key", (KV_HEADS * WIDTH, HIDDEN), rows, axes),
            WeightPart("value", (KV_HEADS * WIDTH, HIDDEN), rows, axes),
        ),
        "o": (WeightPart("o", (HIDDEN, HEADS * WIDTH), columns, axes),),
        "head": (WeightPart("head", (VOCAB, HIDDEN), rows, axes),),
    }[name]


def _weight(world: int, name: str) -> Weight:
    parts = _parts(world, name)
    rows = sum(p.shape[0] // (world if p.dim == 0 else 1) for p in parts)
    columns = parts[0].shape[1] // (world if parts[0].dim == 1 else 1)
    return Weight(name, DType.FLOAT32, (rows, columns), parts, parts[0].axes)


def whole_weights() -> dict[str, NDArray[np.float64]]:
    """The generated weights of the unsharded model, in float64."""
    plan = tiny_plan()
    store = WeightStore(Path("unused"), plan, 0)
    return {w.name: store.tensor(w.name).double().numpy() for w in plan.weights}


def _program(sizes: Sizes, phase: Phase, tokens: int, sequences: int) -> Program:
    world, t = sizes.world, tokens
    heads, kv_heads = HEADS // world, KV_HEADS // world
    width = (heads + 2 * kv_heads) * WIDTH
    build = _Builder(phase.value)
    max_pages = -(-MAX_LEN // sizes.page_size)
    ids, positions = build.input("token_ids", t), build.input("positions", t)
    slots = build.input("slot_mapping.full", t)
    table = build.input("block_table.full", sequences, max_pages)
    lengths, starts = build.input("seq_lens", sequences), build.input("query_starts", sequences + 1)
    decodes = phase is Phase.DECODE
    rows = "" if decodes else build.input("logit_rows", sequences)
    for name in NAMES:
        build.value(f"w.{name}", DType.FLOAT32, _weight(world, name).shape, WeightStorage(name))
    pool = (sizes.pages, 2, kv_heads, sizes.page_size, WIDTH)
    cache = build.value("cache", DType.FLOAT32, pool, CacheStorage("full", 0))
    written = build.value("written", DType.FLOAT32, pool, CacheStorage("full", 0))

    def reduced(name: str, partial: str, *shape: int) -> str:
        if world == 1:
            return partial
        out = (build.arena(name, *shape),)
        return build.op(
            "all_reduce", (partial,), out, "communicator", axes=("a",), size=world, reduce="sum"
        )

    start = RankIndex(("a",), VOCAB // world)
    x = build.op(
        "embedding", (ids, "w.tokens"), (build.arena("embedded", t, HIDDEN),), vocab_start=start
    )
    x = reduced("embedded.sum", x, t, HIDDEN)
    place = build.op(
        "embedding", (positions, "w.positions"), (build.arena("place", t, HIDDEN),), vocab_start=0
    )
    x = build.op("add", (x, place), (build.arena("x", t, HIDDEN),))
    qkv = build.op("linear", (x, "w.qkv", None), (build.arena("qkv", t, width),))
    sizes_of = {"query": heads * WIDTH, "key": kv_heads * WIDTH, "value": kv_heads * WIDTH}
    at = 0
    for name, columns in sizes_of.items():
        build.alias(f"{name}.flat", qkv, (t, columns), (width, 1), at)
        build.alias(name, qkv, (t, columns // WIDTH, WIDTH), (width, WIDTH, 1), at)
        at += columns
    query, key, value = sizes_of
    flats = tuple(f"{name}.flat" for name in sizes_of)
    build.op("split", (qkv,), flats, "view", sizes=tuple(sizes_of.values()))
    for name in sizes_of:
        build.op("unflatten", (f"{name}.flat",), (name,), "view", size=WIDTH)
    build.op("kv_write", (key, value, cache, slots), (written,))
    attended = build.op(
        "attention",
        (query, written, table, lengths, starts, None),
        (build.arena("attended", t, heads, WIDTH),),
        scale=SCALE,
        window=0,
    )
    flat = build.alias("flat", attended, (t, heads * WIDTH), (heads * WIDTH, 1))
    build.op("flatten", (attended,), (flat,), "view")
    out = build.op("linear", (flat, "w.o", None), (build.arena("o", t, HIDDEN),))
    out = reduced("o.sum", out, t, HIDDEN)
    x = build.op("add", (x, out), (build.arena("y", t, HIDDEN),))
    last = x
    if not decodes:
        last = build.op("select_rows", (x, rows), (build.arena("last", sequences, HIDDEN),))
    logits = build.op(
        "linear", (last, "w.head", None), (build.arena("logits", sequences, VOCAB // world),)
    )
    if world > 1:
        gathered = (build.arena("gathered", sequences, VOCAB),)
        logits = build.op(
            "all_gather", (logits,), gathered, "communicator", axes=("a",), size=world, dim=1
        )
    return Program(
        f"{phase.value}-{tokens}-{sequences}",
        phase,
        tokens,
        sequences,
        "last",
        tuple(build.inputs),
        tuple(build.values),
        tuple(build.ops),
        logits,
        build.bytes,
    )


def tiny_logits(w: Mapping[str, NDArray[np.float64]], tokens: list[int]) -> NDArray[np.float64]:
    """Logits [tokens, VOCAB] of every position of one sequence, in float64 and without a cache."""
    count = len(tokens)
    x = w["tokens"][tokens] + w["positions"][:count]
    query, key, value = np.split(
        x @ w["qkv"].T, (HEADS * WIDTH, (HEADS + KV_HEADS) * WIDTH), axis=1
    )
    group = HEADS // KV_HEADS
    query = query.reshape(count, HEADS, WIDTH)
    key = key.reshape(count, KV_HEADS, WIDTH).repeat(group, axis=1)
    value = value.reshape(count, KV_HEADS, WIDTH).repeat(group, axis=1)
    scores = np.einsum("ihd,jhd->hij", query, key) * SCALE
    scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended = np.einsum("hij,jhd->ihd", weights, value).reshape(count, HEADS * WIDTH)
    return (x + attended @ w["o"].T) @ w["head"].T


def tiny_greedy(
    whole: Mapping[str, NDArray[np.float64]],
    prompt: list[int],
    count: int,
    banned: Sequence[int] = (),
) -> list[int]:
    """The `count` tokens that follow `prompt`, always the likeliest that is not `banned`."""
    tokens = list(prompt)
    for _ in range(count):
        logits = tiny_logits(whole, tokens)[-1]
        logits[list(banned)] = -np.inf
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]
