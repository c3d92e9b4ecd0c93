# SPDX-License-Identifier: Apache-2.0
"""The connector's counters, for vLLM's log and /metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from mckv.vllm.worker import Counts

_NAMES = tuple(one.name for one in dataclasses.fields(Counts))


class MckvStats(KVConnectorStats):  # type: ignore[misc]
    """Counters in the form that vLLM passes from the worker to the logger."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def is_empty(self) -> bool:
        return not any(self.data.values())

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name in _NAMES:
            self.data[name] = self.data.get(name, 0) + other.data.get(name, 0)
        return self

    def reduce(self) -> dict[str, int | float]:
        return {name: self.data.get(name, 0) for name in _NAMES}


class MckvPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """Prometheus counters such as vllm:mckv_loaded_blocks_total, one per field of Counts."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: self._counter_cls(
                name=f"vllm:mckv_{name}_total",
                documentation=f"{name.replace('_', ' ').capitalize()} by mckv's connector.",
                labelnames=labelnames,
            )
            for name in _NAMES
        }

    def observe(self, transfer_stats_data: dict[str, Any] | None, engine_idx: int = 0) -> None:
        for name, value in (transfer_stats_data or {}).items():
            labels = self.per_engine_labelvalues[engine_idx]
            self._counters[name].labels(*labels).inc(value)
