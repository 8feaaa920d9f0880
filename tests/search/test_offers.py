"""Which fusions the search is offered: what a kernel of the target runs, and what fits its op."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compile_requests import tiny_model_config, tiny_request

from tscompile.cost.model import CostModel
from tscompile.cost.topology import Link, Topology
from tscompile.freeze.certificate import certify
from tscompile.ir.draft import Draft, DraftProgram, DraftValue
from tscompile.ir.graph import Node
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets
from tscompile.ir.verifier import Stage
from tscompile.passes import propagate_placements as placing
from tscompile.passes.pipeline import compile_plan, compile_until
from tscompile.search.offers import Offers
from tscompile.search.reading import Reading
from tscompile.search.segment import Compiler, Tables
from tscompile.search.solution import Run, solve
from tscompile.search.streams import with_identities
from tscompile.simulate.simulate import simulate
from tskernels.kernel import KernelSpec, Trait
from tskernels.registry import REGISTRY, Registry
from tskernels.schema import DType
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.schema import Target

CPU = Target("cpu", "x86_64", "cpu-gloo")
SOCKETS = Topology("sockets", (Link(64, 1_000_000, 1000, 100_000),), 10_000_000, 1_000_000, 1_000)
"""Each exchange costs a microsecond, and there is no other way than over sockets."""


@pytest.fixture(scope="module")
def draft() -> Draft:
    """One layer kind of a tiny Qwen3 on two ranks: decode of 4 rows, extend of 32."""
    config = tiny_model_config("qwen3", num_hidden_layers=2)
    request = tiny_request(config, 2, buckets=Buckets((4,), ((32, 4),)))
    return compile_until(request, Stage.PLAN_BUCKETS)


def chosen(
    draft: Draft, program: DraftProgram, target: Target = CPU, registry: Registry = REGISTRY
) -> list[str]:
    """The kinds of the strategies of several ops that the search takes."""
    constants = {w.name for w in draft.weights.values() if w.constant is not None}
    reading = Reading(draft.mesh, with_identities(program), constants)
    costs = CostModel(SOCKETS, draft.mesh.axes)
    offers = Offers(reading, target, registry)
    compiler = Compiler(Tables(costs), reading.rule, offers=offers)
    actions = solve(compiler.compile_(reading.program())).actions
    return [a.option.kind for a in actions if isinstance(a, Run) and a.span > 1]


def all_specs() -> list[KernelSpec]:
    return [REGISTRY.resolve(name) for name in REGISTRY.names()]


def test_what_kernels_run_is_fused(draft: Draft) -> None:
    for program in draft.programs:
        kinds = chosen(draft, program)
        assert "linear+linear+linear" in kinds
        assert "linear+linear+silu_mul" in kinds
        assert "rms_norm+rms_norm+rotary+rotary+kv_write" in kinds
        assert any(kind.endswith("+add+rms_norm") for kind in kinds)
        assert any(kind.endswith("+identity+rms_norm") for kind in kinds)


def test_nothing_is_fused_on_a_device_without_kernels(draft: Draft) -> None:
    kinds = chosen(draft, draft.programs[0], Target("cuda", "sm_90", "h200-nvlink-8"))
    assert set(kinds) <= {"linear+linear", "linear+linear+linear"}


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("linear_silu_mul", "linear+linear+silu_mul"),
        ("qk_norm_rope_kv_write", "rms_norm+rms_norm+rotary+rotary+kv_write"),
        ("all_reduce_add_rms_norm", "all_reduce+add+rms_norm"),
    ],
)
def test_an_op_without_a_kernel_but_its_reference_is_not_offered(
    draft: Draft, op: str, kind: str
) -> None:
    left = [s for s in all_specs() if s.op != op or s.solution == "reference"]
    program = draft.programs[0]
    assert kind in chosen(draft, program)
    assert kind not in chosen(draft, program, registry=Registry(left))


def test_a_table_of_sizes_switches_a_fusion_off_beyond_one(draft: Draft) -> None:
    """A kernel that was measured slower than its parts beyond 8 rows says so by a trait."""

    def small(spec: KernelSpec) -> KernelSpec:
        if spec.op != "linear_silu_mul":
            return spec
        few = Trait("takes at most 8 rows", lambda query: (query.shapes[0] or (0,))[0] <= 8)
        return replace(spec, traits=(*spec.traits, few))

    registry = Registry([small(s) for s in all_specs() if s.name != "linear_silu_mul.reference"])
    decode, extend = draft.programs[:2]
    assert (decode.tokens, extend.tokens) == (4, 32)
    assert "linear+linear+silu_mul" in chosen(draft, decode, registry=registry)
    assert "linear+linear+silu_mul" not in chosen(draft, extend, registry=registry)
    assert "linear+linear" in chosen(draft, extend, registry=registry)


def test_a_gain_of_another_dtype_is_not_offered(draft: Draft) -> None:
    program = draft.programs[0]
    name = "model.layers.0.post_attention_layernorm.weight"
    gain = program.values[name]
    other = replace(gain, type=replace(gain.type, dtype=DType.FLOAT32))
    changed = replace(program, values={**program.values, name: other})
    before, after = (chosen(draft, p) for p in (program, changed))
    fused = [kind for kind in before if kind.endswith("rms_norm")]
    assert len([kind for kind in after if kind.endswith("rms_norm")]) == len(fused) - 1


def test_another_use_of_the_intermediate_is_not_offered(draft: Draft) -> None:
    """The first layer's gate is added to what it gates: it must be written."""
    program = draft.programs[0]
    act = next(n for n in program.nodes if n.op == "silu_mul")
    gate, both = act.inputs[0], "layers.0.both"
    again = Node("add", (act.outputs[0], gate), (both,), {}, act.module)
    nodes: list[Node] = []
    for node in program.nodes:
        inputs = tuple(both if name == act.outputs[0] else name for name in node.inputs)
        nodes.append(node if node is act else replace(node, inputs=inputs))
        if node is act:
            nodes.append(again)
    type_ = program.values[act.outputs[0]].type
    values = {**program.values, both: DraftValue(both, type_)}
    kinds = chosen(draft, replace(program, nodes=tuple(nodes), values=values))
    assert kinds.count("linear+linear+silu_mul") == 1
    assert chosen(draft, program).count("linear+linear+silu_mul") == 2


def test_norms_of_different_eps_are_not_offered_together(draft: Draft) -> None:
    program = draft.programs[0]
    norm = next(n for n in program.nodes if n.module == "model.layers.0.self_attn.k_norm")
    nodes = tuple(
        replace(n, attributes={**n.attributes, "eps": 1e-3}) if n is norm else n
        for n in program.nodes
    )
    kinds = chosen(draft, replace(program, nodes=nodes))
    assert kinds.count("rms_norm+rms_norm+rotary+rotary+kv_write") == 1
    assert kinds.count("rotary+rotary+kv_write") == 1


SLOW_LINK = Topology("slow", (Link(64, 0, 0, 1),), 10_000_000, 1_000_000, 1)
"""Only bytes on the wire count: rows are scattered for the norm, and gathered for what follows."""


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (ParallelSizes(2, 2, 2), {"reduce_scatter_add_rms_norm_all_gather"}),
        (ParallelSizes(4, 2, 4), {"reduce_scatter_add_rms_norm"}),
    ],
)
def test_scattered_norms_are_proven_and_simulated(
    monkeypatch: pytest.MonkeyPatch, sizes: ParallelSizes, expected: set[str]
) -> None:
    def slow(name: str) -> Topology:
        return SLOW_LINK

    monkeypatch.setattr(placing, "find_topology", slow)
    config = tiny_model_config("llama", num_hidden_layers=2)
    request = tiny_request(config, sizes, buckets=Buckets((4,), ((32, 4),)))
    plan, certificate = compile_plan(request).plan, certify(request)
    assert expected <= {op.op for program in plan.programs for op in program.ops}
    check_proof(plan, certificate)
    simulate(plan, certificate, rounds=1)
