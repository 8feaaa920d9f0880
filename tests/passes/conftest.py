"""The golden files of the passes, and the flag that writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDENS = Path(__file__).parent / "goldens"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="write tests/passes/goldens anew"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: compare text with a golden file, or write it under the flag."""
    update = bool(request.config.getoption("--update-goldens", default=False))

    def compare(name: str, text: str) -> None:
        path = GOLDENS / name
        if update:
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden {name}: run pytest tests/passes --update-goldens"
        assert text == path.read_text(encoding="utf-8")

    return compare
