"""The list that FA3's blocks work through: every tile once, shared out evenly, within its bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_packs import library

from tskernels.ops.attention.flashinfer import list_bytes
from tskernels.packs.errors import PackCallFailed
from tskernels.packs.library import PackLibrary, Place

LIST = """
#include <cstdio>
#include "kernel_pack.h"
#include "flashinfer/tiles.h"
using namespace ts_fa3;
TS_PACK_EXPORT int32_t ts_pack_abi() { return TS_PACK_ABI; }
// addresses: keys, first rows, list, places; integers: rows, sequences, heads, pages, processors
TS_PACK_EXPORT int32_t make_list(const uint64_t* addresses, const int64_t* integers, const double*,
                                 int32_t, void*, char* error, int64_t error_bytes) {
  const Bucket bucket{integers[0], integers[1], integers[2]};
  const auto processors = static_cast<int32_t>(integers[4]);
  const Places place = places(bucket, processors);
  auto* out = reinterpret_cast<int64_t*>(addresses[3]);
  const int64_t all[] = {place.tile, place.row,      place.table, place.rows, place.keys,
                         place.head, place.sequence, place.share, place.end};
  std::copy(std::begin(all), std::end(all), out);
  try {
    write_list(reinterpret_cast<const int32_t*>(addresses[0]),
               reinterpret_cast<const int32_t*>(addresses[1]), bucket, integers[3], processors,
               place, reinterpret_cast<char*>(addresses[2]));
  } catch (const std::exception& failure) {
    std::snprintf(error, error_bytes, "%s", failure.what());
    return 1;
  }
  return 0;
}
"""
PAGES = 77
NAMES = ("tile", "row", "table", "rows", "keys", "head", "sequence")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> PackLibrary:
    return PackLibrary("tiles", library(tmp_path_factory.mktemp("tiles"), LIST))


@dataclass(frozen=True, slots=True)
class Listed:
    """What the list holds, and the bytes that it takes."""

    works: dict[str, list[int]]
    shares: list[int]
    end: int


def listed(
    native: PackLibrary,
    news: list[int],
    lengths: list[int],
    heads: int,
    processors: int,
    rows: int | None = None,
) -> Listed:
    """The list of a step whose program has exactly its rows and sequences, or as many `rows`."""
    size = sum(news) if rows is None else rows
    keys, places = np.array(lengths, np.int32), np.zeros(9, np.int64)
    starts = np.cumsum([0, *news]).astype(np.int32)
    area = np.full(list_bytes(size, len(news), heads) + 64, 0x55, np.uint8)
    addresses = [x.ctypes.data for x in (keys, starts, area, places)]
    integers = [size, len(news), heads, PAGES, processors]
    native.bind("make_list", addresses, integers, [], Place(0, 0))()
    ends = places.tolist()

    def array(start: int, count: int) -> list[int]:
        return np.frombuffer(area.tobytes(), np.int32, count, start).tolist()

    shares = array(ends[7], processors + 1)
    assert (area[ends[8] :] == 0x55).all()
    found = {name: array(start, shares[-1]) for name, start in zip(NAMES, ends, strict=False)}
    return Listed(found, shares, ends[8])


def cost(rows: int, keys: int, tile: int) -> int:
    return -(-min(keys, keys - rows + (tile + 1) * 128) // 128) + 2


@given(
    steps=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 3000)), min_size=1, max_size=12),
    heads=st.sampled_from([1, 6, 16, 32, 40]),
    processors=st.sampled_from([1, 3, 132, 144]),
)
@settings(max_examples=60, deadline=None)
def test_every_tile_of_several_rows_is_there_once(
    native: PackLibrary, steps: list[tuple[int, int]], heads: int, processors: int
) -> None:
    news = [new for new, _ in steps]
    lengths = [new + before if new else 0 for new, before in steps]
    found = listed(native, news, lengths, heads, processors)
    starts = np.cumsum([0, *news]).tolist()
    wanted = sorted(
        (s, tile, head, starts[s], news[s], lengths[s], s * PAGES)
        for s, new in enumerate(news)
        if new > 1
        for tile in range(-(-new // 128))
        for head in range(heads)
    )
    order = ("sequence", "tile", "head", "row", "rows", "keys", "table")
    assert sorted(zip(*(found.works[name] for name in order), strict=True)) == wanted
    assert found.shares == sorted(found.shares)
    assert found.shares[0] == 0
    assert found.end <= list_bytes(sum(news), len(news), heads)
    costs = [
        cost(*three)
        for three in zip(*(found.works[n] for n in ("rows", "keys", "tile")), strict=True)
    ]
    if costs:
        loads = [sum(costs[a:b]) for a, b in zip(found.shares, found.shares[1:], strict=False)]
        assert max(loads) <= sum(costs) / processors + max(costs)


def test_a_long_prompt_leaves_nobody_idle(native: PackLibrary) -> None:
    for new, length, most in ((8192, 8192, 1.01), (2048, 8192, 1.04), (1024, 1024, 1.1)):
        found = listed(native, [new], [length], 32, 132)
        costs = [cost(new, length, tile) for tile in found.works["tile"]]
        loads = [sum(costs[a:b]) for a, b in zip(found.shares, found.shares[1:], strict=False)]
        assert max(loads) <= most * sum(costs) / 132


def test_heads_that_share_keys_are_in_hand_together(native: PackLibrary) -> None:
    found = listed(native, [8192], [8192], 32, 132)
    firsts = [found.works["head"][a] for a in found.shares[:-1]]
    assert max(firsts) < 16


def test_more_rows_than_the_program_has_are_refused(native: PackLibrary) -> None:
    with pytest.raises(PackCallFailed, match="the step has more rows than the program"):
        listed(native, [300], [300], 4, 132, rows=128)
