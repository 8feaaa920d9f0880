"""The exact search over drafts of real models: what it chooses, and what it leaves out."""

from __future__ import annotations

from compile_requests import tiny_model_config, tiny_request

from tscompile.passes.pipeline import compile_plan


def test_the_last_reduction_of_a_prefill_carries_one_row_a_sequence() -> None:
    text = compile_plan(tiny_request(tiny_model_config("llama"), 2)).text
    extend = text[text.index("program extend_32x4 ") :]
    tail = extend[extend.index("select_rows:") : extend.index("lm_head")]
    assert "Partial@a" in tail.splitlines()[0]
    assert "all_reduce" in tail


def test_the_rotary_table_is_made_once_on_every_rank() -> None:
    plan = compile_plan(tiny_request(tiny_model_config("llama"), 2)).plan
    for program in plan.programs:
        tables = [op for op in program.ops if op.op == "rotary_table"]
        assert len(tables) == 1
        assert program.ops.index(tables[0]) == 0
