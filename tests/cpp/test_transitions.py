"""Every pair of state and event does what the table says, and owns what its state may own.

A program is generated that builds each state, sends it each event and prints what became of it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "schedulers" / "csrc"

# The table of the design: what is not here is ignored or rejected.
TABLE: dict[str, dict[str, str]] = {
    "Waiting": {
        "Admit": "Prefilling",
        "AdmitAndLoad": "Loading",
        "Token": "Waiting",
        "Finish": "Finished",
        "Abort": "Finished",
    },
    "Loading": {"LoadDone": "Prefilling", "LoadFailed": "Waiting", "Abort": "Finished"},
    "Prefilling": {
        "Chunk": "Prefilling",
        "Token": "Decoding",
        "Retract": "Waiting",
        "RetractAndStore": "Storing",
        "Finish": "Finished",
        "Abort": "Finished",
    },
    "Decoding": {
        "Token": "Decoding",
        "Retract": "Waiting",
        "RetractAndStore": "Storing",
        "Finish": "Finished",
        "Abort": "Finished",
    },
    "Storing": {
        "StoreDone": "Waiting",
        "StoreFailed": "Waiting",
        "Token": "Storing",
        "Finish": "Finished",
        "Abort": "Finished",
    },
    "Finished": {},
}

# Late, not wrong: results of a step in flight after a retraction, anything after the end.
IGNORED = {
    ("Waiting", "Chunk"),
    ("Storing", "Chunk"),
    *(
        ("Finished", event)
        for event in ("Chunk", "Token", "Finish", "Abort", "LoadDone", "LoadFailed",
                      "StoreDone", "StoreFailed")
    ),
}  # fmt: skip

STATES = {
    "Waiting": "Waiting{}",
    "Loading": "Loading{place(), 1, 16, 20}",
    "Prefilling": "Prefilling{place(), 20}",
    "Decoding": "Decoding{place()}",
    "Storing": "Storing{1}",
    "Finished": "Finished{}",
}

EVENTS = {
    "Admit": "Admit{place(), 20, std::nullopt}",
    "AdmitAndLoad": "Admit{place(), 20, Admit::Load{1, 16}}",
    "LoadDone": "LoadDone{tables()}",
    "LoadFailed": "LoadFailed{}",
    "Chunk": "Chunk{8}",
    "Token": "Token{8}",
    "Retract": "Retract{std::nullopt}",
    "RetractAndStore": "Retract{1}",
    "StoreDone": "StoreDone{}",
    "StoreFailed": "StoreFailed{}",
    "Finish": "Finish{}",
    "Abort": "Abort{}",
}

# Pages and slots of place() and of tables().
PLACED = (2, 1)
OWNED = {
    "Waiting": (0, 0),
    "Loading": PLACED,
    "Prefilling": PLACED,
    "Decoding": PLACED,
    "Storing": (0, 0),
    "Finished": (0, 0),
}

PROGRAM = """
#include "dispatch.h"
#include <cstdio>
using namespace tsscheduler;
namespace {
Clock the_clock;
Pool pool(64, the_clock);
SlotPool slots(64, the_clock);
const char* const states[] = {"Waiting",  "Loading", "Prefilling",
                              "Decoding", "Storing", "Finished"};
const char* const outcomes[] = {"applied", "ignored", "rejected"};
Tables tables() {
    Tables made;
    Table& table = made.add(pool);
    table.append(pool.allocate());
    table.append(pool.allocate());
    table.seal_next();
    table.seal_next();
    return made;
}
Residence place() {
    Residence made(slots.take());
    made.tables = tables();
    return made;
}
template <class Event>
void pair(const char* from, const char* name, State state, Event event) {
    const Outcome outcome = dispatch(state, std::move(event));
    std::printf("%s %s %s %s %d %d\\n", from, name, outcomes[static_cast<int>(outcome)],
                states[state.index()], pool.total() - pool.free(), slots.total() - slots.free());
}
} // namespace
int main() {
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[str]]:
    """What the generated program says of each pair: outcome, state, pages and slots owned."""
    folder = tmp_path_factory.mktemp("transitions")
    pairs = [
        f'pair("{state}", "{event}", {make}, {send});'
        for state, make in STATES.items()
        for event, send in EVENTS.items()
    ]
    (folder / "main.cpp").write_text(PROGRAM + "\n".join(pairs) + "\n}\n")
    compiler = shutil.which("g++")
    assert compiler is not None
    program = str(folder / "main")
    sources = (str(folder / "main.cpp"), str(CORE / "tree.cpp"))
    subprocess.run([compiler, "-std=c++20", f"-I{CORE}", *sources, "-o", program], check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in lines.splitlines()]
    return {(word[0], word[1]): word[2:] for word in words}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_pair(state: str, event: str, results: dict[tuple[str, str], list[str]]) -> None:
    target = TABLE[state].get(event)
    outcome = "applied" if target else "ignored" if (state, event) in IGNORED else "rejected"
    after = target or state
    pages, slots = OWNED[after]
    if target and event == "LoadDone":
        pages += PLACED[0]  # those that the transfer brought
    assert results[state, event] == [outcome, after, str(pages), str(slots)]


def test_no_pair_is_missing(results: dict[tuple[str, str], list[str]]) -> None:
    assert len(results) == len(STATES) * len(EVENTS)
