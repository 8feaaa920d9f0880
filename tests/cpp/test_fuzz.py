"""libFuzzer on the scheduler's API, with ASan, UBSan and the core's assertions. Nightly."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "schedulers" / "csrc"
HARNESS = Path(__file__).with_name("fuzz_scheduler.cpp")
SECONDS = 600
SANITIZERS = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")


def _clang() -> str:
    names = ("clang++", *(f"clang++-{version}" for version in range(22, 13, -1)))
    found = [path for name in names if (path := shutil.which(name)) is not None]
    assert found, "the fuzzer needs clang with compiler-rt"
    return found[0]


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 600)
def test_no_finding(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    sources = [str(HARNESS), *(str(path) for path in sorted(CORE.glob("*.cpp")))]
    flags = ("-std=c++20", "-g", "-O1", f"-I{CORE}", *SANITIZERS)
    subprocess.run([_clang(), *flags, *sources, "-o", str(program)], check=True)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    result = subprocess.run(
        [str(program), f"-max_total_time={SECONDS}", "-max_len=800", str(corpus)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr[-5000:]
    assert len(list(corpus.iterdir())) > 100, "it explored next to nothing"
