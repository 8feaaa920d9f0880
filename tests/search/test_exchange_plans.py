"""Experts by all-to-all in plans: chosen where it is cheap, proven, simulated, mutants refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compile_requests import tiny_model_config, tiny_request
from proof.edits import ops_of, with_attributes, with_input

from tscompile.cost.model import FREE, CostModel, Price
from tscompile.cost.topology import find_topology
from tscompile.freeze.certificate import certify
from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.request import Buckets, CompileRequest
from tscompile.passes.pipeline import compile_plan
from tscompile.rules import OpTypes
from tscompile.search import reading
from tscompile.search.exchange import IMPOSSIBLE, exchange_price
from tscompile.simulate.simulate import simulate
from tskernels.schema import DType, TensorType
from tsruntime.artifact.proof.certificate import Certificate
from tsruntime.artifact.proof.checker import check_proof
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import Plan, RankIndex


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanges cost nothing where they can be described."""

    def price(*arguments: object) -> Price:
        found = exchange_price(*arguments)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return found if found == IMPOSSIBLE else FREE

    monkeypatch.setattr(reading, "exchange_price", price)


def request(sizes: ParallelSizes) -> CompileRequest:
    config = tiny_model_config(
        "qwen3_moe", num_key_value_heads=12, num_hidden_layers=1, mlp_only_layers=[]
    )
    return tiny_request(config, sizes, buckets=Buckets((4,), ((32, 4),)))


def compiled(sizes: ParallelSizes) -> tuple[Plan, Certificate]:
    asked = request(sizes)
    return compile_plan(asked).plan, certify(asked)


SPLITS = {
    "over replicas": ParallelSizes(4, 1, 4, 1, 4),
    "over replicas and their ranks": ParallelSizes(4, 2, 2, 1, 4),
    "beside width": ParallelSizes(4, 1, 4, 2, 2),
}


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize("split", SPLITS)
def test_an_exchange_computes_the_same(split: str) -> None:
    plan, certificate = compiled(SPLITS[split])
    for program in plan.programs:
        names = [op.op for op in program.ops]
        assert (names.count("dispatch"), names.count("combine")) == (1, 1)
        assert names.count("all_to_all") >= 4
    check_proof(plan, certificate)
    simulate(plan, certificate, rounds=1)


def refused(plan: Plan, certificate: Certificate) -> str:
    with pytest.raises(PlanUnproven) as refusal:
        check_proof(plan, certificate)
    return refusal.value.message


@pytest.mark.usefixtures("free")
def test_what_is_sent_and_added_wrongly_is_refused() -> None:
    whole, certificate = compiled(SPLITS["over replicas"])
    plan = replace(whole, programs=whole.programs[:1])
    check_proof(plan, certificate)
    ((send, dispatch),) = ops_of(plan, "dispatch")
    ((run, experts),) = ops_of(plan, "experts")
    ((add, combine),) = ops_of(plan, "combine")
    sent = with_attributes(plan, send, first=3)
    assert "what the experts [3,6) want, but its own are [0,3)" in refused(sent, certificate)
    fewer = with_attributes(plan, send, held=2)
    assert "but its own are [0,3)" in refused(fewer, certificate)
    others = with_attributes(plan, run, expert_start=RankIndex(("a",), 2))
    assert "but expert_start is" in refused(others, certificate)
    added = with_attributes(plan, add, held=2)
    assert "a block is of the experts [0,2)" in refused(added, certificate)
    unsent = with_input(plan, run, 1, dispatch.outputs[1])
    refused(unsent, certificate)
    early = with_input(plan, add, 0, experts.outputs[0])
    refused(early, certificate)
    assert combine.inputs[1] == dispatch.inputs[1]


TYPES = OpTypes(
    (
        TensorType(DType.BFLOAT16, (64, 4096)),
        TensorType(DType.INT32, (64, 2)),
        TensorType(DType.BFLOAT16, (64, 2)),
    ),
    (),
    {},
)


def test_valid_rows_alone_are_cheaper_to_send() -> None:
    mesh = build_mesh(ParallelSizes(8, 1, 8, 1, 8))
    axes = tuple(axis.name for axis in mesh.axes)
    plain = replace(find_topology("h200-nvlink-8"), valid_rows_only=False)
    sparing = replace(plain, valid_rows_only=True)
    both = [
        exchange_price(CostModel(t, mesh.axes), mesh, axes, axes, TYPES) for t in (plain, sparing)
    ]
    assert both[0].wire_bytes > 3 * both[1].wire_bytes
    assert both[0].launches == both[1].launches == 6


def test_experts_in_the_middle_of_others_are_not_exchanged() -> None:
    mesh = build_mesh(ParallelSizes(8, 2, 4, 1, 8))
    costs = CostModel(find_topology("h200-nvlink-8"), mesh.axes)
    assert [axis.name for axis in mesh.axes] == ["a", "b", "c"]
    assert exchange_price(costs, mesh, ("a", "b", "c"), ("b",), TYPES) == IMPOSSIBLE
    assert exchange_price(costs, mesh, ("a", "b", "c"), ("b", "c"), TYPES) != IMPOSSIBLE
