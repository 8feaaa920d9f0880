"""The text of a communication plan as it is committed: whole, exact, without times.

    plan qwen3-8b-tp2 Qwen3ForCausalLM bfloat16
    ...
    programs decode_1 decode_8 {
      decode T 1|8 S 1|8 logits last arena 2048T
      layers 0..35 {
        mlp.down_proj: linear bfloat16[T,6144] moves 50331648+20480T flops 50331648T !linear.torch
        post_attention_layernorm: all_reduce over a bfloat16[T,4096] sends 8192T ...
      }
    }

Programs that are alike but for numbers print once, so do layers; `parser` reads it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tscompile.communication.groups import Column, Group, grouped, ranges
from tscompile.communication.numbers import expression, shape_text
from tscompile.communication.plan import (
    CacheLayout,
    CommunicationPlan,
    Pool,
    Section,
    WeightLayout,
)

END = "end"
"""The last line: a file that was cut short lacks it."""


def golden_text(plan: CommunicationPlan) -> str:
    """The whole plan; equal plans give equal texts."""
    lines = [*_header(plan), "", "weights {"]
    lines += [f"  {_weight(weight)}" for weight in plan.weights]
    lines.append("}")
    for group in grouped(plan.programs):
        lines += ["", *_group(group)]
    lines += ["", END]
    return "\n".join(lines) + "\n"


def _header(plan: CommunicationPlan) -> Iterator[str]:
    target, limits = plan.target, plan.limits
    axes = " ".join(f"{axis.name}={axis.size}" for axis in plan.mesh.axes)
    groups = " ".join(f"{name}={'+'.join(axes)}" for name, axes in plan.mesh.groups.items())
    yield f"plan {plan.name} {plan.architecture} {plan.dtype}"
    yield f"target {target.device} {target.arch} {target.topology}"
    yield f"mesh [{axes}] {groups}"
    yield (
        f"limits max_model_len {limits.max_model_len} max_batch {limits.max_batch} token_budget "
        f"{limits.token_budget} max_pages {limits.max_pages} steps {limits.steps_in_flight}"
    )
    yield from _pool(plan.pool)
    if plan.unpinned:
        yield f"unpinned {plan.unpinned}"


def _pool(pool: Pool) -> Iterator[str]:
    yield f"kv page_size {pool.page_size} pages {pool.pages} host_pages {pool.host_pages}"
    yield from (_cache(cache) for cache in pool.caches)


def _cache(cache: CacheLayout) -> str:
    window = "" if cache.window is None else f" window {cache.window}"
    return (
        f"cache {cache.name} {cache.dtype} heads {cache.heads}x{cache.width} planes {cache.planes} "
        f"over [{'+'.join(cache.axes)}] layers {ranges(cache.layers)}{window}"
    )


def _weight(weight: WeightLayout) -> str:
    layers = f" layers {ranges(weight.layers)}" if weight.layers else ""
    cut = f" cut {weight.cut}" if weight.cut else ""
    shape = ",".join(map(str, weight.shape))
    return f"{weight.kind} {weight.name}: {weight.dtype}[{shape}]{cut}{layers}"


def _group(group: Group) -> Iterator[str]:
    first, buckets = group.programs[0], group.buckets
    yield f"programs {' '.join(program.name for program in group.programs)} {{"
    tokens = "|".join(str(bucket.tokens) for bucket in buckets)
    sequences = "|".join(str(bucket.sequences) for bucket in buckets)
    arena = expression([program.arena_bytes for program in group.programs], buckets)
    yield f"  {first.phase} T {tokens} S {sequences} logits {first.logits} arena {arena}"
    for section, columns in group.sections():
        yield from _section(section, (f"    {_entry(column, group)}" for column in columns))
    yield "}"


def _section(section: Section, lines: Iterable[str]) -> Iterator[str]:
    yield f"  layers {ranges(section.layers)} {{" if section.layers else "  outside {"
    yield from lines
    yield "  }"


def _entry(column: Column, group: Group) -> str:
    buckets, first = group.buckets, column.first

    def number(word: str, values: Iterable[int]) -> str:
        text = expression(list(values), buckets)
        return "" if text == "0" else f" {word} {text}"

    shape = shape_text([entry.shape for entry in column.entries], buckets)
    over = f" over {'+'.join(first.axes)}" if first.axes else ""
    note = f" ({first.note})" if first.note else ""
    sends = number("sends", (entry.wire for entry in column.entries))
    moves = number("moves", (entry.moved for entry in column.entries))
    flops = number("flops", (entry.flops for entry in column.entries))
    launches = "" if first.launches == 1 else f" launches {first.launches}"
    pin = f" !{first.pin}" if first.pin else ""
    head = f"{first.module or '.'}: {first.op}{over}{note} {first.dtype}{shape}"
    return f"{head}{sends}{moves}{flops}{launches}{pin}"
