"""The grammar of --fail-on, and what each rule makes of a change."""

from __future__ import annotations

import pytest

from tscompile.communication.prices import Load
from tscompile.diff.changes import Diff, LoadChange
from tscompile.diff.rules import Metric, RuleSyntaxError, fired, parse_rule

MB = 10**6
US = 10**6


@pytest.mark.parametrize(
    ("text", "metric", "limit", "relative"),
    [
        ("bytes>+5%", Metric.BYTES, 5.0, True),
        ("bytes > 1.5 MiB", Metric.BYTES, 1.5 * 2**20, False),
        ("time>+2%", Metric.TIME, 2.0, True),
        ("time>+100us", Metric.TIME, 100 * 10**6, False),
        ("time>1ms", Metric.TIME, 10**9, False),
        ("collectives>0", Metric.COLLECTIVES, 0.0, False),
        ("memory>+1GiB", Metric.MEMORY, 2**30, False),
        ("memory>1GB", Metric.MEMORY, 10**9, False),
        ("kernel-change", Metric.KERNEL_CHANGE, 0.0, False),
    ],
)
def test_a_rule_is_read(text: str, metric: Metric, limit: float, relative: bool) -> None:
    rule = parse_rule(text)
    assert (rule.metric, rule.limit, rule.relative, rule.text) == (metric, limit, relative, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bytes", "no limit"),
        ("bytes<5%", "is no rule"),
        ("bytes>5", "bytes is counted in %, B, KB"),
        ("bytes>5us", "'us'"),
        ("time>5KB", "time is counted in %, us, ms, s"),
        ("speed>5%", "'speed'"),
        ("collectives>1GB", "collectives is counted in %"),
        ("kernel-change>1", "takes no limit"),
        ("", "is no rule"),
    ],
)
def test_what_is_no_rule_says_what_would_be(text: str, said: str) -> None:
    with pytest.raises(RuleSyntaxError) as refused:
        parse_rule(text)
    assert said in str(refused.value)


def changed(before: Load, after: Load, held: tuple[int, int] = (0, 0)) -> Diff:
    """A difference of one program."""
    load = LoadChange("decode_1", before, after)
    return Diff("a", "b", ("decode_1",), (("x",), ("x",)), held, loads=(load,))


@pytest.mark.parametrize(
    ("rule", "fires"),
    [
        ("bytes>+5%", True),  # 100 to 106 MB
        ("bytes>+6%", False),
        ("bytes>+5MB", True),
        ("bytes>+6MB", False),
        ("time>+2%", True),  # 1000 to 1021 us
        ("time>+2.1%", False),
        ("time>+20us", True),
        ("time>+21us", False),
        ("memory>+50B", True),  # 1000 to 1051 bytes
        ("memory>+51B", False),
        ("memory>+5.1%", False),
        ("collectives>0", False),
        ("kernel-change", False),
    ],
)
def test_a_rule_fires_above_its_limit(rule: str, fires: bool) -> None:
    diff = changed(Load(1000 * US, 1, 100 * MB), Load(1021 * US, 1, 106 * MB), (1000, 1051))
    assert bool(fired((parse_rule(rule),), diff)) is fires


def test_anything_is_more_than_any_per_cent_of_nothing() -> None:
    diff = changed(Load(1, 1, 0), Load(1, 1, 1))
    assert fired((parse_rule("bytes>+500%"),), diff)


def test_what_shrinks_fires_nothing() -> None:
    diff = changed(Load(2000, 1, 100), Load(1000, 1, 10), (20, 10))
    rules = tuple(map(parse_rule, ("bytes>0B", "time>0us", "memory>0B", "collectives>0")))
    assert not fired(rules, diff)
