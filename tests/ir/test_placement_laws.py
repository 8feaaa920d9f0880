from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tscompile.ir.mesh import ParallelSizes, build_mesh
from tscompile.ir.placement import (
    PARTIAL,
    REPLICATE,
    Partial,
    Placement,
    Shard,
    axes_with,
    label,
    local_shape,
    over,
    parse_label,
    sharded_dims,
    undivided_dim,
)

MESH = build_mesh(ParallelSizes(world=12, attn_tp=2, dense_tp=6))  # a=2, b=3, c=2

any_placement: st.SearchStrategy[Placement] = st.one_of(
    st.just(REPLICATE),
    st.builds(Shard, st.integers(0, 2)),
    st.builds(Partial, st.sampled_from(["sum", "max"])),
)
placements = st.tuples(any_placement, any_placement, any_placement)


@given(placements)
def test_labels_parse_back(value: tuple[Placement, Placement, Placement]) -> None:
    assert parse_label(MESH, label(MESH, value)) == value


@given(placements)
def test_tiles_of_all_ranks_make_up_the_whole(value: tuple[Placement, ...]) -> None:
    shape = (24, 36, 48)
    local = local_shape(MESH, shape, value)
    for dim in range(3):
        ranks = MESH.size(axes_with(MESH, value, Shard(dim)))
        assert local[dim] * ranks == shape[dim]
    assert sharded_dims(value) == tuple(sorted({p.dim for p in value if isinstance(p, Shard)}))


def test_labels_join_the_axes_of_one_placement() -> None:
    assert label(MESH, (Shard(1), PARTIAL, Shard(1))) == "Shard(1)@a+c Partial@b"
    assert label(MESH, (REPLICATE,) * 3) == ""


def test_a_dim_that_its_axes_together_do_not_divide() -> None:
    cut = over(MESH, ("a", "b"), Shard(1))
    assert undivided_dim(MESH, (5, 12), cut) is None
    assert undivided_dim(MESH, (5, 10), cut) == 1  # 2 and 5 divide it, 6 does not
    assert undivided_dim(MESH, (12,), cut) == 1  # there is no dim 1


@pytest.mark.parametrize("text", ["Shard(1)@z", "Whole@a", "Shard@a"])
def test_other_words_are_no_placements(text: str) -> None:
    with pytest.raises(ValueError, match=r"z|Whole|invalid literal"):
        parse_label(MESH, text)
