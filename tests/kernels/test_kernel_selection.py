"""Selection: total, deterministic, in the documented order, with a reason for every loser."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tskernels import builtin, measured
from tskernels.kernel import BANDS, Capability, KernelQuery, KernelSpec, Trait
from tskernels.registry import REGISTRY, Registry
from tskernels.schema import DType
from tskernels.selection import NoKernelError, Selection, select

F32, F64 = DType.FLOAT32, DType.FLOAT64


def linear_query(rows: int, dtype: DType = F32, arch: str = "x86_64") -> KernelQuery:
    shapes = ((rows, 576), (960, 576), None)
    return KernelQuery("linear", "decode", (dtype, dtype, None), shapes, "cpu", arch)


def spec(solution: str, priority: int, **changes: object) -> KernelSpec:
    base = replace(REGISTRY.resolve("linear.torch"), solution=solution, priority=priority)
    return replace(base, **changes)


def choose(*specs: KernelSpec, query: KernelQuery | None = None) -> Selection:
    return select(query or linear_query(1), Registry(specs))


def test_the_order_of_registration_does_not_matter() -> None:
    shuffled = list(builtin.SPECS)
    random.Random(3).shuffle(shuffled)
    for rows in (1, 8, 64, 512):
        assert select(linear_query(rows), Registry(shuffled)) == select(linear_query(rows))


def test_native_runs_float32_and_torch_the_rest() -> None:
    assert {select(linear_query(n)).winner.name for n in (1, 8, 32, 512)} == {"linear.native"}
    assert select(linear_query(1, arch="aarch64")).winner.name == "linear.native"
    chosen = select(linear_query(1, F64))
    assert chosen.winner.name == "linear.torch"
    assert ("linear.native", "takes x as float32, not float64") in chosen.losers


def test_every_loser_has_a_reason() -> None:
    chosen = select(linear_query(8))
    assert [name for name, _ in chosen.losers] == [
        "linear.cublas",
        "linear.reference",
        "linear.torch",
        "linear.triton",
        "linear.triton_rows",
    ]
    assert all(reason for _, reason in chosen.losers)


def test_a_higher_band_wins_whatever_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "TABLE", {("linear.low", "x86_64"): ((1, 1.0),)})
    chosen = choose(spec("low", 7), spec("high", 8))
    assert chosen.winner.solution == "high"
    assert chosen.losers == (("linear.low", "is PORTABLE, linear.high is PERFORMANT"),)


def test_within_a_band_the_measured_time_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        ("linear.a", "x86_64"): ((1, 5.0), (8, 6.0), (64, 50.0)),
        ("linear.b", "x86_64"): ((1, 4.0), (8, 7.0), (64, 49.0)),
    }
    monkeypatch.setattr(measured, "TABLE", table)
    pair = (spec("a", 11), spec("b", 8))
    winners = {n: choose(*pair, query=linear_query(n)).winner.solution for n in (1, 2, 8, 9, 900)}
    assert winners == {1: "b", 2: "a", 8: "a", 9: "b", 900: "b"}
    assert choose(*pair).losers[0][1] == "measured slower than linear.b at this size"
    elsewhere = choose(*pair, query=linear_query(1, arch="aarch64"))
    assert elsewhere.winner.solution == "a"  # not measured there: the priority decides
    assert elsewhere.losers[0][1] == "has priority 8, linear.a has 11"


def test_the_name_decides_last() -> None:
    chosen = choose(spec("y", 8), spec("x", 8))
    assert chosen.winner.solution == "x"
    assert chosen.losers == (("linear.y", "equal to linear.x; its name comes later"),)


def test_device_arch_mode_and_traits_rule_kernels_out() -> None:
    few = Trait("takes at most 4 rows", lambda q: (q.shapes[0] or (0,))[0] <= 4)
    chosen = choose(
        spec("fits", 4),
        spec("cuda", 12, capability=Capability("cuda", ("sm_90",))),
        spec("arm", 12, capability=Capability("cpu", ("aarch64",))),
        spec("extend", 12, mode="extend"),
        spec("few", 12, traits=(few,)),
        query=linear_query(8),
    )
    assert chosen.reason == "the only one that fits"
    assert dict(chosen.losers) == {
        "linear.arm": "runs on aarch64, not x86_64",
        "linear.cuda": "runs on cuda, not cpu",
        "linear.extend": "is for extend, not decode",
        "linear.few": "takes at most 4 rows",
    }


def test_where_nothing_fits_the_error_says_why() -> None:
    with pytest.raises(NoKernelError, match=r"no kernel runs linear .* on cuda sm_90") as caught:
        select(replace(linear_query(1, F64), device="cuda", arch="sm_90"))
    assert "linear.native runs on cpu, not cuda" in caught.value.message
    lack = "linear.triton takes x as float32 or bfloat16 or float16, not float64"
    assert lack in caught.value.message


def test_bands_cover_every_priority_once() -> None:
    assert [p for band in BANDS.values() for p in band] == list(range(20))


def test_measured_kernels_exist_and_share_rows() -> None:
    for op in {name.split(".")[0] for name, _ in measured.TABLE}:
        curves = {k: c for k, c in measured.TABLE.items() if k[0].startswith(f"{op}.")}
        assert all(REGISTRY.resolve(name).op == op for name, _ in curves)
        assert len({tuple(rows for rows, _ in curve) for curve in curves.values()}) == 1
