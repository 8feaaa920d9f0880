"""Modules and weights that are the same under another name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tscompile.communication.plan import CommunicationPlan, Entry, ProgramPlan, Section
from tscompile.diff.changes import Rename


def renames(before: CommunicationPlan, after: CommunicationPlan) -> tuple[Rename, ...]:
    """Names that only one side has, paired where they stand for the same.

    A module is known by what it runs, in which layers of which programs; a weight by its type,
    placement and layers. Of several that are alike, those whose names end alike are paired first,
    then in order.
    """
    common = {p.name for p in before.programs} & {p.name for p in after.programs}
    pairs = _paired(_modules(before, common), _modules(after, common))
    pairs |= _paired(_weights(before), _weights(after))
    return tuple(sorted((Rename(a, b) for a, b in pairs.items()), key=str))


def renamed(plan: CommunicationPlan, names: Mapping[str, str]) -> CommunicationPlan:
    """The plan with its modules and weights called otherwise."""
    if not names:
        return plan
    weights = (replace(w, name=names.get(w.name, w.name)) for w in plan.weights)
    programs = (_program(program, names) for program in plan.programs)
    return replace(plan, weights=tuple(weights), programs=tuple(programs))


def _program(program: ProgramPlan, names: Mapping[str, str]) -> ProgramPlan:
    def called(section: Section) -> Section:
        entries = (replace(e, module=names.get(e.module, e.module)) for e in section.entries)
        return replace(section, entries=tuple(entries))

    return replace(program, sections=tuple(map(called, program.sections)))


def _modules(plan: CommunicationPlan, common: Iterable[str]) -> dict[str, object]:
    """What each module does, by its name, in the order in which they run."""
    wanted = set(common)
    found: dict[str, list[object]] = {}
    for program in plan.programs:
        if program.name not in wanted:
            continue
        for section in program.sections:
            for entry in section.entries:
                if entry.module:
                    known = found.setdefault(entry.module, [])
                    known.append((program.name, section.layers, _nameless(entry)))
    return {module: tuple(done) for module, done in found.items()}


def _nameless(entry: Entry) -> object:
    """What an entry does; another kernel may do it."""
    return replace(entry, module="", pin="", axes=(), wire=0)


def _weights(plan: CommunicationPlan) -> dict[str, object]:
    return {w.name: (w.layers, w.kind, w.dtype, w.shape, w.cut) for w in plan.weights}


def _paired(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, str]:
    """Names of one side alone with those of the other that stand for the same."""
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    alike: dict[object, tuple[list[str], list[str]]] = {}
    for side, (names, meaning) in enumerate(((gone, before), (come, after))):
        for name in names:
            alike.setdefault(meaning[name], ([], []))[side].append(name)
    pairs: dict[str, str] = {}
    for left, right in alike.values():
        pairs |= _same_endings(left, right)
        rest = zip(
            (n for n in left if n not in pairs),
            (n for n in right if n not in pairs.values()),
            strict=False,
        )
        pairs.update(rest)
    return pairs


def _same_endings(left: Iterable[str], right: Iterable[str]) -> dict[str, str]:
    """Pairs whose last words agree, each name once, in order."""
    pairs: dict[str, str] = {}
    free = list(right)
    for name in left:
        match = next((other for other in free if _last(other) == _last(name)), None)
        if match is not None:
            pairs[name] = match
            free.remove(match)
    return pairs


def _last(name: str) -> str:
    words = name.removesuffix(".weight").removesuffix(".bias").split(".")
    return words[-1]
