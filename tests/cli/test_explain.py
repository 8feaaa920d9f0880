"""`tscompile explain`: prices that add up, and runners-up that a forced search confirms."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoints import Family
from click.testing import CliRunner
from compile_requests import tiny_model_config, tiny_request

from tscompile.cli.explain import explain
from tscompile.cost.model import FREE, CostModel
from tscompile.cost.topology import find_topology
from tscompile.explain.runners_up import choices
from tscompile.explain.text import explained
from tscompile.ir.draft import Draft
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.repeats import Repeat, Repeats, numbers_of
from tscompile.ir.request import Buckets, PolicyName
from tscompile.passes.pipeline import bucketed, where_alike
from tscompile.search.segment import Tables
from tscompile.search.solution import Run

RECIPE = Path(__file__).parents[2] / "recipes" / "llama-tiny-dummy.yaml"


def test_every_runner_up_costs_no_less_and_each_layer_is_covered_once() -> None:
    config = tiny_model_config("llama", num_attention_heads=12, num_key_value_heads=12)
    request = tiny_request(config, ParallelSizes(4, 2, 4), buckets=Buckets((4,), ((32, 4),)))
    draft = bucketed(request)
    costs = CostModel(find_topology("h200-nvlink-8"), draft.mesh.axes)
    best, found = choices(draft, draft.programs[0], Tables(costs), PolicyName.OURS)
    assert any(choice.runner_up is not None for choice in found)
    for choice in found:
        assert choice.runner_up is None or choice.runner_up >= best.solution.price
        if choice.instead is not None:
            assert choice.instead != choice.run.option
    runs = [a for a in best.solution.actions if isinstance(a, Run) and a.option.kind != "output"]
    distinct = {(choice.run.position, choice.run.span) for choice in found}
    assert len(distinct) == len(found) < len(runs)
    total = FREE
    for action in best.solution.actions:
        total += action.price if isinstance(action, Run) else action.move.price
    assert total == best.solution.price


@pytest.mark.parametrize(
    ("family", "sizes", "tries"),
    [
        ("llama", ParallelSizes(4, 2, 4), 1),
        ("gpt_oss", ParallelSizes(2, 1, 2, 1, 2), 1),
        ("deepseek", ParallelSizes(2, 1, 2, 1, 2), 2),
    ],
)
def test_a_folded_draft_is_explained_as_the_whole(
    family: Family, sizes: ParallelSizes, tries: int
) -> None:
    """Where a runner-up does not do all layers alike, less is folded."""
    changes = {"num_attention_heads": 12, "num_key_value_heads": 12} if family == "llama" else {}
    config = tiny_model_config(family, num_hidden_layers=15, **changes)
    request = tiny_request(config, sizes, buckets=Buckets((4,), ((32, 4),)))

    repeats: list[Repeats] = []

    def lines(draft: Draft) -> list[str]:
        repeats.append(draft.repeats)
        costs = CostModel(find_topology("h200-nvlink-8"), draft.mesh.axes)
        program = draft.programs[0]
        best, found = choices(draft, program, Tables(costs), PolicyName.OURS)
        return [*explained(draft.mesh, program.name, best, found)]

    assert where_alike(request, lines) == lines(bucketed(request))
    *folded, whole = repeats
    assert all(folded)
    assert (len(folded), whole) == (tries, ())


def test_numbers_of_the_layers_that_one_stands_for() -> None:
    repeats = (Repeat(2, 1, 3), Repeat(5, 2, 2))
    found = [numbers_of(repeats, layer) for layer in range(8)]
    assert found == [[0], [1], [2, 3, 4], [5], [6], [7, 9], [8, 10], [11]]


def test_the_command_prints_prices_by_layer() -> None:
    result = CliRunner().invoke(explain, [str(RECIPE)])
    assert result.exit_code == 0, result.output
    assert "us predicted" in result.output.splitlines()[0]
    assert "layers 0.." in result.output


def test_an_unknown_program_names_those_that_there_are() -> None:
    result = CliRunner().invoke(explain, [str(RECIPE), "--program", "decode_77"])
    assert result.exit_code == 2
    assert "decode_77" in result.output
    assert "decode_1" in result.output
