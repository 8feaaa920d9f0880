"""The native kernels' thread pool: right under stress, idle at rest, safe to fork."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tskernels import _cpu
from tskernels.kernel import BoundCall, Kernel
from tskernels.platform import set_num_threads
from tskernels.registry import REGISTRY


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    set_num_threads(before)
    _cpu.set_num_threads(1)


def counting_kernel(width: int) -> tuple[Kernel, torch.Tensor]:
    """A kernel of many small chunks whose result shows if one ran never or twice."""
    total, one = torch.zeros(64, width), torch.ones(64, width)
    call = BoundCall((total, one), (total,), {})  # in place: y = y + 1
    return REGISTRY.resolve("add.native").bind(call), total


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_threads_start_and_stop() -> None:
    before = native_threads()
    _cpu.set_num_threads(4)
    assert _cpu.num_threads() == 4
    assert native_threads() == before + 3
    _cpu.set_num_threads(1)
    assert native_threads() == before


def test_torch_and_the_pool_get_the_same_number() -> None:
    set_num_threads(2)
    assert (torch.get_num_threads(), _cpu.num_threads()) == (2, 2)


def test_a_pool_has_at_least_one_thread() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        _cpu.set_num_threads(0)


@pytest.mark.parametrize("threads", [2, 5])
def test_every_chunk_runs_once(threads: int) -> None:
    _cpu.set_num_threads(threads)
    kernel, total = counting_kernel(8192)  # 32 chunks
    runs = 300
    for i in range(runs):
        kernel()
        if i % 100 == 50:
            time.sleep(0.002)  # let the threads fall asleep
    assert (total == runs).all()


def test_idle_threads_use_no_processor() -> None:
    _cpu.set_num_threads(3)
    kernel, _ = counting_kernel(8192)
    kernel()
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.03


def test_a_forked_child_runs_alone_and_may_start_threads() -> None:
    _cpu.set_num_threads(3)
    kernel, total = counting_kernel(8192)
    seen = total.numpy()  # torch's own threads are not the child's, and it would wait for them
    kernel()
    child = os.fork()
    if child == 0:
        kernel()
        alone = _cpu.num_threads() == 1 and bool((seen == 2).all())
        _cpu.set_num_threads(2)
        kernel()
        os._exit(0 if alone and bool((seen == 3).all()) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert _cpu.num_threads() == 3
    kernel()
    assert (total == 2).all()


def test_a_bound_kernel_keeps_its_tensors() -> None:
    kernel, total = counting_kernel(512)
    address = total.data_ptr()
    view = total[0]
    del total
    kernel()
    assert view.data_ptr() == address
    assert (view == 1).all()
