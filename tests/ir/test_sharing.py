"""Equal types and placements become one object each, and nothing else changes."""

from __future__ import annotations

import pickle

from compile_requests import tiny_model_config, tiny_request

from tscompile.ir.draft import Draft, DraftValue
from tscompile.ir.sharing import Once, shared
from tscompile.ir.verifier import Stage
from tscompile.passes.pipeline import compile_until


def _values(draft: Draft) -> list[DraftValue]:
    return [value for program in draft.programs for value in program.values.values()]


def test_the_first_of_equal_objects_stands_for_all() -> None:
    once = Once[tuple[str, ...]]()
    first, again, other = (tuple(text.split()) for text in ("a b", "a b", "a c"))
    assert again is not first
    assert once(first) is once(again) is once(first) is first
    assert once(other) is other


def test_a_drafts_types_and_placements_are_shared() -> None:
    draft = compile_until(tiny_request(tiny_model_config("llama"), 2), Stage.PROPAGATE_PLACEMENTS)
    apart: Draft = shared(draft)
    values = [pickle.loads(pickle.dumps(value)) for value in _values(apart)]
    one = shared(draft)
    assert one == draft
    for part in ("type", "placements"):
        found = [getattr(value, part) for value in _values(one)]
        assert len({id(item) for item in found}) == len(set(found))
        assert len({id(getattr(value, part)) for value in values}) > len(set(found))
