"""The printed forms: exact ones read back, the short one is short."""

from __future__ import annotations

import pytest
from checkpoints import FAMILIES, Family
from hypothesis import given
from hypothesis import strategies as st
from planned import deployment, planned_once

from tscompile.communication.errors import PlanFileError
from tscompile.communication.groups import numbers_of, program_names, ranges
from tscompile.communication.numbers import Bucket, evaluate, expression
from tscompile.communication.parser import parse_golden
from tscompile.communication.printer import golden_text
from tscompile.communication.summary import summary
from tscompile.ir.mesh import ParallelSizes
from tscompile.ir.request import Buckets

BUCKETS = [Bucket(1, 1), Bucket(8, 8), Bucket(32, 8)]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([7, 7, 7], "7"),
        ([2, 16, 64], "2T"),
        ([4, 32, 128], "4T"),
        ([3, 24, 24], "3S"),
        ([65, 128, 345], "65|128|345"),
        ([5, 26, 98], "2+3T"),
    ],
)
def test_numbers_that_follow_the_tokens(values: list[int], text: str) -> None:
    assert expression(values, BUCKETS) == text
    assert evaluate(text, BUCKETS) == values


buckets = st.lists(
    st.builds(Bucket, st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=5
)


@given(buckets, st.data())
def test_numbers_read_back(found: list[Bucket], data: st.DataObject) -> None:
    count = len(found)
    values = data.draw(st.lists(st.integers(0, 10**12), min_size=count, max_size=count))
    assert evaluate(expression(values, found), found) == values
    base, slope = data.draw(st.integers(0, 99)), data.draw(st.integers(0, 99))
    linear = [base + slope * bucket.tokens for bucket in found]
    assert evaluate(expression(linear, found), found) == linear


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranges_read_back(numbers: set[int]) -> None:
    assert numbers_of(ranges(sorted(numbers))) == tuple(sorted(numbers))


def test_like_buckets_are_a_range() -> None:
    every = ["decode_1", "decode_8", "decode_64", "extend_32x4", "extend_64x4"]
    assert program_names(every, every) == "all programs"
    assert program_names(every[1:3], every) == "decode_8..64"
    assert program_names([every[0], *every[2:]], every) == "decode_1, decode_64, extend_32x4..64x4"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_committed_text_reads_back(family: Family) -> None:
    plan = planned_once(deployment(family))
    text = golden_text(plan)
    assert parse_golden(text, "x.plan") == plan
    assert " us" not in text


def test_a_whole_model_is_short() -> None:
    """61 layers of two kinds, unequal groups: what a screen holds."""
    request = deployment(
        "qwen3_moe",
        ParallelSizes(4, 2, 4, 1, 4),
        config={"num_hidden_layers": 61, "mlp_only_layers": [0, 1, 2]},
        buckets=Buckets((1, 4), ((32, 4),)),
    )
    lines = summary(planned_once(request)).splitlines()
    assert len(lines) <= 60
    assert len(lines) > 15


def test_kernels_are_listed_when_asked_for() -> None:
    text = summary(planned_once(deployment()), kernels=True)
    assert "linear.native" in text
    assert "attention.native" in text


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("plan tiny", "plane tiny", 1),
        ("mesh [a=2]", "mesh [a:2]", 3),
        ("cache full", "cache", 6),
        ("linear float32[T,96]", "linear float32[T*2,96]", 28),
    ],
)
def test_damage_is_refused_with_its_line(old: str, new: str, line: int) -> None:
    text = golden_text(planned_once(deployment()))
    assert old in text
    with pytest.raises(PlanFileError) as refused:
        parse_golden(text.replace(old, new, 1), "damaged.plan")
    assert refused.value.where.startswith("damaged.plan:")
    assert abs(int(refused.value.where.rpartition(":")[2]) - line) <= 4


def test_a_file_cut_short_is_refused() -> None:
    lines = golden_text(planned_once(deployment())).splitlines()
    for count in range(1, len(lines) - 1):
        with pytest.raises(PlanFileError, match=r"ends too soon|not understood|expected"):
            parse_golden("\n".join(lines[:count]), "short.plan")
