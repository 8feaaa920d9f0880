"""Annotations that the body contradicts, and weights that no strategy fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from compile_requests import tiny_model_config, tiny_request

from tscompile.ir.draft import Draft
from tscompile.ir.errors import AnnotationError, NoStrategyError
from tscompile.ir.mesh import ATTN_TP, DENSE_TP
from tscompile.ir.request import CompileRequest
from tscompile.models.annotations import Boundary, Partial, Replicate, Shard
from tscompile.models.llama import MLP, LlamaForCausalLM
from tscompile.passes.plan_buckets import plan_buckets
from tscompile.passes.propagate_placements import propagate_placements
from tscompile.trace import trace


def compiled(edit: Callable[[LlamaForCausalLM], None]) -> Draft:
    config = tiny_model_config("llama")
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    edit(model)
    return placed(model, tiny_request(config, 2))


def placed(model: LlamaForCausalLM, request: CompileRequest) -> Draft:
    graphs = {"all": trace(model, "all"), "selected": trace(model, "selected")}
    return propagate_placements(plan_buckets(graphs, request), request.policy, request.kv)


def mlp_of(model: LlamaForCausalLM, layer: int) -> MLP:
    mlp = model.model.layers[layer].mlp
    assert isinstance(mlp, MLP)
    return mlp


def test_an_unsharded_linear_annotated_partial() -> None:
    def unshard(model: LlamaForCausalLM) -> None:
        mlp = mlp_of(model, 1)
        for linear in (mlp.gate_proj, mlp.up_proj, mlp.down_proj):
            linear.placements = {"weight": Replicate(DENSE_TP)}

    with pytest.raises(AnnotationError) as refusal:
        compiled(unshard)
    message = refusal.value.message
    assert refusal.value.where == "model.layers.1.mlp"
    assert "output of module model.layers.1.mlp" in message
    assert "layers.1.down_proj" in message
    assert "annotated Partial" in message
    assert "computes Replicate" in message


def test_an_output_annotated_replicate_over_a_row_parallel_body() -> None:
    def claim(model: LlamaForCausalLM) -> None:
        mlp_of(model, 0).boundary = Boundary(Replicate(DENSE_TP), Replicate(DENSE_TP))

    with pytest.raises(AnnotationError) as refusal:
        compiled(claim)
    assert "annotated Replicate" in refusal.value.message
    assert "computes Partial" in refusal.value.message


def test_an_input_that_the_weights_want_otherwise() -> None:
    def claim(model: LlamaForCausalLM) -> None:
        mlp_of(model, 2).boundary = Boundary(Partial(DENSE_TP), Partial(DENSE_TP))

    with pytest.raises(AnnotationError) as refusal:
        compiled(claim)
    message = refusal.value.message
    assert "input of module model.layers.2.mlp" in message
    assert "layers.2.post_attention_layernorm" in message
    assert "annotated Partial" in message
    assert "needs it as Replicate" in message


def test_an_annotation_speaks_of_its_groups_axes_only() -> None:
    """One rank in the group: nothing is said, and nothing is wrong."""
    config = tiny_model_config("llama")
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    mlp_of(model, 0).boundary = Boundary(Replicate(DENSE_TP), Replicate(DENSE_TP))
    draft = placed(model, tiny_request(config, 1))
    assert all(node.op != "reshard" for p in draft.programs for node in p.nodes)


def test_weights_that_no_strategy_fits() -> None:
    def cut_norm(model: LlamaForCausalLM) -> None:
        cast("Any", model.model.norm).placements = {"weight": Shard(ATTN_TP, dim=0)}

    with pytest.raises(NoStrategyError) as refusal:
        compiled(cut_norm)
    assert "rms_norm in module model.norm" in refusal.value.message
    assert "model.norm.weight [96] as Shard(0)@a" in refusal.value.message
