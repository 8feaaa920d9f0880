"""What a format prints: a comparison with both plans, and the rules that fired."""

from __future__ import annotations

from dataclasses import dataclass

from tscompile.communication.plan import CommunicationPlan
from tscompile.diff.changes import Diff
from tscompile.diff.rules import Fired


@dataclass(frozen=True, slots=True)
class Report:
    """`titles` say what was compared, as the user named it."""

    titles: tuple[str, str]
    before: CommunicationPlan
    after: CommunicationPlan
    diff: Diff
    fired: tuple[Fired, ...] = ()
