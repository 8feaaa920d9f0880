"""Each rewrite of marked nodes: before and after, what it refuses, and what it leaves alone.

The texts `goldens/rewrites/*.before.plan` are written by hand; `*.after.plan` are goldens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tscompile.ir.errors import FusionError
from tscompile.ir.parser import parse_draft
from tscompile.ir.printer import print_draft
from tscompile.ir.verifier import Stage, verify
from tscompile.passes.fuse_collectives import fuse_collectives
from tscompile.passes.fuse_compute import fuse_compute
from tscompile.rewrites.table import REWRITES

REDUCE = "all_reduce_add_rms_norm"
SCATTER = "reduce_scatter_add_rms_norm"
GATHER = "reduce_scatter_add_rms_norm_all_gather"
CASES = (
    "add_rms_norm",
    "linear_silu_mul",
    "scaled_linear_silu_mul",
    "rope_kv_write",
    "qk_norm_rope_kv_write",
    REDUCE,
    f"{REDUCE}-first",
    SCATTER,
    f"{SCATTER}-first",
    GATHER,
    f"{GATHER}-both",
)
BEFORE = Path(__file__).parent / "goldens" / "rewrites"


def before(case: str) -> str:
    return (BEFORE / f"{case}.before.plan").read_text(encoding="utf-8")


def rewritten(text: str) -> str:
    """The plan of `text` after both passes that fuse, each verified."""
    draft = fuse_collectives(parse_draft(text))
    verify(draft, Stage.FUSE_COLLECTIVES)
    draft = fuse_compute(draft)
    verify(draft, Stage.FUSE_COMPUTE)
    return print_draft(draft)


def fuse(text: str) -> None:
    fuse_compute(fuse_collectives(parse_draft(text)))


def test_every_rewrite_has_a_case() -> None:
    assert {case.partition("-")[0] for case in CASES} == set(REWRITES)


@pytest.mark.parametrize("case", CASES)
def test_before_and_after(case: str, golden: Callable[[str, str], None]) -> None:
    text = before(case)
    assert print_draft(parse_draft(text)) == text
    after = rewritten(text)
    assert f"= {case.partition('-')[0]}(" in after
    golden(f"rewrites/{case}.after.plan", after)


@pytest.mark.parametrize("case", CASES)
def test_nothing_changes_without_a_mark(case: str) -> None:
    op = case.partition("-")[0]
    plain = "\n".join(line.partition(" fused ")[0] for line in before(case).split("\n"))
    after = rewritten(plain)
    assert after == plain
    assert f"= {op}(" not in after


def with_reader(text: str, name: str) -> str:
    """One more op that reads the value `name`: an activation of it by itself."""
    declared = next(line for line in text.split("\n") if f"{name}: float64" in line)
    type_ = declared.partition(f"{name}: ")[2].split(" = ")[0].split(", ")[0]
    shape = type_.split("]")[0]
    line = f"  again: {type_} = add({name}, {name}) in elsewhere"
    assert shape in line
    return text.replace("\n  output ", f"\n{line}\n  output ")


INNER = {
    "linear_silu_mul": "gate",
    "scaled_linear_silu_mul": "gate",
    "rope_kv_write": "turned_k",
    "qk_norm_rope_kv_write": "normed_q",
    REDUCE: "reduced",
    SCATTER: "reduced",
    GATHER: "normed",
    f"{GATHER}-both": "total",
}


@pytest.mark.parametrize(("case", "name"), INNER.items())
def test_another_reader_of_what_lies_inside_is_refused(case: str, name: str) -> None:
    with pytest.raises(FusionError, match=f"add in elsewhere reads {name} too"):
        fuse(with_reader(before(case), name))


@pytest.mark.parametrize("case", ["add_rms_norm", REDUCE, f"{SCATTER}-first", GATHER])
def test_a_gain_of_another_dtype_is_refused(case: str) -> None:
    text = before(case).replace("norm.weight: float64", "norm.weight: float32")
    with pytest.raises(FusionError, match="dtypes: x is float64, but weight is float32"):
        fuse(text)


@pytest.mark.parametrize(
    ("case", "old", "new", "why"),
    [
        ("add_rms_norm", "rms_norm(total,", "rms_norm(x,", "the norm is of another value"),
        ("add_rms_norm", "= add(x, x) in block", "= silu_mul(x, x) in block", "not silu_mul"),
        ("linear_silu_mul", "silu_mul(gate, up)", "silu_mul(up, gate)", "not of gate and up"),
        (
            "scaled_linear_silu_mul",
            "silu_mul(gate, up)",
            "silu_mul(up, gate)",
            "not of gate and up",
        ),
        ("rope_kv_write", "kv_write(turned_k,", "kv_write(key,", "other keys are written"),
        (
            "rope_kv_write",
            "rotary(key, table; interleaved=False)",
            "rotary(key, table; interleaved=True)",
            "interleaved differs",
        ),
        (
            "qk_norm_rope_kv_write",
            "rms_norm(key, k_norm.weight; eps=1e-06)",
            "rms_norm(key, k_norm.weight; eps=1e-05)",
            "eps differs",
        ),
        ("qk_norm_rope_kv_write", "rotary(normed_q,", "rotary(query,", "other heads are rotated"),
        (REDUCE, "reduce='sum'", "reduce='max'", "another operator"),
        (REDUCE, "add(x, reduced)", "add(x, x)", "another value is added"),
        (REDUCE, "= all_reduce(y; ", "= all_gather(y; dim=0, ", "not all_gather, add"),
        (SCATTER, "dim=0, reduce", "dim=1, reduce", "it scatters columns"),
        (GATHER, "all_gather(normed;", "all_gather(total;", "it gathers other values"),
        (GATHER, "size=2, dim=0) in norm", "size=2, dim=1) in norm", "it gathers columns"),
        (GATHER, "size=2, dim=0) in norm", "size=4, dim=0) in norm", "over other axes"),
    ],
)
def test_nodes_that_are_not_the_op_are_refused(case: str, old: str, new: str, why: str) -> None:
    text = before(case)
    assert old in text
    with pytest.raises(FusionError, match=why):
        fuse(text.replace(old, new, 1))
