"""Which program runs a step: the smallest bucket that fits. Only rank 0 asks."""

from __future__ import annotations

from collections.abc import Iterable

from tsruntime.artifact.schema import Limits, Phase, Program
from tsruntime.executor.errors import BucketsTooSmall


class ProgramChoice:
    """The plan's serving programs (last-token logits), smallest first, for each phase."""

    def __init__(self, programs: Iterable[Program]) -> None:
        serving = [(i, p) for i, p in enumerate(programs) if p.logits == "last"]
        self._decode = _smallest_first(serving, Phase.DECODE)
        self._extend = _smallest_first(serving, Phase.EXTEND)

    def choose(self, tokens: int, sequences: int) -> int:
        """Index of the smallest program for `tokens` rows of `sequences` sequences.

        Decode where every sequence has one row and a decode bucket fits, else extend. ValueError
        if none fits, which `check` rules out for what the limits admit.
        """
        if tokens == sequences:
            for size, _, index in self._decode:
                if size >= tokens:
                    return index
        for size, most, index in self._extend:
            if size >= tokens and most >= sequences:
                return index
        raise ValueError(f"no program takes {tokens} tokens of {sequences} sequences")

    def check(self, limits: Limits) -> None:
        """`BucketsTooSmall` unless every step within `limits` has a program."""
        for tokens, sequences in ((limits.token_budget, limits.max_batch), (limits.max_batch,) * 2):
            try:
                self.choose(max(tokens, sequences), sequences)
            except ValueError as error:
                raise BucketsTooSmall(
                    f"{error}, which token_budget {limits.token_budget} and max_batch"
                    f" {limits.max_batch} allow",
                    remedy="build again with an extend bucket of token_budget rows and max_batch"
                    " sequences",
                    where="plan.json programs",
                ) from error


def _smallest_first(
    programs: list[tuple[int, Program]], phase: Phase
) -> tuple[tuple[int, int, int], ...]:
    return tuple(sorted((p.tokens, p.sequences, i) for i, p in programs if p.phase is phase))
