"""Pools and page tables of the KV cache."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
import torch

from tskernels.schema import DType
from tsruntime.artifact.budget import pool_bytes
from tsruntime.artifact.schema import NULL_PAGE, CacheGroup, KvCache
from tsruntime.kv_cache.pool import KvPools
from tsruntime.kv_cache.table import PageTable


def cache(pages: int = 6, host_pages: int = 0) -> KvCache:
    full = CacheGroup("full", (0, 2), 3, 4, DType.FLOAT32, ())
    window = CacheGroup("window", (1,), 2, 4, DType.BFLOAT16, (), window=8)
    return KvCache(page_size=2, pages=pages, groups=(full, window), host_pages=host_pages)


def test_layers_are_parts_of_their_groups_pool() -> None:
    pools = KvPools(cache())
    assert pools.layer("full", 2).shape == (6, 2, 3, 2, 4)
    assert pools.layer("window", 1).shape == (6, 2, 2, 2, 4)
    assert pools.layer("window", 1).dtype == torch.bfloat16
    pools.layer("full", 2).fill_(5)
    assert torch.equal(pools.group("full")[1], torch.full((6, 2, 3, 2, 4), 5.0))
    with pytest.raises(KeyError):
        pools.layer("full", 1)


def test_bytes_are_those_of_the_allocations() -> None:
    pools = KvPools(cache())
    expected = sum(pools.group(name).nbytes for name in ("full", "window"))
    assert pool_bytes(cache()) == expected == 2 * 6 * 2 * 3 * 2 * 4 * 4 + 6 * 2 * 2 * 2 * 4 * 2


def test_a_group_of_latents_has_one_plane() -> None:
    latent = CacheGroup("latent", (0, 1), 1, 6, DType.FLOAT32, (), planes=1)
    kv = KvCache(page_size=2, pages=5, groups=(latent,))
    pools = KvPools(kv)
    assert pools.layer("latent", 1).shape == (5, 1, 1, 2, 6)
    assert pool_bytes(kv) == pools.group("latent").nbytes == 2 * 5 * 2 * 6 * 4


def test_the_null_page_starts_as_zeros() -> None:
    pools = KvPools(cache())
    assert not pools.group("full")[:, NULL_PAGE].any()


def test_pages_copy_in_all_layers_and_nowhere_else() -> None:
    pools = KvPools(cache())
    pool = pools.group("full")
    pool.copy_(torch.arange(pool.numel()).view(pool.shape))
    before = pool.clone()
    pools.copy_pages("full", np.array([[1, 4], [2, 5]], np.int32))
    assert torch.equal(pool[:, 4:6], before[:, 1:3])
    assert torch.equal(pool[:, :4], before[:, :4])


@pytest.mark.parametrize("group", ["full", "window"])
def test_pages_go_to_the_host_and_come_back_in_all_layers(group: str) -> None:
    pools = KvPools(cache(host_pages=3))
    pool, host = pools.group(group), pools.host(group)
    assert host.shape == (len(pool), 4, *pool.shape[2:])
    pool.copy_(torch.rand(pool.shape))
    host.copy_(torch.rand(host.shape))
    device_before, host_before = pool.clone(), host.clone()
    pools.store_pages(group, np.array([[5, 1], [2, 3]], np.int32))
    assert torch.equal(host[:, [1, 3]], device_before[:, [5, 2]])
    assert torch.equal(host[:, [0, 2]], host_before[:, [0, 2]])
    assert torch.equal(pool, device_before)
    pools.load_pages(group, np.array([[3, 4], [1, 1]], np.int32))
    assert torch.equal(pool[:, [4, 1]], device_before[:, [2, 5]])
    assert torch.equal(pool[:, [0, 2, 3, 5]], device_before[:, [0, 2, 3, 5]])


def test_without_host_pages_there_is_no_host_pool() -> None:
    pools = KvPools(cache())
    pools.store_pages("full", np.empty((0, 2), np.int32))
    with pytest.raises(KeyError):
        pools.host("full")


def test_zeroed_pages_are_zero_and_others_stay() -> None:
    pools = KvPools(cache())
    pools.group("full").fill_(1)
    pools.zero_pages("full", np.array([3, 5], np.int32))
    assert pools.group("full").sum((0, 2, 3, 4, 5)).numpy().tolist() == [96, 96, 96, 0, 96, 0]


def test_a_large_pool_takes_memory_only_as_it_is_used() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    pools = KvPools(cache(pages=1_000_000))
    grown = process.memory_info().rss - before
    assert pool_bytes(cache(pages=1_000_000)) > 400e6
    assert grown < 40e6
    pools.layer("full", 0)[1:300_000] = 1.0
    assert process.memory_info().rss - before > 50e6


def test_tables_start_with_the_null_page_and_take_deltas_in_order() -> None:
    table = PageTable(max_batch=3, max_pages=4)
    assert (table.pages == NULL_PAGE).all()
    table.apply(np.array([[2, 0, 7], [2, 1, 8], [0, 3, 9], [2, 0, 5]], np.int32))
    table.apply(np.empty((0, 3), np.int32))
    assert table.pages.tolist() == [[0, 0, 0, 9], [0, 0, 0, 0], [5, 8, 0, 0]]


def test_gathered_rows_follow_the_slots_and_padding_names_the_null_page() -> None:
    table = PageTable(max_batch=3, max_pages=2)
    table.apply(np.array([[0, 0, 1], [2, 0, 3], [2, 1, 4]], np.int32))
    out = np.full((4, 2), -1, np.int32)
    table.gather(np.array([2, 0], np.int32), out)
    assert out.tolist() == [[3, 4], [1, 0], [0, 0], [0, 0]]
