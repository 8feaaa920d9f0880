from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from compile_requests import tiny_model_config
from torch import Tensor, nn

from tscompile.ir.errors import AnnotationError, TraceError
from tscompile.ir.graph import Graph
from tscompile.ir.mesh import ATTN_TP, DENSE_TP
from tscompile.models import build
from tscompile.models.annotations import CacheLayer, ForwardInputs, Shard
from tscompile.models.config import ModelConfig
from tscompile.models.layers import Linear
from tscompile.models.llama import LlamaForCausalLM
from tscompile.trace import trace
from tskernels import ops


def traced(model: LlamaForCausalLM | None = None, rows: str = "selected") -> Graph:
    if model is None:
        with torch.device("meta"):
            built = build(tiny_model_config("llama"))
        return trace(built, "all" if rows == "all" else "selected")
    return trace(model, "selected")


def meta_llama() -> LlamaForCausalLM:
    with torch.device("meta"):
        return LlamaForCausalLM(tiny_model_config("llama"))


def test_ops_are_leaves_in_the_order_of_the_model() -> None:
    ops = [node.op for node in traced().nodes]
    layer = [
        *("rms_norm", "linear", "linear", "linear", "unflatten", "unflatten", "unflatten"),
        *("rotary", "rotary", "kv_write", "attention", "flatten", "linear", "add"),
        *("rms_norm", "linear", "linear", "silu_mul", "linear", "add"),
    ]
    assert ops == ["embedding", "rotary_table", *layer * 3, "select_rows", "rms_norm", "linear"]


def test_nodes_name_their_module_and_are_named_after_it() -> None:
    by_name = {node.outputs[0]: node for node in traced().nodes}
    assert by_name["layers.2.q_proj"].module == "model.layers.2.self_attn.q_proj"
    assert by_name["layers.2.q_proj"].inputs == (
        "layers.2.input_layernorm",
        "model.layers.2.self_attn.q_proj.weight",
        None,
    )
    assert by_name["layers.2.add_1"].module == "model.layers.2"
    assert by_name["layers.1.kv_write"].inputs[2] == "layers.1.cache"


def test_only_the_selecting_graph_reads_logit_rows() -> None:
    assert "logit_rows" in traced().inputs
    everything = traced(rows="all")
    assert "logit_rows" not in everything.inputs
    assert Counter(node.op for node in everything.nodes)["select_rows"] == 0


def test_a_tied_weight_is_one_parameter() -> None:
    graph = traced()
    names = [p.name for p in graph.parameters]
    assert len(names) == len(set(names))
    assert "lm_head.weight" not in names
    assert graph.nodes[-1].inputs[1] == "model.embed_tokens.weight"


def test_constants_are_real_though_the_model_is_on_meta() -> None:
    (constant,) = traced().constants
    assert constant.name == "model.rotary_emb.inv_freq"
    assert constant.values[0] == 1.0
    assert len(constant.values) == 4


def test_boundaries_are_recorded_with_the_values_that_cross() -> None:
    edges = {edge.module: edge for edge in traced().edges}
    assert len(edges) == 6
    mlp = edges["model.layers.1.mlp"]
    assert (mlp.input, mlp.output) == ("layers.1.post_attention_layernorm", "layers.1.down_proj")


def test_tied_weights_must_be_annotated_alike() -> None:
    model = meta_llama()
    model.lm_head.placements = {"weight": Shard(DENSE_TP, dim=0, padded=True)}
    with pytest.raises(AnnotationError) as refusal:
        traced(model)
    assert "lm_head" in refusal.value.message
    assert "model.embed_tokens.weight" in refusal.value.message
    assert "DENSE_TP" in refusal.value.message
    assert "ATTN_TP" in refusal.value.message


class Foreign(nn.Module):
    """A model that computes with torch itself."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.cache_layers: tuple[CacheLayer, ...] = ()
        self.head = Linear(8, 8, bias=False, placement=Shard(ATTN_TP, dim=0))

    def forward(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        return self.head(torch.relu(inputs.token_ids))


def test_what_is_no_operator_is_refused_by_name() -> None:
    with pytest.raises(TraceError, match="relu"):
        trace(Foreign(tiny_model_config("llama")), "all")


class Routed(nn.Module):
    """A model whose last op has two outputs, the second of which the head reads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.cache_layers: tuple[CacheLayer, ...] = ()
        self.head = Linear(8, 8, bias=False, placement=Shard(ATTN_TP, dim=0))

    def forward(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        logits = self.head(inputs.token_ids)
        weights, ids = ops.route(logits, inputs.positions, top_k=2)
        return ops.experts(logits, ids, weights, logits, logits, logits)


def test_each_output_of_an_op_is_a_value_of_its_own() -> None:
    graph = trace(Routed(tiny_model_config("llama")), "all")
    _, route, experts = graph.nodes
    assert route.outputs == ("route.weights", "route.ids")
    assert route.inputs == ("head", "positions", None)
    assert experts.inputs[:3] == ("head", "route.ids", "route.weights")


class Indexed(Routed):
    """A model that takes a row of a tensor, which no op does."""

    def forward(self, inputs: ForwardInputs, caches: Sequence[Tensor]) -> Tensor:
        return self.head(inputs.token_ids)[0]


def test_taking_a_part_of_a_tensor_is_refused() -> None:
    with pytest.raises(TraceError, match="getitem"):
        trace(Indexed(tiny_model_config("llama")), "all")
