"""Calling an op: tracing, meta tensors, argument and shape errors."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.fx
from torch import Tensor, nn

from tskernels import ops
from tskernels.op import resolve_attributes
from tskernels.ops import OPS
from tskernels.schema import AttributeValue, DType, OpKind, TensorType
from tskernels.shapes import ShapeError


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 4, device="meta"))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        q, k = ops.split(ops.linear(x, self.weight), sizes=(4, 4))
        rows = ops.embedding(ids, weight=self.weight)
        return ops.add(ops.add(q, k), ops.mask(rows, coordinate=1))


def test_an_fx_proxy_records_one_canonical_node_a_call() -> None:
    traced = torch.fx.symbolic_trace(Toy())
    calls = [n for n in traced.graph.nodes if isinstance(n.target, ops.Op)]
    assert [n.target for n in calls] == [
        ops.linear,
        ops.split,
        ops.embedding,
        ops.add,
        ops.mask,
        ops.add,
    ]
    linear, split, embedding = calls[:3]
    assert len(linear.args) == 3
    assert linear.args[2] is None
    assert split.kwargs == {"sizes": (4, 4)}
    assert len(embedding.args) == 2
    assert embedding.kwargs == {"vocab_start": 0}


def test_a_traced_module_still_runs() -> None:
    module = Toy().to_empty(device="cpu")
    nn.init.normal_(module.weight)
    x, ids = torch.randn(3, 4), torch.tensor([1, 0, 7], dtype=torch.int32)
    assert torch.equal(torch.fx.symbolic_trace(module)(x, ids), module(x, ids))


def test_meta_tensors_give_meta_results_and_mutated_inputs_come_back() -> None:
    with torch.device("meta"):
        y = ops.linear(torch.empty(3, 4), torch.empty(7, 4))
        cache = torch.empty(5, 2, 1, 4, 8)
        slots = torch.empty(3, dtype=torch.int32)
        written = ops.kv_write(torch.empty(3, 1, 8), torch.empty(3, 1, 8), cache, slots)
        parts = ops.split(torch.empty(3, 10), sizes=(4, 6))
    assert y.is_meta
    assert y.shape == (3, 7)
    assert written is cache
    assert [part.shape for part in parts] == [(3, 4), (3, 6)]


def test_views_alias_their_input() -> None:
    x = torch.arange(30.0).view(3, 10)
    left, right = ops.split(x, sizes=(4, 6))
    heads = ops.unflatten(right, size=2)
    assert heads.stride() == (10, 2, 1)
    assert torch.equal(heads[1, 2], x[1, 8:10])
    left.zero_()
    assert x[:, :4].abs().sum() == 0
    joined = ops.flatten(x.view(3, 5, 2))
    assert joined.data_ptr() == x.data_ptr()
    assert ops.narrow(x, dim=0, start=1, size=2).data_ptr() == x[1:].data_ptr()


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_op_is_copied_and_pickled_by_name(name: str) -> None:
    op = OPS[name]
    assert copy.deepcopy(op) is op
    assert pickle.loads(pickle.dumps(op)) is op
    assert getattr(ops, name) is op
    assert op.__name__ == op.schema.name == name


def test_every_schema_says_what_it_is() -> None:
    for name, op in OPS.items():
        assert op.schema.reference.__doc__, name
        assert op.schema.inputs, name
        if op.schema.kind is OpKind.COLLECTIVE:
            assert {"axes", "size"} <= {a.name for a in op.schema.attributes}


ONE, ROW = torch.ones(1, 1), torch.ones(1)


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "message"),
    [
        ("linear", (ONE,), {}, "needs its input 'weight'"),
        ("linear", (ONE, ONE, None, 3), {}, "takes 3 inputs, 4"),
        ("linear", (ONE, ONE), {"x": 3}, "got x twice"),
        ("rms_norm", (ONE, ROW), {}, "needs its attribute 'eps'"),
        ("mask", (ROW,), {"coordinate": 0, "cordinate": 1}, "no attribute cordinate"),
        ("mask", (ROW,), {"coordinate": 0.5}, "wants coordinate as int, not float"),
        ("mask", (ROW,), {"coordinate": True}, "wants coordinate as int, not bool"),
    ],
)
def test_wrong_arguments_are_type_errors(
    op: str, args: tuple[object, ...], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        OPS[op](*args, **kwargs)


def test_attributes_take_an_int_for_a_float_and_a_list_for_a_tuple() -> None:
    norm = resolve_attributes(ops.rms_norm.schema, {"eps": 1})
    assert type(norm["eps"]) is float
    assert resolve_attributes(ops.split.schema, {"sizes": [1, 2]}) == {"sizes": (1, 2)}


F32 = DType.FLOAT32


def t(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        ("linear", (t(3, 4), t(8, 5), None), {}, r"x.shape\[1\] is 4, but weight.shape\[1\] is 5"),
        ("linear", (t(3, 4), t(8, 4), t(7)), {}, r"weight.shape\[0\] is 8, but len\(bias\) is 7"),
        ("linear", (t(3), t(8, 4), None), {}, r"linear.x has 1 dims \[3\], but takes 2"),
        ("linear", (None, t(8, 4), None), {}, "linear.x is missing"),
        ("add", (t(3), t(3, dtype=DType.BFLOAT16)), {}, "a is float32, but b is bfloat16"),
        ("embedding", (t(3), t(8, 4)), {}, "embedding.ids has dtype float32, but must be int32"),
        ("split", (t(3, 10),), {"sizes": (4, 5)}, "sum of sizes is 9, but x.shape.* is 10"),
        ("unflatten", (t(3, 10),), {"size": 4}, "10 columns do not divide by 4"),
        ("narrow", (t(3, 10),), {"dim": 1, "start": 8, "size": 3}, "8 to 11 lie outside dim 1"),
        ("slice", (t(3, 10),), {"dim": 2, "start": 0, "size": 1}, "dim is 2, but .* 2 dims"),
        ("all_gather", (t(3, 10),), {"size": 0, "dim": 0}, "size is 0"),
        ("reduce_scatter", (t(9, 4),), {"size": 2, "dim": 0}, "size 9 does not divide by 2"),
        ("all_reduce", (t(9, 4),), {"size": 2, "reduce": "mean"}, "reduce is 'mean'"),
        ("rotary", (t(3, 2, 8), t(3, 10)), {}, "table has 10 columns, but a head .* 8"),
    ],
)
def test_shapes_that_do_not_fit_are_named_with_both_values(
    op: str,
    inputs: tuple[TensorType | None, ...],
    attributes: dict[str, AttributeValue],
    says: str,
) -> None:
    with pytest.raises(ShapeError, match=says):
        OPS[op].schema.infer(inputs, attributes)


def test_attention_shapes_are_checked() -> None:
    index = DType.INT32
    lengths, starts = t(2, dtype=index), t(3, dtype=index)
    table, query = t(2, 4, dtype=index), t(5, 6, 16)
    options: dict[str, AttributeValue] = {"scale": 1.0, "window": 0}
    infer = ops.attention.schema.infer
    assert infer((query, t(9, 2, 3, 4, 16), table, lengths, starts, None), options) == (query,)
    with pytest.raises(ShapeError, match="6 query heads are no multiple of 4 key heads"):
        infer((query, t(9, 2, 4, 4, 16), table, lengths, starts, None), options)
    with pytest.raises(ShapeError, match=r"query is 16, but cache is 8"):
        infer((query, t(9, 2, 3, 4, 8), table, lengths, starts, None), options)
    with pytest.raises(ShapeError, match=r"len\(seq_lens\) \+ 1 is 3, but given is 2"):
        infer((query, t(9, 2, 3, 4, 16), table, lengths, lengths, None), options)


def test_a_collective_refuses_to_run_without_its_ranks() -> None:
    x = torch.randn(2, 3)
    assert torch.equal(ops.all_reduce(x, axes=(), size=1), x)
    with pytest.raises(RuntimeError, match="needs 4 ranks"):
        ops.all_gather(x, axes=("a", "b"), size=4, dim=0)
