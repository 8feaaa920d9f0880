"""Plans lowered by hand give the unsharded values, every one of them, on every rank."""

from __future__ import annotations

import pytest
from proof.handmade import Spread, certificate_of, handmade_plan, tiny_config
from proof.test_proof_handmade import SPREADS

from tscompile.simulate.simulate import simulate


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS.keys())
def test_every_value(spread: Spread) -> None:
    config = tiny_config()
    certificate = certificate_of(config)
    reports = simulate(handmade_plan(certificate, config, spread), certificate, rounds=3)
    assert all(report.values > 40 for report in reports)
