"""The forward for all rows, derived from the one for selected rows, is what tracing gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from checkpoints import FAMILIES, Family
from compile_requests import tiny_model_config

from tscompile.ir.errors import TraceError
from tscompile.models import build
from tscompile.trace import trace, without_selection


@pytest.mark.parametrize("family", FAMILIES)
def test_without_the_selection_it_is_the_trace_of_all_rows(family: Family) -> None:
    with torch.device("meta"):
        model = build(tiny_model_config(family))
    selected = trace(model, "selected")
    assert any(node.op == "select_rows" for node in selected.nodes)
    assert without_selection(selected) == trace(model, "all")


def test_another_reader_of_the_rows_is_refused() -> None:
    with torch.device("meta"):
        selected = trace(build(tiny_model_config("llama")), "selected")
    first = selected.nodes[0]
    odd = replace(first, inputs=("logit_rows", *first.inputs[1:]))
    with pytest.raises(TraceError, match=r"embedding in module model\.embed_tokens reads"):
        without_selection(replace(selected, nodes=(odd, *selected.nodes[1:])))
