"""Plans lowered by hand, for meshes that the compiler's own search may not reach yet.

The decoder is the compiler's own Llama; how it is spread is written out here, op by op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proof.writer import Axes, Writer, plan_of

from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets, CompileRequest, KvCacheRequest, LimitsRequest
from tscompile.models.config import ModelConfig, from_hf
from tskernels.schema import DType
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.schema import (
    Axis,
    CacheGroup,
    CacheStorage,
    InputStorage,
    KvCache,
    Limits,
    Mesh,
    Phase,
    Plan,
    Program,
    RankIndex,
    Target,
    Weight,
    WeightPart,
    WeightStorage,
)

PAGES, PAGE_SIZE, MAX_PAGES = 9, 4, 8


@dataclass(frozen=True)
class Spread:
    """How to lower: the mesh, its groups, and whether the residual's rows are cut over ATTN_TP."""

    axes: Mapping[str, int]
    attn: Axes
    dense: Axes
    cut_rows: bool = False

    @property
    def mesh(self) -> Mesh:
        replicas = tuple(axis for axis in self.axes if axis not in self.attn)
        groups = {"ATTN_TP": self.attn, "ATTN_DP": replicas, "DENSE_TP": self.dense}
        return Mesh(tuple(Axis(n, s) for n, s in self.axes.items()), groups)


def tiny_config(**changes: object) -> ModelConfig:
    """A Llama of two layers whose sizes divide by 1, 2, 4 and 8, with biases and QK-norm."""
    config: dict[str, object] = {
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": 36,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 4,
        "attention_bias": True,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    return from_hf(config | changes)


def certificate_of(config: ModelConfig, dtype: DType = DType.FLOAT64) -> Certificate:
    """What the model computes, by the compiler's own trace."""
    request = CompileRequest(
        name="handmade",
        model=config,
        dtype=dtype,
        target=Target("cpu", "any", "cpu-gloo"),
        parallel=ParallelSizes(1, 1, 1),
        buckets=Buckets((1,), ((1, 1),)),
        kv=KvCacheRequest(PAGE_SIZE, dtype, pages=PAGES),
        limits=LimitsRequest(PAGE_SIZE * MAX_PAGES, 1, 1),
    )
    return certify(request)


class Lowering:
    """One program of the decoder, spread as `spread` says."""

    def __init__(
        self,
        certificate: Certificate,
        config: ModelConfig,
        spread: Spread,
        weights: dict[str, Weight],
        phase: Phase,
        tokens: int,
        sequences: int,
    ) -> None:
        self.config, self.spread, self.mesh = config, spread, spread.mesh
        self.weights, self.dtype = weights, certificate.parameters[0].dtype
        self.shapes = {p.name: p.shape for p in certificate.parameters}
        self.constants = {c.name: c for c in certificate.constants}
        self.phase, self.tokens, self.sequences = phase, tokens, sequences
        self.w = Writer(spread.mesh)
        self.attn, self.dense = spread.attn, spread.dense
        self.replicas = spread.mesh.groups["ATTN_DP"]
        wide = [axis for axis in spread.dense if axis not in spread.attn]
        self.gathered: Axes = tuple(wide)
        """Replicas whose rows the dense layers take together."""
        self.lone: Axes = tuple(axis for axis in spread.attn if axis not in spread.dense)

    def program(self) -> Program:
        inputs = self._inputs()
        hidden = self._embedding()
        frequencies = self._constant("model.rotary_emb.inv_freq")
        table = self.w.op("rotary_table", "positions", frequencies)
        for layer in range(self.config.layers):
            hidden = self._attention(layer, hidden, table)
            hidden = self._mlp(layer, hidden)
        output = self._head(hidden)
        return self.w.program(self.phase, self.tokens, self.sequences, inputs, output)

    def _inputs(self) -> tuple[str, ...]:
        shapes: dict[str, tuple[int, ...]] = {
            "token_ids": (self.tokens,),
            "positions": (self.tokens,),
            "query_starts": (self.sequences + 1,),
            "seq_lens": (self.sequences,),
            "slot_mapping.full": (self.tokens,),
            "block_table.full": (self.sequences, MAX_PAGES),
        }
        if self.phase is Phase.EXTEND:
            shapes["logit_rows"] = (self.sequences,)
        for name, shape in shapes.items():
            self.w.bind(name, DType.INT32, shape, InputStorage(name))
        return tuple(shapes)

    def _constant(self, name: str) -> str:
        constant = self.constants[name]
        shape = (len(constant.values),)
        self.weights[name] = Weight(name, constant.dtype, shape, (), constant=constant.values)
        return self.w.bind(name, constant.dtype, shape, WeightStorage(name))

    def _weight(
        self,
        name: str,
        tensors: Sequence[str],
        dim: int | None = None,
        axes: Axes = (),
        padded: int | None = None,
    ) -> str:
        """Shards of whole tensors, packed along dim 0."""
        ranks = self.mesh.size(axes)
        cut = dim if axes else None
        parts, rows, width = list[WeightPart](), 0, 0
        for tensor in tensors:
            shape = list(self.shapes[tensor])
            size = padded or (shape[cut] if cut is not None else 0)
            parts.append(WeightPart(tensor, tuple(shape), cut, axes, None if cut is None else size))
            if cut is not None:
                shape[cut] = size // ranks
            rows, width = rows + shape[0], math.prod(shape[1:])
        shape = (rows,) if len(self.shapes[tensors[0]]) == 1 else (rows, width)
        self.weights[name] = Weight(name, self.dtype, shape, tuple(parts), axes)
        return self.w.bind(name, self.dtype, shape, WeightStorage(name))

    @property
    def _vocabulary(self) -> int:
        ranks = self.mesh.size(self.attn)
        return -(-self.config.vocab_size // ranks) * ranks

    def _embedding(self) -> str:
        name = "model.embed_tokens.weight"
        weight = self._weight(name, [name], 0, self.attn, self._vocabulary)
        rows = self._vocabulary // self.mesh.size(self.attn)
        x = self.w.op(
            "embedding",
            "token_ids",
            weight,
            module="model.embed_tokens",
            vocab_start=RankIndex(self.attn, rows) if self.attn else 0,
        )
        if self.spread.cut_rows:
            return self.w.reduce_scatter(x, self.attn)
        return self.w.all_reduce(x, self.attn)

    def _norm(self, x: str, tensor: str) -> str:
        weight = self._weight(tensor, [tensor])
        return self.w.op("rms_norm", x, weight, eps=self.config.norm_eps, module=tensor)

    def _attention(self, layer: int, hidden: str, table: str) -> str:
        base, config, w = f"model.layers.{layer}.self_attn", self.config, self.w
        x = self._norm(hidden, f"model.layers.{layer}.input_layernorm.weight")
        if self.spread.cut_rows:
            x = w.all_gather(x, self.attn)
        names = [f"{base}.{letter}_proj" for letter in "qkv"]
        weight = self._weight(f"{base}.qkv.weight", [f"{n}.weight" for n in names], 0, self.attn)
        bias = self._weight(f"{base}.qkv.bias", [f"{n}.bias" for n in names], 0, self.attn)
        qkv = w.op("linear", x, weight, bias, module=f"{base}.qkv")
        ranks, dim = self.mesh.size(self.attn), config.head_dim
        widths = [n * dim // ranks for n in (config.heads, config.kv_heads, config.kv_heads)]
        parts = w.ops_of("split", (qkv,), base, {"sizes": tuple(widths)})
        query, key, value = (w.op("unflatten", part, size=dim) for part in parts)
        query = w.op("rotary", self._norm(query, f"{base}.q_norm.weight"), table)
        key = w.op("rotary", self._norm(key, f"{base}.k_norm.weight"), table)
        cache = self._cache(layer)
        written = w.op("kv_write", key, value, cache, "slot_mapping.full", module=base)
        mixed = w.op(
            "attention",
            query,
            written,
            "block_table.full",
            "seq_lens",
            "query_starts",
            None,
            module=base,
            scale=dim**-0.5,
        )
        weight = self._weight(f"{base}.o.weight", [f"{base}.o_proj.weight"], 1, self.attn)
        bias = self._weight(f"{base}.o.bias", [f"{base}.o_proj.bias"])
        masked = w.mask(bias, self.attn)
        out = w.op("linear", w.op("flatten", mixed), weight, masked, module=f"{base}.o_proj")
        if self.spread.cut_rows:
            return w.op("add", hidden, w.reduce_scatter(out, self.attn))
        return w.op("add", hidden, w.all_reduce(out, self.attn))

    def _cache(self, layer: int) -> str:
        heads = self.config.kv_heads // self.mesh.size(self.attn)
        shape = (PAGES, 2, heads, PAGE_SIZE, self.config.head_dim)
        return self.w.bind(f"cache.{layer}", self.dtype, shape, CacheStorage("full", layer))

    def _mlp(self, layer: int, hidden: str) -> str:
        base, w = f"model.layers.{layer}.mlp", self.w
        x = self._norm(hidden, f"model.layers.{layer}.post_attention_layernorm.weight")
        everyone = (*self.attn, *self.gathered)
        cut = self.spread.cut_rows
        x = w.all_gather(x, everyone if cut else self.gathered)
        names = [f"{base}.{name}_proj.weight" for name in ("gate", "up")]
        weight = self._weight(f"{base}.gate_up.weight", names, 0, self.dense)
        joint = w.op("linear", x, weight, None, module=base)
        width = self.config.intermediate // self.mesh.size(self.dense)
        gate, up = w.ops_of("split", (joint,), base, {"sizes": (width, width)})
        down = self._weight(f"{base}.down.weight", [f"{base}.down_proj.weight"], 1, self.dense)
        out = w.op("linear", w.op("silu_mul", gate, up), down, None, module=base)
        if cut:
            shared = tuple(axis for axis in everyone if axis in self.dense)
            out = w.reduce_scatter(self._own_part(out), shared)
        else:
            out = w.all_reduce(
                w.reduce_scatter(out, self.gathered),
                tuple(axis for axis in self.dense if axis in self.attn),
            )
        return w.op("add", hidden, out)

    def _own_part(self, x: str) -> str:
        """Where the dense layers leave axes of ATTN_TP free, every rank there has all rows."""
        return self.w.slice_rows(x, self.lone) if self.lone else x

    def _head(self, hidden: str) -> str:
        w = self.w
        x = w.all_gather(hidden, self.attn) if self.spread.cut_rows else hidden
        if self.phase is Phase.EXTEND:
            x = w.op("select_rows", x, "logit_rows", module="model")
        x = self._norm(x, "model.norm.weight")
        head = w.op("linear", x, "model.embed_tokens.weight", None, module="lm_head")
        logits = w.all_gather(head, self.attn, 1)
        if self._vocabulary == self.config.vocab_size:
            return logits
        return w.op("narrow", logits, dim=1, start=0, size=self.config.vocab_size)


Sizes = tuple[Literal["decode", "extend"], int, int]


def handmade_plan(
    certificate: Certificate,
    config: ModelConfig,
    spread: Spread,
    sizes: Sequence[Sizes] = (("decode", 4, 4), ("extend", 8, 3)),
) -> Plan:
    """A plan of programs of these phases, tokens and sequences, all per replica."""
    weights: dict[str, Weight] = {}
    programs = [
        Lowering(certificate, config, spread, weights, Phase(phase), tokens, sequences).program()
        for phase, tokens, sequences in sizes
    ]
    mesh, dtype = spread.mesh, certificate.parameters[0].dtype
    heads = config.kv_heads // mesh.size(spread.attn)
    layers = tuple(range(config.layers))
    group = CacheGroup("full", layers, heads, config.head_dim, dtype, spread.attn)
    most = max(sequences for _, _, sequences in sizes)
    return plan_of(
        "handmade",
        mesh,
        dtype,
        config.vocab_size,
        Limits(PAGE_SIZE * MAX_PAGES, most, max(t for _, t, _ in sizes), MAX_PAGES),
        KvCache(PAGE_SIZE, PAGES, (group,)),
        weights,
        programs,
    )
