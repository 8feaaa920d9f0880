"""The error catalogue: codes are unique and in their layer's range, the document is complete."""

from __future__ import annotations

from pathlib import Path

import tscompile.errors as compiler_errors
from tscompile.catalogue import LAYERS, documented_errors, render
from tskernels.errors import TsError

ROOT = Path(__file__).parents[2]


def test_the_document_is_generated_from_the_classes() -> None:
    assert (ROOT / "docs/errors.md").read_text() == render()


def test_every_code_is_unique_and_has_a_meaning() -> None:
    errors = documented_errors()
    assert len({error.code for error in errors}) == len(errors)
    assert all(error.code[:4] in LAYERS and error.summary.endswith(".") for error in errors)


def test_every_registered_class_is_documented() -> None:
    assert compiler_errors.RecipeError.code in TsError.catalogue
    documented = {(error.code, error.name) for error in documented_errors()}
    registered = {
        (code, kind.__name__)
        for code, kind in TsError.catalogue.items()
        if kind.__module__.startswith(("tscompile.", "tsruntime.", "tskernels.", "tsschedulers."))
    }
    assert registered <= documented


def test_the_compilers_errors_stay_in_their_ranges() -> None:
    ranges = {error.code[:4] for error in documented_errors() if error.module == "tscompile.errors"}
    assert ranges <= {"TS01", "TS02"}
