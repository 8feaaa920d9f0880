"""Programs of a plan on one rank: padding, paging and program choice change no result."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_plan import VOCAB, Sizes, tiny_logits, tiny_plan, whole_weights
from tiny_rows import OTHER, PROMPT, Rows, close, make_executor

from tsruntime.artifact.check import check_plan
from tsruntime.artifact.schema import NULL_PAGE, Limits
from tsruntime.executor.batch import ForwardBatch, GroupBatch
from tsruntime.executor.choice import ProgramChoice
from tsruntime.executor.errors import BucketsTooSmall

WHOLE = whole_weights()


def test_the_hand_written_plan_obeys_the_schema() -> None:
    check_plan(tiny_plan())
    check_plan(tiny_plan(Sizes(world=3)))


def test_prefill_then_decodes_equal_the_whole_sequence() -> None:
    plan = tiny_plan()
    executor, rows = make_executor(plan), Rows(plan)
    expected = tiny_logits(WHOLE, PROMPT)
    for start, end in ((0, 5), (5, 8), (8, 9), (9, 10), (10, 11)):
        logits = executor.forward(rows.batch([(2, start, PROMPT[start:end])]))
        assert close(logits[0], expected[end - 1])


def test_mixed_steps_give_every_sequence_its_own_logits() -> None:
    plan = tiny_plan()
    executor, rows = make_executor(plan), Rows(plan)
    executor.forward(rows.batch([(0, 0, PROMPT[:6]), (3, 0, OTHER[:1])]))
    logits = executor.forward(rows.batch([(3, 1, OTHER[1:2]), (0, 6, PROMPT[6:])])).clone()
    assert close(logits[0], tiny_logits(WHOLE, OTHER[:2])[-1])
    assert close(logits[1], tiny_logits(WHOLE, PROMPT)[-1])
    logits = executor.forward(rows.batch([(3, 2, OTHER[2:])]))
    assert close(logits[0], tiny_logits(WHOLE, OTHER)[-1])


def test_padding_full_of_nan_reaches_no_result() -> None:
    plan = tiny_plan()
    executor, rows = make_executor(plan), Rows(plan)
    executor.arena.fill_(0xFF)  # every float32 in it is NaN
    executor.pools.group("full").fill_(torch.nan)
    for program in range(len(plan.programs)):
        if plan.programs[program].tokens >= 4:
            executor.arena.fill_(0xFF)
            executor.pools.group("full")[:, NULL_PAGE] = torch.nan
            logits = executor.forward(rows.batch([(1, 0, PROMPT[:1])], program))
            assert close(logits[0], tiny_logits(WHOLE, PROMPT[:1])[-1])


def test_every_program_that_fits_gives_the_same_logits() -> None:
    plan = tiny_plan()
    expected = tiny_logits(WHOLE, PROMPT[:4])[-1]
    used = 0
    for program, entry in enumerate(plan.programs):
        if entry.phase == "extend":
            executor = make_executor(plan)
            assert close(
                executor.forward(Rows(plan).batch([(0, 0, PROMPT[:4])], program))[0], expected
            )
            used += 1
    assert used == 2


def test_steps_one_at_a_time_equal_forward() -> None:
    plan = tiny_plan()
    executor, rows = make_executor(plan), Rows(plan)
    batch = rows.batch([(0, 0, PROMPT[:4])])
    executor.prepare(batch)
    names = list[str]()
    for step in executor.steps(batch.program):
        step.run()
        names.append(step.op.op)
    assert "split" not in names
    assert names.count("linear") == 3
    assert close(executor.output(batch.program)[0], tiny_logits(WHOLE, PROMPT[:4])[-1])


def test_copied_pages_continue_a_sequence_in_another_slot() -> None:
    plan = tiny_plan()
    executor, rows = make_executor(plan), Rows(plan)
    executor.forward(rows.batch([(0, 0, PROMPT[:8])]))
    pages = executor.tables[0].pages
    fork = rows.batch([(1, 8, PROMPT[8:9])])
    pairs = np.stack([pages[0, :2], fork.groups[0].table_deltas[:2, 2]], axis=1)
    part = fork.groups[0]
    copied = GroupBatch(part.slot_mapping, part.table_deltas, pairs, part.zero_pages)
    moved = ForwardBatch(
        0,
        fork.program,
        fork.slots,
        fork.seq_lens,
        fork.query_starts,
        fork.token_ids,
        fork.positions,
        (copied,),
    )
    assert close(executor.forward(moved)[0], tiny_logits(WHOLE, PROMPT[:9])[-1])


def test_zeroed_pages_are_zero_in_every_layer() -> None:
    plan = tiny_plan()
    executor, rows = make_executor(plan), Rows(plan)
    executor.forward(rows.batch([(0, 0, PROMPT[:8])]))
    page = int(executor.tables[0].pages[0, 0])
    assert executor.pools.group("full")[:, page].any()
    executor.pools.zero_pages("full", np.array([page], np.int32))
    assert not executor.pools.group("full")[:, page].any()


def test_the_smallest_program_that_fits_is_chosen() -> None:
    plan = tiny_plan()
    choice = ProgramChoice(plan.programs)
    chosen = {
        (t, s): plan.programs[choice.choose(t, s)].name
        for t, s in ((1, 1), (2, 2), (3, 3), (2, 1), (8, 2), (8, 3), (9, 1), (16, 4))
    }
    assert chosen == {
        (1, 1): "decode-1-1",
        (2, 2): "decode-2-2",
        (3, 3): "decode-4-4",
        (2, 1): "extend-8-2",
        (8, 2): "extend-8-2",
        (8, 3): "extend-16-4",
        (9, 1): "extend-16-4",
        (16, 4): "extend-16-4",
    }


def test_decodes_beyond_the_decode_buckets_run_as_extend() -> None:
    plan = tiny_plan(Sizes(decode=(1, 2)))
    choice = ProgramChoice(plan.programs)
    assert plan.programs[choice.choose(3, 3)].name == "extend-16-4"


@pytest.mark.parametrize(
    ("limits", "ok"),
    [
        (Limits(64, 4, 16, 16), True),
        (Limits(64, 4, 17, 16), False),
        (Limits(64, 5, 16, 16), False),
    ],
)
def test_limits_beyond_the_largest_program_are_refused(limits: Limits, ok: bool) -> None:
    choice = ProgramChoice(tiny_plan().programs)
    if ok:
        choice.check(limits)
    else:
        with pytest.raises(BucketsTooSmall, match=f"max_batch {limits.max_batch}"):
            choice.check(limits)


def test_logits_cover_the_whole_vocabulary() -> None:
    plan = tiny_plan()
    executor = make_executor(plan)
    assert executor.output(0).shape == (1, VOCAB)
