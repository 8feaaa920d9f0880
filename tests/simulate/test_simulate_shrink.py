"""Shrunk plans keep every choice, are proven again, and equal the unsharded program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import TinyHf
from compile_requests import smollm2_request, tiny_model_config, tiny_request
from deployments import build, recipe
from proof.edits import ops_of, with_attributes
from proof.handmade import Spread, certificate_of, handmade_plan, tiny_config

from tscompile.cli import main
from tscompile.freeze.certificate import certify
from tscompile.ir.request import Buckets
from tscompile.passes.pipeline import compile_plan
from tscompile.simulate.shrink import shrink
from tscompile.simulate.simulate import Simulation, simulate
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import Plan

SIXTEEN = Spread({"a": 4, "b": 2, "c": 2}, ("a",), ("a", "b"), cut_rows=True)
"""Attention over 4 ranks in 4 replicas, the MLP over 8, in a world of 16."""


def choices(plan: Plan) -> list[object]:
    """Everything about a plan that is no size."""
    return [
        (op.op, op.pin, op.inputs, op.outputs, op.module, op.attributes.get("axes"))
        for program in plan.programs
        for op in program.ops
    ]


def largest(plan: Plan) -> int:
    return max(size for p in plan.programs for v in p.values for size in v.shape)


def test_sixteen_ranks_of_a_large_model() -> None:
    """A model of 7168 by 18432 with 64 heads on 16 ranks, checked in seconds."""
    config = tiny_config(
        vocab_size=129280,
        hidden_size=7168,
        intermediate_size=18432,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
    )
    certificate = certificate_of(config)
    plan = handmade_plan(certificate, config, SIXTEEN, [("decode", 64, 64), ("extend", 8192, 64)])
    small, computed = shrink(plan, certificate)
    assert choices(small) == choices(plan)
    assert largest(small) <= 64
    reports = simulate(small, computed)
    assert all(report.worst.error < 1e-12 for report in reports)


def test_padding_stays_padding() -> None:
    request = tiny_request(tiny_model_config("qwen3", vocab_size=302), 3)
    plan, certificate = compile_plan(request).plan, certify(request)
    small, computed = shrink(plan, certificate)
    padded = {w.parts[0].tensor: w for w in small.weights if w.parts and w.parts[0].padded}
    assert "lm_head.weight" in padded
    for weight in (padded["model.embed_tokens.weight"], padded["lm_head.weight"]):
        ranks = 3 if weight.axes else 1
        assert weight.parts[0].padded == weight.shape[0] * ranks > computed.vocab_size
    simulate(small, computed)


def test_window_and_arena_order_stay() -> None:
    request = tiny_request(tiny_model_config("mistral"), 2)
    plan, certificate = compile_plan(request).plan, certify(request)
    small, computed = shrink(plan, certificate)
    assert choices(small) == choices(plan)
    assert {cache.window for cache in computed.caches} == {6}
    assert small.programs[0].arena_bytes < plan.programs[0].arena_bytes
    simulate(small, computed)


def test_thirty_layers() -> None:
    request = replace(smollm2_request(3), buckets=Buckets((8,), ((512, 8),)))
    plan, certificate = compile_plan(request).plan, certify(request)
    small, computed = shrink(plan, certificate)
    assert largest(small) <= 64
    simulate(small, computed, rounds=1)


def test_a_plan_that_is_not_proven_does_not_shrink() -> None:
    config = tiny_config()
    certificate = certificate_of(config)
    plan = handmade_plan(certificate, config, SIXTEEN, [("extend", 16, 3)])
    (index, _), *_ = ops_of(plan, "mask")
    with pytest.raises(PlanUnproven):
        shrink(with_attributes(plan, index, coordinate=0), certificate)


def test_a_difference_is_found() -> None:
    """One rank's copy of one weight is off by a millionth: the comparison says where."""
    config = tiny_config()
    certificate = certificate_of(config)
    plan = handmade_plan(certificate, config, Spread({"a": 4}, ("a",), ("a",)), [("extend", 8, 3)])
    simulation = Simulation(plan, certificate)
    assert simulation.run(0).worst.error < 1e-12
    down = simulation.world.executors[2].values(0)["model.layers.1.mlp.down.weight"]
    down.mul_(1 + 1e-6)
    assert simulation.run(0).worst.error > 1e-9


def test_the_command(tmp_path: Path, tiny_hf: TinyHf, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = build(tmp_path, recipe(tiny_hf("llama"), world=2))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--shrink", "--rounds", "1", str(artifact)])
    assert ended.value.code in (0, None)
    assert "every value is within 1e-09" in capsys.readouterr().out
