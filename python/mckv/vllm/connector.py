# SPDX-License-Identifier: Apache-2.0
"""MckvConnector, the class that vLLM creates in its scheduler and in its worker.

kv_connector_extra_config: "agent" (socket; else $MC_AGENT or the default), "namespace" ("default"),
"prefix" ("vllm"; engines with different prefixes share no blocks), "timeout_seconds" (0.5: the
longest wait of a step for the agent), "weights_version_file" (a file with the name of the weights'
version: engines share blocks only under equal names).
"""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import Any

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec

from mckv._block_keys import Card, sample_tokens
from mckv._engine_pool import Keys, Pool
from mckv.vllm.card import CardBearer
from mckv.vllm.scheduler import SchedulerSide, Step
from mckv.vllm.stats import MckvPromMetrics, MckvStats
from mckv.vllm.worker import Counts, WorkerSide

logger = logging.getLogger("mckv.vllm")

_FORMAT = 1  # of the objects


class MckvMetadata(KVConnectorMetadata):  # type: ignore[misc]
    def __init__(self, step: Step) -> None:
        self.step = step


class MckvConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """One of the two sides, by its role; the other side is None."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        groups = kv_cache_config.kv_cache_groups
        _refuse_what_is_not_supported(vllm_config, groups)
        if not os.environ.get("PYTHONHASHSEED"):
            logger.warning(
                "PYTHONHASHSEED is not set: block hashes, which are keys, differ between processes"
            )
        extra = self._kv_transfer_config.get_from_extra_config
        pool = Pool(
            extra("agent", None),
            extra("namespace", None),
            f"vllm-{role.name.lower()}",
            float(extra("timeout_seconds", 0.5)),
        )
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            spec = groups[0].kv_cache_spec
            model = vllm_config.model_config
            what = {
                "format": _FORMAT, "vllm": vllm.__version__, "model": model.model,
                "revision": model.revision, "dtype": model.dtype,
                "cache_dtype": vllm_config.cache_config.cache_dtype, "spec": spec,
                "layers": len(groups[0].layer_names),
            }  # fmt: skip
            keys = Keys(str(extra("prefix", "vllm")), what, extra("weights_version_file", None))
            self._scheduler = SchedulerSide(pool, keys, spec.block_size)
            hashed_by = str(vllm_config.cache_config.prefix_caching_hash_algo)
            names = model.served_model_name or model.model
            self._card = CardBearer(
                pool,
                str(names[0] if isinstance(names, list) and names else names),
                lambda: _card_of(keys.start, spec.block_size, hashed_by),
            )
        else:
            self._worker = WorkerSide(pool)

    # ---- Scheduler -----------------------------------------------------------------------------

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        assert self._scheduler is not None
        self._card.show()
        return self._scheduler.found_tokens(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        assert self._scheduler is not None
        self._scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        assert self._scheduler is not None
        return MckvMetadata(self._scheduler.step(scheduler_output))

    def reset_cache(self) -> bool:
        """vLLM drops its caches, because the weights change: no older block is ever loaded again.

        The blocks stay in the pool until they are evicted: other engines may have the old weights.
        """
        if self._scheduler is not None:
            self._scheduler.reset()
            self._card.renew()
        return True

    # ---- Worker --------------------------------------------------------------------------------

    def _side(self) -> WorkerSide:
        assert self._worker is not None
        return self._worker

    def _step(self) -> Step:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, MckvMetadata)
        return metadata.step

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._side().register(kv_caches, self._vllm_config.cache_config.num_gpu_blocks)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._side().begin(self._step())

    def wait_for_layer_load(self, layer_name: str) -> None:
        self._side().wait_for_layer(layer_name)

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Does nothing: wait_for_save() saves whole blocks."""

    def wait_for_save(self) -> None:
        self._side().save(self._step())

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._side().take_failed()

    def get_kv_connector_stats(self) -> MckvStats | None:
        side = self._worker
        if side is None:
            return None
        data = dataclasses.asdict(side.counts)
        side.counts = Counts()
        return MckvStats(data=data) if any(data.values()) else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    # ---- Of the class --------------------------------------------------------------------------

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return True  # attention waits for the layer

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> MckvStats:
        return MckvStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> MckvPromMetrics:
        return MckvPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _card_of(start: bytes, block_tokens: int, hashed_by: str) -> Card | None:
    """None without vLLM's prefix cache, because the keys are its hashes."""
    root = getattr(kv_cache_utils, "NONE_HASH", None)  # vLLM creates the object after the connector
    if root is None:
        return None
    sample = kv_cache_utils.hash_block_tokens(
        get_hash_fn_by_name(hashed_by), None, sample_tokens(block_tokens)
    )
    return Card(start, block_tokens, hashed_by, root, sample)


def _refuse_what_is_not_supported(vllm_config: Any, groups: list[Any]) -> None:
    """Raises ValueError, and names the alternative."""
    instead = "use MooncakeStoreConnector with mckv-mooncake instead"
    if vllm_config.parallel_config.world_size > 1:
        # A rank with a failed load would spoil the blocks that the other ranks save.
        raise ValueError(f"MckvConnector runs with one rank an engine; {instead}")
    if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, FullAttentionSpec):
        raise ValueError(f"MckvConnector takes models with full attention alone; {instead}")
