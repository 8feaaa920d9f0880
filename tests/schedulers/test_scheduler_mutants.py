"""Seeded mistakes in the C++: tests find each of them. Nightly, since each is a build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import nanobind
import pytest

SCHEDULERS = Path(__file__).parents[2] / "schedulers"
REGRESSIONS = Path(__file__).with_name("test_scheduler_regressions.py")
MODEL = Path(__file__).with_name("test_scheduler_model.py")
EXAMPLES = 1500


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in csrc/`file`."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    Mutant("none", "fence.h", "return step <= committed;", "return step <= committed;"),
    Mutant(
        "fence off by one", "fence.h", "return step <= committed;", "return step <= committed + 1;"
    ),
    Mutant("reference lost", "pages.h", "if (refs_[id]++ == 1 &&", "if (refs_[id] == 1 &&"),
    Mutant(
        "first victim", "planning.cpp", "Request& victim = running_.last();",
        "Request& victim = running_[0];",
    ),
    Mutant(
        "slots not fenced", "slots.h", "if (clock_->has_committed(last))",
        "if (last >= 0 || clock_->has_committed(last))",
    ),
    Mutant(
        "hit not capped", "cache.cpp",
        "const std::int32_t most = (request.known() - 1) / config_.page_size;\n    Hit hit;",
        "const std::int32_t most = request.known() / config_.page_size;\n    Hit hit;",
    ),
    Mutant(
        "salt ignored", "scheduler.cpp", "request.salt = submission.salt;", "request.salt = 0;"
    ),
    Mutant(
        "tokens not compared", "tree.cpp",
        "return nodes_[node].parent == parent && says(node, tokens);",
        "return nodes_[node].parent == parent;",
    ),
    Mutant(
        "admitted while a step names it", "admission.cpp", "first.steps_in_flight > 0 ||", ""
    ),
    Mutant(
        "window moves a page early", "config.h", "(position + 1 - *window) / page_size",
        "(position + 1 - *window + page_size) / page_size",
    ),
    Mutant(
        "published before the commit", "cache.cpp",
        "(home.published + 1) * config_.page_size <= home.committed",
        "(home.published + 1) * config_.page_size <= home.planned",
    ),
    Mutant(
        "failed store believed", "admission.cpp", "if (ok) cache_.stored(*ticket);",
        "cache_.stored(*ticket);",
    ),
    Mutant(
        "prefills before decodes", "planning.cpp",
        "draft.prefill_budget -= ready_rows(running_[i]);", "(void)running_[i];",
    ),
    Mutant(
        "most recently used evicted", "tree.cpp",
        "const NodeId node = place(kNoNode, group).next;",
        "const NodeId node = place(kNoNode, group).prev;",
    ),
    Mutant(
        "rejected drafts kept", "commit.cpp", "if (entry.most > 1) home->planned = committed;", ""
    ),
)  # fmt: skip

PLUGIN = """
import importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tsschedulers._core":
            return importlib.util.spec_from_file_location(name, {module!r})
sys.meta_path.insert(0, Finder())
"""


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


class Workshop:
    """Builds the extension from changed sources; objects that a change cannot reach are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = Path(nanobind.include_dir()).parent
        self.flags = [
            *("-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden", "-DNDEBUG"),
            '-DTSSCHEDULER_VERSION="mutant"',
            f"-I{nanobind.include_dir()}",
            f"-I{root / 'ext' / 'robin_map' / 'include'}",
            f"-I{sysconfig.get_path('include')}",
        ]
        compiler = shutil.which("g++")
        assert compiler is not None
        self.compiler = compiler
        self.nanobind = self._compile(root / "src" / "nb_combined.cpp", folder, SCHEDULERS / "csrc")
        self.module = self._compile(
            SCHEDULERS / "bindings" / "module.cpp", folder, SCHEDULERS / "csrc"
        )
        self.kept = self._compile_core(SCHEDULERS, folder)

    def _compile(self, source: Path, folder: Path, core: Path) -> Path:
        target = folder / f"{source.stem}.o"
        _run([self.compiler, *self.flags, f"-I{core}", "-c", str(source), "-o", str(target)])
        return target

    def _compile_core(self, tree: Path, folder: Path) -> dict[str, Path]:
        sources = sorted((tree / "csrc").glob("*.cpp"))
        return {source.name: self._compile(source, folder, tree / "csrc") for source in sources}

    def build(self, mutant: Mutant) -> Path:
        """The folder that holds the mutant's module and the plug-in that loads it."""
        place = self.folder / mutant.name.replace(" ", "_")
        shutil.copytree(SCHEDULERS / "csrc", place / "csrc")
        source = place / "csrc" / mutant.file
        text = source.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.file} has changed"
        source.write_text(text.replace(mutant.old, mutant.new))
        if source.suffix == ".cpp":
            changed = self._compile(source, place, place / "csrc")
            objects = {**self.kept, source.name: changed}
        else:
            objects = self._compile_core(place, place)
        module = place / "_core.so"
        # Of an inline function that stands in several of them, the linker takes the first.
        names = [str(path) for path in (*objects.values(), self.module, self.nanobind)]
        _run([self.compiler, "-shared", *names, "-o", str(module)])
        (place / "mutant_core.py").write_text(PLUGIN.format(module=str(module)))
        return place


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all mutants."""
    return Workshop(tmp_path_factory.mktemp("mutants"))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_found(mutant: Mutant, workshop: Workshop) -> None:
    place = workshop.build(mutant)
    test = f"{MODEL}::test_agrees_with_the_reference_at_length"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "mutant_core", "-p",
               "no:cacheprovider", str(REGRESSIONS), test]  # fmt: skip
    examples = 100 if mutant.name == "none" else EXAMPLES
    environment = {
        **os.environ,
        "PYTHONPATH": str(place),
        "SCHEDULER_EXAMPLES": str(examples),
    }
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    survived = result.returncode == 0
    assert survived == (mutant.name == "none"), result.stdout[-3000:]
