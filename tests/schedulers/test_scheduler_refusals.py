"""What the scheduler refuses: bad sizes, and requests that could never run."""

from __future__ import annotations

import numpy as np
import pytest
from small_schedulers import Options, small_scheduler

from tsschedulers import CacheGroupConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"page_size": 0}, "page_size is 0, which must be at least 1"),
        ({"max_batch": -3}, "max_batch is -3, which must be at least 1"),
        ({"max_model_len": 1}, "max_model_len is 1, which must be at least 2"),
        ({"token_budget": 7}, "token_budget is 7, but max_batch 4 x .* need 8"),
        ({"tokens_per_step": 16}, "token_budget is 64, but max_batch 4 x tokens_per_step 16 .* 68"),
        ({"watermark": 1.5}, r"watermark must be in \[0, 1\)"),
        ({"prefix_hash_bits": 33}, "prefix_hash_bits is 33, which must be at most 32"),
        ({"ageing": 0}, "ageing is 0, which must be at least 1"),
    ],
)
def test_a_bad_size_is_refused(options: Options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_scheduler(**options)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (CacheGroupConfig("a", 1), "group 'a': pages is 1, which must be at least 2"),
        (CacheGroupConfig("a", 9, 1), "group 'a': window is 1, which must be at least 2"),
        (CacheGroupConfig("a", 9, 16), "its window of 16 tokens .* token_budget 64 need 23"),
    ],
)
def test_a_bad_group_is_refused(group: CacheGroupConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_scheduler(groups=(group,))


def test_a_name_is_one_groups() -> None:
    with pytest.raises(ValueError, match="group 'a' is named twice"):
        small_scheduler(groups=(CacheGroupConfig("a", 9), CacheGroupConfig("a", 9)))


@pytest.mark.parametrize(
    ("tokens", "new", "message"),
    [
        ([], 1, "the prompt is empty"),
        ([1, 2], 0, "max_new_tokens is 0, which must be at least 1"),
        ([1, -2], 1, "token -2 is negative"),
        ([1] * 250, 7, r"250 prompt tokens \+ max_new_tokens 7 = 257 exceed max_model_len 256"),
        ([1] * 100, 30, "= 130 need 33 pages of group 'full', which has 32"),
    ],
)
def test_what_can_never_run_is_refused(tokens: list[int], new: int, message: str) -> None:
    scheduler = small_scheduler(32)
    with pytest.raises(ValueError, match=message):
        scheduler.submit(tokens, new)
    assert scheduler.plan().reason == "idle"


def test_tokens_may_be_an_array() -> None:
    scheduler = small_scheduler()
    scheduler.submit(np.array([5, 6, 7], np.int32), 1)
    assert scheduler.plan().token_ids.tolist() == [5, 6, 7]
