"""The checker accepts plans lowered by hand over several axes."""

from __future__ import annotations

import pytest
from proof.handmade import Spread, certificate_of, handmade_plan, tiny_config

from tsruntime.artifact.proof.checker import check_proof

SPREADS = {
    "one rank": Spread({}, (), ()),
    "tensor parallel": Spread({"a": 4}, ("a",), ("a",)),
    "tensor parallel, rows cut": Spread({"a": 4}, ("a",), ("a",), cut_rows=True),
    "attention 4, dense 8": Spread({"a": 4, "b": 2}, ("a",), ("a", "b")),
    "attention 4, dense 8, rows cut": Spread({"a": 4, "b": 2}, ("a",), ("a", "b"), cut_rows=True),
    "attention 4, dense 2": Spread({"a": 2, "b": 2}, ("a", "b"), ("a",)),
    "attention 1, dense 4": Spread({"a": 2, "b": 2}, (), ("a", "b")),
    "attention 2, dense 4 of 8": Spread({"a": 2, "b": 2, "c": 2}, ("a",), ("a", "b")),
}


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS.keys())
def test_accepts(spread: Spread) -> None:
    config = tiny_config()
    certificate = certificate_of(config)
    check_proof(handmade_plan(certificate, config, spread), certificate)
