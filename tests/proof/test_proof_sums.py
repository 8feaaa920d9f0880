"""Sums over several axes: finished in any order, once each; ranks that cross are stuck."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from proof.edits import bypassed, collectives, with_ops
from proof.mini import Finish, independent_sums, mini_certificate, sum_of_sums
from proof.trial import Outcome, Trial

from tscompile.simulate.simulate import simulate
from tsruntime.artifact.proof.checker import check_proof, check_ranks
from tsruntime.artifact.proof.errors import PlanUnproven
from tsruntime.artifact.schema import Plan

CERTIFICATE = mini_certificate()

FINISHED: dict[str, Finish] = {
    "both at once": lambda w, x: w.all_reduce(x, ("a", "b")),
    "both at once, b innermost": lambda w, x: w.all_reduce(x, ("b", "a")),
    "a, then b": lambda w, x: w.all_reduce(w.all_reduce(x, ("a",)), ("b",)),
    "b, then a": lambda w, x: w.all_reduce(w.all_reduce(x, ("b",)), ("a",)),
    "scattered and gathered": lambda w, x: w.all_gather(
        w.reduce_scatter(x, ("b", "a")), ("b", "a")
    ),
    "scattered over a, summed over b": lambda w, x: w.all_gather(
        w.all_reduce(w.reduce_scatter(x, ("a",), 1), ("b",)), ("a",), 1
    ),
    "turned on the way": lambda w, x: w.all_gather(
        w.op(
            "all_to_all",
            w.all_reduce(w.reduce_scatter(x, ("a",), 1), ("b",)),
            axes=("a",),
            size=2,
            split_dim=0,
            concat_dim=1,
        ),
        ("a",),
    ),
}

UNFINISHED: dict[str, Finish] = {
    "never": lambda w, x: x,
    "over a only": lambda w, x: w.all_reduce(x, ("a",)),
    "over b only": lambda w, x: w.all_reduce(x, ("b",)),
    "over a twice": lambda w, x: w.all_reduce(w.all_reduce(x, ("a",)), ("a", "b")),
    "gathered in another order": lambda w, x: w.all_gather(
        w.reduce_scatter(x, ("b", "a")), ("a", "b")
    ),
    "turned the wrong way": lambda w, x: w.op(
        "all_to_all",
        w.op("all_reduce", x, axes=("a", "b"), size=4),
        axes=("a",),
        size=2,
        split_dim=0,
        concat_dim=0,
    ),
}


@pytest.mark.parametrize("finish", FINISHED.values(), ids=FINISHED.keys())
def test_finished_sums(finish: Finish) -> None:
    plan = sum_of_sums(finish)
    check_proof(plan, CERTIFICATE)
    (report,) = simulate(plan, CERTIFICATE)
    assert report.worst.error < 1e-12


@pytest.mark.parametrize("finish", UNFINISHED.values(), ids=UNFINISHED.keys())
def test_unfinished_sums(finish: Finish) -> None:
    good, bad = sum_of_sums(FINISHED["both at once"]), sum_of_sums(finish)
    assert Trial(good, CERTIFICATE).outcome([bad] * 4) is Outcome.CHANGED
    with pytest.raises(PlanUnproven):
        check_proof(bad, CERTIFICATE)


def crossed(plan: Plan) -> Plan:
    """The two neighbouring collectives change places."""
    (first, _), (second, _) = collectives(plan)
    assert second == first + 1
    ops = list(plan.programs[0].ops)
    ops[first], ops[second] = ops[second], ops[first]
    return with_ops(plan, ops)


def test_crossed_groups_are_stuck() -> None:
    plan = independent_sums()
    check_proof(plan, CERTIFICATE)
    plans = [plan, crossed(plan), crossed(plan), plan]
    assert Trial(plan, CERTIFICATE).outcome(plans) is Outcome.FAILED
    with pytest.raises(PlanUnproven) as refused:
        check_ranks(plans, CERTIFICATE)
    waits = re.findall(r"rank (\d) waits|which waits", refused.value.message)
    assert "stuck" in refused.value.message
    assert len(waits) == 5  # four ranks in a ring, and back to the first


def test_crossing_that_still_meets_is_accepted() -> None:
    """Where a whole group crosses, each collective still finds its ranks."""
    plan = independent_sums()
    plans = [plan, crossed(plan), plan, crossed(plan)]
    assert Trial(plan, CERTIFICATE).outcome(plans) is Outcome.SAME
    check_ranks(plans, CERTIFICATE)


def test_a_rank_that_leaves_early_is_named() -> None:
    plan = independent_sums()
    (index, _), *_ = collectives(plan)
    plans = [plan, bypassed(plan, index), plan, plan]
    assert Trial(plan, CERTIFICATE).outcome(plans) is Outcome.FAILED
    waits = r"rank 0 waits in all_reduce over a \(op \d+\) for rank 1, which has finished"
    with pytest.raises(PlanUnproven, match=waits):
        check_ranks(plans, CERTIFICATE)


def test_other_collective_in_the_group_is_named() -> None:
    plan = independent_sums()
    (index, op), *_ = collectives(plan)
    ops = list(plan.programs[0].ops)
    ops[index] = replace(op, attributes={**op.attributes, "reduce": "max"})
    with pytest.raises(
        PlanUnproven, match=r"rank 1 calls all_reduce\(.*reduce=max.* rank 0 .*reduce=sum"
    ):
        check_ranks([plan, with_ops(plan, ops), plan, plan], CERTIFICATE)
