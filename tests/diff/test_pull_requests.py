"""Pull requests as a reviewer meets them: what the diff says, how briefly, and which rules fire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from deployments import ROOT
from planned import H200, deployment, edited, planned_once
from torch import Tensor

from tscompile.communication.blocks import FUSIONS
from tscompile.communication.compiled import planned_request
from tscompile.communication.parser import parse_golden
from tscompile.communication.plan import CommunicationPlan
from tscompile.diff.compare import compare
from tscompile.diff.formats.text import as_text
from tscompile.diff.report import Report
from tscompile.diff.rules import fired, parse_rule
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets
from tscompile.models.annotations import ForwardInputs
from tscompile.models.llama import DecoderLayer
from tskernels import ops
from tskernels.kernel import KernelSpec
from tskernels.registry import Registry
from tskernels.schema import DType
from tsruntime.artifact.schema import Target

RULES = ("bytes>+5%", "time>+2%", "collectives>0", "memory>+1%", "kernel-change")
"""What a repository would ask for."""


def reviewed(before: CommunicationPlan, after: CommunicationPlan) -> tuple[list[str], set[str]]:
    """The lines of the diff, fewer than 25, and the rules that fire."""
    diff = compare(before, after)
    found = fired(tuple(parse_rule(rule) for rule in RULES), diff)
    lines = as_text(Report(("before", "after"), before, after, diff)).splitlines()
    assert len(lines) < 25
    return [" ".join(line.split()) for line in lines], {rule.rule for rule in found}


def about(lines: list[str], word: str) -> list[str]:
    """The lines that begin with a word, without it."""
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


def test_more_ranks_for_a_model() -> None:
    lines, rules = reviewed(planned_once(deployment(sizes=2)), planned_once(deployment(sizes=6)))
    assert about(lines, "setting") == [
        "world 2 -> 6, ATTN_KV 2 -> 6, ATTN_TP 2 -> 6, DENSE_TP 2 -> 6"
    ]
    changed = about(lines, "collective")
    assert all(line.startswith("~ all_reduce") for line in changed)
    assert all(any(name in line for line in changed) for name in ("o_proj in", "down_proj in"))
    assert all("(over 2 ranks -> over 6 ranks)" in line for line in changed)
    # One shot: a rank sends its 96 float32 of a row to 5 others instead of 1, 6 times a step.
    assert "2.30 KB -> 11.5 KB (+400.0%) sent" in about(lines, "step")[0]
    assert any("Shard(0) over 2 ranks -> Shard(0) over 6 ranks" in line for line in lines)
    assert any("cut over 2 ranks -> float32 2x1x8 a token, cut over 6 ranks" in x for x in lines)
    assert rules == {"bytes>+5%"}


def _post_norm(
    self: DecoderLayer, x: Tensor, table: Tensor, inputs: ForwardInputs, cache: Tensor
) -> Tensor:
    x = ops.add(x, self.input_layernorm(self.self_attn(x, table, inputs, cache)))
    return ops.add(x, self.post_attention_layernorm(self.mlp(x)))


def test_a_norm_moved_behind_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned_once(deployment())
    monkeypatch.setattr(DecoderLayer, "forward", _post_norm)
    lines, rules = reviewed(before, planned_request(deployment()))
    # The sums are normed before they are added, so no reduction adds any more.
    collectives = about(lines, "collective")
    assert all(line.startswith("~ ") for line in collectives)
    assert not about(lines, "setting")
    assert not about(lines, "placement")
    kernels = about(lines, "kernel")
    assert any("add.native" in line for line in kernels)
    assert "kernel-change" in rules
    assert "bytes>+5%" not in rules


def _native(self: Registry, op: str, every: Any = Registry.of) -> tuple[KernelSpec, ...]:
    """Fused kernels of float32 alone, as a pack may have them."""
    specs: tuple[KernelSpec, ...] = every(self, op)
    return tuple(s for s in specs if op not in FUSIONS or s.name.endswith(".native"))


def test_fusions_lost_by_a_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "of", _native)
    before = planned_request(deployment())
    lines, rules = reviewed(before, planned_request(deployment(dtype=DType.BFLOAT16)))
    assert about(lines, "setting") == ["dtype float32 -> bfloat16"]
    lost = about(lines, "collective")
    fused = "(all_reduce_add_rms_norm -> all_reduce) over 2 ranks"
    assert any(f"~ {fused}" in line for line in lost)
    assert any("linear_silu_mul.native -> " in line for line in about(lines, "kernel"))
    assert rules == {"kernel-change", "time>+2%"}


def test_one_layer_of_61_is_dense() -> None:
    buckets = Buckets((4,), ((32, 4),))
    plans = [
        planned_once(
            deployment(
                "qwen3_moe",
                ParallelSizes(2, 2, 2, 1, 2),
                config={"num_hidden_layers": 61, "mlp_only_layers": dense},
                buckets=buckets,
            )
        )
        for dense in ([], [30])
    ]
    lines, rules = reviewed(*plans)
    collectives = about(lines, "collective")
    assert collectives
    assert all(line.endswith("layers 30") or "layers 30 " in line for line in collectives)
    assert any("mlp.experts -> mlp.down_proj" in line for line in collectives)
    kernels = about(lines, "kernel")
    assert any("experts" in line and "layers 30" in line for line in kernels)
    assert "kernel-change" in rules
    assert "collectives>0" not in rules


def test_a_deployment_renamed() -> None:
    before = planned_once(deployment())
    lines, rules = reviewed(before, planned_once(deployment(name="other")))
    assert lines == [
        "setting name tiny -> other",
        "summary nothing that is sent, run or held changes",
    ]
    assert not rules


def test_a_module_renamed() -> None:
    before = planned_once(deployment())
    after = edited(edited(before, " mlp.", " feed_forward."), " mlp:", " feed_forward:")
    lines, rules = reviewed(before, after)
    assert lines == [
        "renamed mlp -> feed_forward (4 names)",
        "summary nothing that is sent, run or held changes",
    ]
    assert not rules


def test_a_kernel_changed() -> None:
    before = planned_once(deployment())
    after = edited(before, "!linear_silu_mul.native", "!linear_silu_mul.torch")
    lines, rules = reviewed(before, after)
    assert lines == [
        "kernel linear_silu_mul.native -> linear_silu_mul.torch: mlp layers 0..2 in all programs",
        "summary kernels change",
    ]
    assert rules == {"kernel-change"}


def test_a_bucket_added() -> None:
    before = planned_once(deployment())
    after = planned_once(deployment(buckets=Buckets((1, 2, 4), ((32, 4),))))
    lines, rules = reviewed(before, after)
    assert [line.split(",")[0] for line in lines] == [
        "step decode_2: added",
        "summary 1 program added",
    ]
    assert not rules


def test_another_kv_dtype() -> None:
    before = planned_once(deployment())
    after = edited(before, "cache full float32", "cache full bfloat16")
    lines, rules = reviewed(before, after)
    shape = "2x3x8 a token, cut over 2 ranks"
    # 40 pages of 8 tokens, 3 layers, keys and values of 3 heads of 8: 184,320 and 92,160 bytes.
    assert lines[0].startswith("memory ")
    assert lines[0].endswith("a rank: kv 184 KB -> 92.2 KB")
    assert lines[1] == f"placement float32 {shape} -> bfloat16 {shape}: kv cache full"
    assert len(lines) == 3
    assert not rules


def test_more_pages() -> None:
    lines, rules = reviewed(planned_once(deployment()), planned_once(deployment(pages=80)))
    assert lines[0] == "setting pages 40 -> 80"
    assert lines[1].endswith("a rank: kv 184 KB -> 369 KB")
    assert len(lines) == 3
    assert rules == {"memory>+1%"}


def test_other_hardware() -> None:
    before = planned_once(deployment())
    b200 = Target(H200.device, H200.arch, "b200-nvlink-8")
    lines, rules = reviewed(before, planned_once(deployment(target=b200)))
    assert about(lines, "setting") == ["topology h200-nvlink-8 -> b200-nvlink-8"]
    assert {line.split(" ")[0] for line in lines} == {"setting", "step", "summary"}
    assert not rules


def test_an_output_head_of_its_own() -> None:
    before = planned_once(deployment())
    after = planned_once(deployment(config={"tie_word_embeddings": False}))
    lines, rules = reviewed(before, after)
    # 384 rows of 96 float32.
    assert "head 0 B -> 147 KB" in lines[0]
    assert "placement absent -> replicated: lm_head.weight" in lines
    assert rules == {"memory>+1%"}


def test_experts_cut_by_number_instead_of_width() -> None:
    plans = [
        planned_once(deployment("qwen3_moe", ParallelSizes(2, 2, 2, *moe)))
        for moe in ((2, 1), (1, 2))
    ]
    lines, rules = reviewed(*plans)
    assert lines[0] == "setting MOE_EP 1 -> 2, MOE_TP 2 -> 1"
    assert any("-> experts over 2 ranks: mlp.experts.{}.gate_proj" in line for line in lines)
    assert not about(lines, "collective")
    assert not rules & {"bytes>+5%", "memory>+1%", "collectives>0"}


def test_attention_replicas_instead_of_tensor_parallel_attention() -> None:
    plans = [
        planned_once(deployment("qwen3_moe", sizes))
        for sizes in (ParallelSizes(2, 2, 2, 1, 2), ParallelSizes(2, 1, 1, 1, 2))
    ]
    lines, rules = reviewed(*plans)
    collectives = about(lines, "collective")
    lost = [line for line in collectives if line.startswith("- all_reduce_add_rms_norm")]
    assert any("self_attn.o_proj in all programs" in line for line in lost)
    come = [line for line in collectives if line.startswith("+ all_gather")]
    assert any("post_attention_layernorm in all programs" in line for line in come)
    assert any("Shard(1) over 2 ranks -> replicated" in line for line in about(lines, "placement"))
    assert {"collectives>0", "memory>+1%"} <= rules
    assert "bytes>+5%" not in rules


def test_a_rule_names_what_made_it_fire() -> None:
    before = planned_once(deployment())
    found = fired(
        (parse_rule("memory>+100KB"),), compare(before, planned_once(deployment(pages=80)))
    )
    assert [rule.rule for rule in found] == ["memory>+100KB"]
    assert "799 KB -> 984 KB" in found[0].reason


def test_a_plan_without_kernels_is_compared_by_its_ops() -> None:
    before = planned_once(deployment())
    unpinned = replace(
        before,
        unpinned="none",
        programs=tuple(
            replace(
                program,
                sections=tuple(
                    replace(s, entries=tuple(replace(e, pin="") for e in s.entries))
                    for s in program.sections
                ),
            )
            for program in before.programs
        ),
    )
    diff = compare(before, unpinned)
    assert not diff.kernels
    assert [setting.key for setting in diff.settings] == ["unpinned"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("llama-3.1-70b-tp4", "llama-3.1-70b-tp8"),
        ("qwen3-8b", "qwen3-8b-tp2"),
        ("qwen3-30b-a3b-tp2", "qwen3-30b-a3b-ep2"),
        ("deepseek-v3", "deepseek-v3-dense8"),
    ],
)
def test_recipes_of_one_model_are_told_apart_briefly(before: str, after: str) -> None:
    plans = [
        parse_golden((ROOT / f"artifacts/{name}.plan").read_text(), name)
        for name in (before, after)
    ]
    lines, _ = reviewed(*plans)
    assert f"name {before} -> {after}" in lines[0]
