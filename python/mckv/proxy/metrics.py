# SPDX-License-Identifier: Apache-2.0
"""The proxy's metrics for Prometheus; README.md in this folder lists the names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mckv.proxy.instances import ROLES, Fleet

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

_POOL_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1)


class Metrics:
    """Counters of one proxy; a scrape reads the gauges from the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.registry = CollectorRegistry()
        self.registry.register(self)
        made: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "mckv_proxy_requests", "Answered requests", ["endpoint", "status"], **made
        )
        self.retries = Counter(
            "mckv_proxy_retries", "Attempts after the first, by why that failed", ["why"], **made
        )
        self.failures = Counter(
            "mckv_proxy_instance_failures", "Attempts an instance failed", ["role"], **made
        )
        self.cancelled = Counter("mckv_proxy_cancelled", "Requests whose client went away", **made)
        self.broken = Counter(
            "mckv_proxy_broken_streams", "Streams that broke after their first byte", **made
        )
        self.without_prefill = Counter(
            "mckv_proxy_without_prefill",
            "Requests that no prefiller was healthy for: the decoder computed the prompt",
            **made,
        )
        self.pool_questions = Counter(
            "mckv_proxy_pool_questions",
            "Requests that the pool was to be asked for, by what came of it", ["outcome"], **made,
        )  # fmt: skip
        self.pool_seconds = Histogram(
            "mckv_proxy_pool_seconds", "What a request waited for the pool's answer",
            buckets=_POOL_SECONDS, **made,
        )  # fmt: skip
        self.first_byte = Histogram(
            "mckv_proxy_first_byte_seconds", "From a request's arrival to its answer's first byte",
            buckets=_SECONDS, **made,
        )  # fmt: skip
        self.duration = Histogram(
            "mckv_proxy_request_seconds", "From a request's arrival to its answer's end",
            buckets=_SECONDS, **made,
        )  # fmt: skip

    def collect(self) -> Iterator[Metric]:
        fleet = self._fleet
        for name, text, value in (
            ("mckv_proxy_in_flight_requests", "Requests at instances", fleet.in_flight),
            ("mckv_proxy_queued_requests", "Requests that wait for an instance", fleet.queued),
            ("mckv_proxy_prefix_index_blocks", "Blocks remembered", len(fleet.index)),
        ):
            yield GaugeMetricFamily(name, text, value)
        counted: tuple[tuple[str, str, float], ...] = (
            ("mckv_proxy_prompt_blocks", "Blocks of prompts", fleet.asked_blocks),
            ("mckv_proxy_matched_blocks", "Blocks sent to who had seen them", fleet.matched_blocks),
            ("mckv_proxy_held_blocks", "Blocks that the pool had", fleet.held_blocks),
            ("mckv_proxy_held_near_blocks", "Of these, on the chosen host", fleet.held_near_blocks),
        )
        for name, text, blocks in counted:
            yield CounterMetricFamily(name, text, blocks)
        known = GaugeMetricFamily(
            "mckv_proxy_instances", "Known instances", labels=["role", "healthy"]
        )
        for role in ROLES:
            for healthy in (True, False):
                count = sum(one.healthy == healthy for one in fleet.of(role))
                known.add_metric([role, str(healthy).lower()], count)
        yield known

    def text(self) -> bytes:
        return generate_latest(self.registry)
