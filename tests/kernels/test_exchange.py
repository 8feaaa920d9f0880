"""Dispatch, exchange, experts, exchange, combine: on every rank what the whole experts give."""

from __future__ import annotations

from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from tskernels import ops
from tskernels.ops.collectives import group
from tskernels.shapes import ShapeError

Triple: TypeAlias = tuple[Tensor, Tensor, Tensor]
EXPERTS, ROWS, TOP_K, HIDDEN, WIDTH = 12, 5, 3, 6, 4


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def tokens(ranks: int) -> list[Triple]:
    """Each rank's own rows with their choices; the last row of each is padding."""
    made: list[Triple] = []
    for _ in range(ranks):
        ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(ROWS)]).int()
        ids[-1] = -1
        made.append((drawn(ROWS, HIDDEN), ids, torch.rand(ROWS, TOP_K, dtype=torch.float64)))
        made[-1][0][-1] = float("nan")
    return made


def network() -> Triple:
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    wide = (EXPERTS, WIDTH, HIDDEN)
    return drawn(*wide), drawn(*wide), drawn(EXPERTS, HIDDEN, WIDTH)


def exchange(buffers: list[Tensor]) -> list[Tensor]:
    return group.all_to_all(buffers, 0, 0)


def whole(mine: Triple, weights: Triple) -> Tensor:
    x, ids, shares = mine
    return ops.experts(x, ids, shares, *weights)


def through(mine: list[Triple], weights: Triple, starts: list[int], held: int) -> list[Tensor]:
    """Rank d holds `held` experts from starts[d] on, evenly apart."""
    ranks, step = len(mine), starts[1] - starts[0]
    where = {"ranks": ranks, "step": step, "held": held, "first": starts[0]}
    sent = [ops.dispatch(*triple, **where) for triple in mine]
    rows, ids, shares = (exchange([triple[i] for triple in sent]) for i in range(3))
    made = [
        ops.experts(
            rows[d],
            ids[d],
            shares[d],
            *(w[start : start + held] for w in weights),
            expert_start=start,
        )
        for d, start in enumerate(starts)
    ]
    back = exchange(made)
    return [ops.combine(back[r], mine[r][1], **where) for r in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_tokens_come_back_as_from_the_whole_experts(ranks: int) -> None:
    weights, mine, held = network(), tokens(ranks), EXPERTS // ranks
    got = through(mine, weights, [d * held for d in range(ranks)], held)
    for y, triple in zip(got, mine, strict=True):
        torch.testing.assert_close(y, whole(triple, weights), rtol=1e-12, atol=1e-12)
        assert y[-1].abs().max() == 0


def test_two_exchanges_that_share_the_experts_add_up() -> None:
    """Experts cut over two axes of two, exchanged over the outer one: the inner ranks add up."""
    weights, mine = network(), tokens(2)
    parts = [through(mine, weights, [inner * 3, inner * 3 + 6], 3) for inner in range(2)]
    for y, other, triple in zip(*parts, mine, strict=True):
        torch.testing.assert_close(y + other, whole(triple, weights))


def test_only_wanted_rows_are_sent() -> None:
    x, weights = torch.ones(3, 2), torch.full((3, 2), 0.5)
    ids = torch.tensor([[0, 5], [5, 4], [-1, -1]], dtype=torch.int32)
    rows, kept, shares = ops.dispatch(x, ids, weights, ranks=3, step=2, held=2)
    sent = [[1, 0, 0], [0, 0, 0], [1, 1, 0]]
    assert rows[:, 0].view(3, 3).tolist() == sent  # pyright: ignore[reportUnknownMemberType]
    assert kept.view(3, 3, 2)[2].tolist() == [[-1, 5], [5, 4], [-1, -1]]  # pyright: ignore[reportUnknownMemberType]
    assert kept.view(3, 3, 2)[0].tolist() == [[0, -1], [-1, -1], [-1, -1]]  # pyright: ignore[reportUnknownMemberType]
    assert torch.equal(shares, torch.where(kept >= 0, 0.5, 0.0))


def test_destinations_that_overlap_are_refused() -> None:
    with pytest.raises(ShapeError, match="holds 3 experts, but they begin 2 apart"):
        ops.dispatch(*tokens(1)[0], ranks=2, step=2, held=3)
    with pytest.raises(ShapeError, match=r"y.shape\[0\] is 5, but ranks \* rows of ids is 10"):
        ops.combine(*tokens(1)[0][:2], ranks=2, step=2, held=2)
