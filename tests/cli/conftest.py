"""Runs our commands in this process, so that a refusal costs no second import of torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployments import Done, Run

from tscompile.cli import main


@pytest.fixture
def tscompile(capsys: pytest.CaptureFixture[str]) -> Run:
    """`tscompile(*words) -> Done(code, out, err)`."""

    def run(*words: str | Path) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run
