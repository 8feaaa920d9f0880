"""Pools of KV pages: one allocation a cache group, sliced a layer at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tsruntime.artifact.budget import pool_shape
from tsruntime.artifact.schema import NULL_PAGE, KvCache


class KvPools:
    """The pages of every cache group on one rank, and those in host memory, which no program sees.

    Host pages are numbered from 1, as the others: both have a null page. Memory is reserved at once
    and touched as pages are used, so that the resident size grows with use. Only the null page is
    written here: padding rows read and write it, and it starts finite.
    """

    def __init__(self, kv: KvCache, device: str = "cpu") -> None:
        self._pools: Mapping[str, Tensor] = {
            group.name: torch.empty(pool_shape(kv, group), dtype=group.dtype.torch, device=device)
            for group in kv.groups
        }
        self._layers: Mapping[tuple[str, int], int] = {
            (group.name, layer): index
            for group in kv.groups
            for index, layer in enumerate(group.layers)
        }
        for pool in self._pools.values():
            pool[:, NULL_PAGE].zero_()
        self._host: Mapping[str, Tensor] = {
            name: torch.empty((len(pool), kv.host_pages + 1, *pool.shape[2:]), dtype=pool.dtype)
            for name, pool in self._pools.items()
            if kv.host_pages
        }

    def group(self, name: str) -> Tensor:
        """[layers, pages, planes, kv_heads, page_size, head_dim] of one group."""
        return self._pools[name]

    def layer(self, group: str, layer: int) -> Tensor:
        """[pages, planes, kv_heads, page_size, head_dim], contiguous, of the model's `layer`."""
        return self._pools[group][self._layers[group, layer]]

    def host(self, name: str) -> Tensor:
        """[layers, host_pages + 1, ...] of one group, the rest as `group`; KeyError without any."""
        return self._host[name]

    def copy_pages(self, group: str, pairs: NDArray[np.int32]) -> None:
        """Copy whole pages of all layers; `pairs` [n, 2] holds rows (from, to)."""
        if len(pairs):
            _copy(self._pools[group], self._pools[group], pairs)

    def store_pages(self, group: str, pairs: NDArray[np.int32]) -> None:
        """Copy pages of all layers to the host; `pairs` [n, 2] holds rows (page, host page)."""
        if len(pairs):
            _copy(self._pools[group], self._host[group], pairs)

    def load_pages(self, group: str, pairs: NDArray[np.int32]) -> None:
        """Copy pages of all layers from the host; `pairs` [n, 2] holds rows (host page, page)."""
        if len(pairs):
            _copy(self._host[group], self._pools[group], pairs)

    def zero_pages(self, group: str, pages: NDArray[np.int32]) -> None:
        """Fill the pages `pages` [n] of all layers with zeros."""
        if len(pages):
            self._pools[group][:, _index(pages, self._pools[group])] = 0


def _copy(source: Tensor, target: Tensor, pairs: NDArray[np.int32]) -> None:
    chosen = source[:, _index(pairs[:, 0], source)]
    target[:, _index(pairs[:, 1], target)] = chosen.to(target.device)


def _index(pages: NDArray[np.int32], pool: Tensor) -> Tensor:
    index = torch.from_numpy(pages.astype(np.int64))  # pyright: ignore[reportUnknownMemberType]
    return index.to(pool.device)
