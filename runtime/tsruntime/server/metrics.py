"""What Prometheus reads: vLLM's metrics under our prefix, and the pages of each cache group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tsruntime.engine.messages import EngineStats, PagePool
from tsruntime.server.frontend import Counts

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_FINISHES: Final = ("stop", "length", "abort")


def exposition(model: str, stats: EngineStats, counts: Counts) -> bytes:
    """The metrics in Prometheus's text format, labelled with the served model's name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(model, stats, counts))
    return generate_latest(registry)


def usage(pools: tuple[PagePool, ...]) -> float:
    """The part of the pages in use, 0 to 1, of the group that is nearest to its end."""
    return max(((p.total - p.free - p.cached) / p.total for p in pools), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Snapshot(Collector):
    model: str
    stats: EngineStats
    counts: Counts

    def collect(self) -> Iterator[Metric]:
        """Every metric once."""
        stats, counts = self.stats, self.counts
        gauges: tuple[tuple[str, str, float], ...] = (
            ("num_requests_running", "Requests that have a place in the batch.", stats.running),
            ("num_requests_waiting", "Requests that wait for a place.", stats.waiting),
            ("kv_cache_usage_perc", "KV pages in use; 1 means all.", usage(stats.pools)),
        )
        counters: tuple[tuple[str, str, float], ...] = (
            ("num_preemptions", "Places taken from requests again.", stats.preemptions),
            ("prefix_cache_queries", "Prompt tokens looked up.", stats.prefix_queries),
            ("prefix_cache_hits", "Prompt tokens found.", stats.prefix_hits),
            ("kv_pages_stored", "Pages copied to host memory.", stats.pages_stored),
            ("kv_pages_loaded", "Pages copied back from it.", stats.pages_loaded),
            ("prompt_tokens", "Tokens of prompts computed or found.", counts.prompt_tokens),
            ("generation_tokens", "Tokens generated.", counts.generation_tokens),
        )
        for name, text, value in gauges:
            yield self._one(GaugeMetricFamily(f"tsrun:{name}", text, labels=["model_name"]), value)
        for name, text, value in counters:
            yield self._one(
                CounterMetricFamily(f"tsrun:{name}", text, labels=["model_name"]), value
            )
        yield self._finished()
        yield self._pages("kv_cache_pages", "KV pages of a cache group.", self.stats.pools)
        yield self._pages("host_cache_pages", "KV pages in host memory.", self.stats.hosts)

    def _one(self, family: Metric, value: float) -> Metric:
        suffix = "_total" if family.type == "counter" else ""
        family.add_sample(family.name + suffix, {"model_name": self.model}, value)
        return family

    def _finished(self) -> Metric:
        family = CounterMetricFamily(
            "tsrun:request_success",
            "Sequences that ended, by reason.",
            labels=["model_name", "finished_reason"],
        )
        for reason in _FINISHES:
            family.add_metric([self.model, reason], self.counts.finished[reason])
        return family

    def _pages(self, name: str, text: str, pools: tuple[PagePool, ...]) -> Metric:
        labels = ["model_name", "group", "state"]
        family = GaugeMetricFamily(f"tsrun:{name}", text, labels=labels)
        for pool in pools:
            used = pool.total - pool.free - pool.cached
            for state, count in (("free", pool.free), ("cached", pool.cached), ("used", used)):
                family.add_metric([self.model, pool.group, state], count)
        return family
