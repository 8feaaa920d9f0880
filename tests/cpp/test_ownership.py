"""Programs that must not compile, each beside its control, which must.

C++ cannot refuse the use of a moved-from name; what it can refuse is to give something away without
moving it, so that there is no other way to come by two owners.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "schedulers" / "csrc"
FLAGS = ("-std=c++20", f"-I{CORE}", "-Wall", "-Wextra", "-Wno-unused-variable", "-Werror")

PRELUDE = """
#include "dispatch.h"
using namespace tsscheduler;
"""

# What a case may use.
GIVEN = """
struct Given {
    Clock clock{};
    Pool pool{8, clock};
    SlotPool slots{4, clock};
};
Residence place(Given& given) { return Residence(given.slots.take()); }
"""


@dataclass(frozen=True, slots=True)
class Case:
    """The body of a function of `Given& g`; `before` stands at namespace scope."""

    name: str
    refused: str
    accepted: str
    message: str  # a part of the compiler's message, so that it fails for the right reason
    before: str = ""
    control_before: str = ""


NEW_STATE = "struct Fetching {};"
NEW_EVENT = "struct Preempt {};"
ALL_OF_FETCHING = NEW_STATE + (
    "template <class E> struct tsscheduler::On<Fetching, E> : tsscheduler::Reject {};"
)
ALL_OF_PREEMPT = NEW_EVENT + (
    "template <class S> struct tsscheduler::On<S, Preempt> : tsscheduler::Ignore {};"
)

CASES = (
    Case(
        "copy an open page",
        "OpenPage a = g.pool.allocate(); OpenPage b = a;",
        "OpenPage a = g.pool.allocate(); OpenPage b = std::move(a);",
        "use of deleted function",
    ),
    Case(
        "copy a sealed page without saying so",
        "SealedPage a = g.pool.allocate().publish(); SealedPage b = a;",
        "SealedPage a = g.pool.allocate().publish(); SealedPage b = a.share();",
        "use of deleted function",
    ),
    Case(
        "publish a page and keep it",
        "OpenPage a = g.pool.allocate(); SealedPage b = a.publish();",
        "OpenPage a = g.pool.allocate(); SealedPage b = std::move(a).publish();",
        "discards qualifiers",
    ),
    Case(
        "write a sealed page",
        "SealedPage a = g.pool.allocate().publish(); (void)a.write_slot(0, 16);",
        "OpenPage a = g.pool.allocate(); (void)a.write_slot(0, 16);",
        "has no member named 'write_slot'",
    ),
    Case(
        "share a page that is still written",
        "OpenPage a = g.pool.allocate(); SealedPage b = a.share();",
        "SealedPage a = g.pool.allocate().publish(); SealedPage b = a.share();",
        "has no member named 'share'",
    ),
    Case(
        "use a page after a table got it",
        "OpenPage a = g.pool.allocate(); Table t(g.pool); t.append(a);",
        "OpenPage a = g.pool.allocate(); Table t(g.pool); t.append(std::move(a));",
        "cannot bind rvalue reference",
    ),
    Case(
        "free a page twice",
        "OpenPage a = g.pool.allocate(); g.pool.drop(a.id(), 0);",
        "OpenPage a = g.pool.allocate();",
        "is private within this context",
    ),
    Case(
        "free a page around the fence",
        "OpenPage a = g.pool.allocate(); g.pool.release(a.id());",
        "{ OpenPage a = g.pool.allocate(); } g.pool.pass(1);",
        "is private within this context",
    ),
    Case(
        "make a page from a number",
        "OpenPage a(g.pool, 3);",
        "OpenPage a = g.pool.allocate();",
        "is private within this context",
    ),
    Case(
        "copy a table",
        "Table a(g.pool); Table b = a;",
        "Table a(g.pool); Table b = std::move(a);",
        "use of deleted function",
    ),
    Case(
        "copy a slot",
        "Slot a = g.slots.take(); Slot b = a;",
        "Slot a = g.slots.take(); Slot b = std::move(a);",
        "use of deleted function",
    ),
    Case(
        "make a slot from a number",
        "Slot a(g.slots, 3);",
        "Slot a = g.slots.take();",
        "is private within this context",
    ),
    Case(
        "copy a request's place",
        "Residence a = place(g); Residence b = a;",
        "Residence a = place(g); Residence b = std::move(a);",
        "use of deleted function",
    ),
    Case(
        "copy a state",
        "State a = Decoding{place(g)}; State b = a;",
        "State a = Decoding{place(g)}; State b = std::move(a);",
        "use of deleted function",
    ),
    Case(
        "copy a ticket",
        "Ticket a{.kind = Ticket::Kind::load, .handle = {}}; Ticket b = a;",
        "Ticket a{.kind = Ticket::Kind::load, .handle = {}}; Ticket b = std::move(a);",
        "use of deleted function",
    ),
    Case(
        "a waiting request has no table",
        "Waiting a; (void)a.home;",
        "Decoding a{place(g)}; (void)a.home.committed;",
        "has no member named 'home'",
    ),
    Case(
        "a waiting request cannot compute a chunk",
        "(void)transition(Waiting{}, Chunk{1});",
        "(void)transition(Waiting{}, Abort{});",
        "no matching function for call",
    ),
    Case(
        "a decoding request cannot be admitted",
        "(void)transition(Decoding{place(g)}, Admit{place(g), 1, {}});",
        "(void)transition(Waiting{}, Admit{place(g), 1, {}});",
        "no matching function for call",
    ),
    Case(
        "a loading request cannot be retracted",
        "(void)transition(Loading{place(g), 1, 1, 1}, Retract{});",
        "(void)transition(Decoding{place(g)}, Retract{});",
        "no matching function for call",
    ),
    Case(
        "use a state after it was consumed",
        "Decoding a{place(g)}; (void)transition(a, Finish{});",
        "Decoding a{place(g)}; (void)transition(std::move(a), Finish{});",
        "no matching function for call",
    ),
    Case(
        "forget a pair of a new state",
        "static_assert(classified(Types<Fetching>{}, AllEvents{}));",
        "static_assert(classified(Types<Fetching>{}, AllEvents{}));",
        "incomplete type",
        NEW_STATE,
        ALL_OF_FETCHING,
    ),
    Case(
        "forget a pair of a new event",
        "static_assert(classified(AllStates{}, Types<Preempt>{}));",
        "static_assert(classified(AllStates{}, Types<Preempt>{}));",
        "incomplete type",
        NEW_EVENT,
        ALL_OF_PREEMPT,
    ),
    Case(
        "dispatch an event that not all states know",
        "State a = Waiting{}; dispatch(a, Preempt{});",
        "State a = Waiting{}; dispatch(a, Preempt{});",
        "incomplete type",
        NEW_EVENT,
        ALL_OF_PREEMPT,
    ),
)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the core's headers precompiled."""
    folder = tmp_path_factory.mktemp("ownership")
    (folder / "given.h").write_text(PRELUDE + GIVEN)
    header = ("-x", "c++-header", str(folder / "given.h"), "-o", str(folder / "given.h.gch"))
    subprocess.run([_compiler(), *FLAGS, *header], check=True)
    return folder


def _compiler() -> str:
    compiler = shutil.which("g++")
    assert compiler is not None, "g++ builds the package, so it is there"
    return compiler


def _compile(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    program = folder / "case.cpp"
    program.write_text(text)
    include = ("-include", str(folder / "given.h"), "-fsyntax-only")
    return subprocess.run(
        [_compiler(), *FLAGS, *include, str(program)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )


def _body(name: str, body: str) -> str:
    return f"void {name.replace(' ', '_').replace(chr(39), '_')}(Given& g) {{ {body} (void)g; }}\n"


def test_controls_compile(workshop: Path) -> None:
    before = "".join(sorted({case.control_before for case in CASES}))
    bodies = "".join(_body(case.name, case.accepted) for case in CASES)
    result = _compile(workshop, before + bodies)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_is_refused(case: Case, workshop: Path) -> None:
    refused = _compile(workshop, case.before + _body(case.name, case.refused))
    assert refused.returncode != 0, "it compiles"
    assert case.message in refused.stderr, refused.stderr
