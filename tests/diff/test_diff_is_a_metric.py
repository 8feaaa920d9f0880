"""Any two plans: equal ones differ in nothing, both directions mirror, all formats say the same."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from planned import H200

from tscompile.communication.parser import parse_golden
from tscompile.communication.plan import (
    CacheLayout,
    CommunicationPlan,
    Entry,
    Pool,
    ProgramPlan,
    Section,
    WeightLayout,
)
from tscompile.communication.printer import golden_text
from tscompile.communication.summary import summary
from tscompile.diff.changes import mirrored
from tscompile.diff.compare import compare
from tscompile.diff.formats.html import as_html
from tscompile.diff.formats.json import as_json
from tscompile.diff.formats.lines import MARKS, TOPICS
from tscompile.diff.formats.markdown import as_markdown
from tscompile.diff.formats.text import as_text
from tscompile.diff.report import Report
from tscompile.diff.rules import fired, parse_rule
from tskernels.schema import DType
from tsruntime.artifact.schema import Axis, Limits, Mesh, Phase

MESHES = (
    Mesh((Axis("a", 2), Axis("b", 2)), {"ATTN_TP": ("a",), "MOE_EP": ("a", "b")}),
    Mesh((Axis("a", 4),), {"ATTN_TP": ("a",), "MOE_EP": ("a",)}),
)
MODULES = ("attn.o", "mlp", "mlp.down", "norm", "")
OTHER_MODULES = ("attention.out", "ffn", "ffn.down", "norm", "")


def entries(
    modules: tuple[str, ...], axes: tuple[tuple[str, ...], ...]
) -> st.SearchStrategy[Entry]:
    """A kernel or a collective of some module."""
    talking = st.builds(
        Entry,
        module=st.sampled_from(modules),
        op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter_add_rms_norm"]),
        dtype=st.sampled_from([DType.FLOAT32, DType.BFLOAT16]),
        shape=st.tuples(st.sampled_from([4, 16, 64]), st.just(8)),
        axes=st.sampled_from(axes),
        wire=st.integers(0, 4096),
        pin=st.sampled_from(["x.one", "x.two"]),
    )
    computing = st.builds(
        Entry,
        module=st.sampled_from(modules),
        op=st.sampled_from(["linear", "add", "add_rms_norm"]),
        dtype=st.just(DType.FLOAT32),
        shape=st.tuples(st.sampled_from([4, 16]), st.just(8)),
        moved=st.integers(0, 10**9),
        flops=st.integers(0, 10**12),
        pin=st.sampled_from(["linear.one", "linear.two", "add.one"]),
    )
    return st.one_of(talking, computing)


@st.composite
def plans(draw: st.DrawFn) -> CommunicationPlan:
    """A deployment of up to five layers and three programs, of no particular model."""
    mesh = draw(st.sampled_from(MESHES))
    axes = (*((axis.name,) for axis in mesh.axes), tuple(axis.name for axis in mesh.axes))
    modules = draw(st.sampled_from([MODULES, OTHER_MODULES]))
    bodies = st.lists(entries(modules, axes), max_size=4).map(tuple)
    layers = draw(st.integers(0, 5))
    buckets = draw(st.lists(st.sampled_from([1, 4, 16]), min_size=1, max_size=3, unique=True))
    programs: list[ProgramPlan] = []
    for tokens in sorted(buckets):
        cut = draw(st.integers(0, layers))
        spans = [span for span in (range(cut), range(cut, layers)) if span]
        kinds = [Section(tuple(span), draw(bodies)) for span in spans]
        sections = (Section((), draw(bodies)), *kinds, Section((), draw(bodies)))
        arena = draw(st.integers(0, 1000))
        program = ProgramPlan(
            f"decode_{tokens}", Phase.DECODE, tokens, tokens, "last", arena, sections
        )
        programs.append(program)
    cuts = st.sampled_from(["", *(f"0@{'+'.join(names)}" for names in axes)])
    weights = [
        WeightLayout(f"{m}.weight", tuple(range(layers)), "mlp", DType.FLOAT32, (8, 8), draw(cuts))
        for m in modules
        if m and draw(st.booleans())
    ]
    cache = CacheLayout("full", tuple(range(layers)) or (0,), DType.FLOAT32, 2, 8, 2, None, ("a",))
    return CommunicationPlan(
        name=draw(st.sampled_from(["one", "two"])),
        architecture="Any",
        dtype=DType.FLOAT32,
        target=H200,
        mesh=mesh,
        limits=Limits(64, 16, 16, 4),
        pool=Pool(16, draw(st.integers(2, 9)), 0, (cache,)),
        weights=tuple(weights),
        programs=tuple(programs),
        unpinned=draw(st.sampled_from(["", "no kernel"])),
    )


def report(before: CommunicationPlan, after: CommunicationPlan) -> Report:
    """The comparison with every rule that there is."""
    rules = ("bytes>0B", "time>0us", "collectives>0", "memory>0B", "kernel-change")
    diff = compare(before, after)
    return Report(("a", "b"), before, after, diff, fired(tuple(map(parse_rule, rules)), diff))


@given(plans())
@settings(max_examples=30, deadline=None)
def test_a_plan_does_not_differ_from_itself_nor_from_its_file(plan: CommunicationPlan) -> None:
    read = parse_golden(golden_text(plan), "drawn.plan")
    assert golden_text(read) == golden_text(plan)
    assert compare(plan, read).is_empty
    assert not report(plan, plan).fired
    assert as_text(report(plan, plan)) == "summary  no difference\n"


@given(plans(), plans())
@settings(max_examples=60, deadline=None)
def test_both_directions_mirror(before: CommunicationPlan, after: CommunicationPlan) -> None:
    there, back = compare(before, after), compare(after, before)
    assert mirrored(there) == back
    assert mirrored(back) == there
    assert there.is_empty == (golden_text(before) == golden_text(after))


@given(plans(), plans())
@settings(max_examples=30, deadline=None)
def test_text_and_json_agree(before: CommunicationPlan, after: CommunicationPlan) -> None:
    found = report(before, after)
    text, data = as_text(found), json.loads(as_json(found))
    words = [line.split(" ")[0] for line in text.splitlines()]
    assert text.splitlines()[-1].endswith(data["summary"])
    assert words.count("fired") == len(data["fired"])
    fields = {
        "setting": "settings",
        "renamed": "renames",
        "collective": "collectives",
        "step": "loads",
        "kernel": "kernels",
        "memory": "memory",
        "placement": "placements",
        "other": "others",
    }
    assert set(fields) == set(TOPICS)
    for word, name in fields.items():
        assert (word in words) == bool(data["diff"][name]), word
    shown = {line.split()[1] for line in text.splitlines() if line.startswith("collective")}
    assert shown == {MARKS[change["kind"]] for change in data["diff"]["collectives"]}
    assert data["empty"] == (not set(words) - {"summary"})


@given(plans(), plans())
@settings(max_examples=20, deadline=None)
def test_no_format_crashes(before: CommunicationPlan, after: CommunicationPlan) -> None:
    found = report(before, after)
    assert as_markdown(found).startswith("### ")
    page = as_html(found)
    assert page.rstrip().endswith("</html>")
    for sent in ("http:", "https:", "<script", "<link", "url(", "@import"):
        assert sent not in page
    assert summary(before)
    assert summary(replace(after, programs=()), kernels=True)
