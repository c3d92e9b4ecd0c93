# SPDX-License-Identifier: Apache-2.0
"""Segments of a store: the agent's pool grows and shrinks by the segment's size.

A call reads the pool's size and then sets it, so of two concurrent calls only one may count.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

import mckv

from mooncake import _codes
from mooncake._arguments import address_of
from mooncake._base import StoreBase
from mooncake._codes import CODE

logger = logging.getLogger("mooncake")


class SegmentCalls(StoreBase):
    """Mixed into MooncakeDistributedStore."""

    def _resize_by(self, difference: int) -> int:
        def call() -> int:
            client, tenant = self._client, self._tenant()
            segments = client.ask({"verb": "segments"})["segments"]
            size = next(one["pool_bytes"] for one in segments if one["namespace"] == tenant)
            client.ask(
                {"verb": "resize", "namespace": tenant, "pool_bytes": max(size + difference, 0)}
            )
            return _codes.OK

        try:
            return call()
        except mckv.McError as error:
            logger.error("mc: the pool cannot be resized by %d bytes: %s", difference, error)
            return CODE[error.status]

    def allocate_and_mount_segment(
        self, size: int, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """Grows the pool: {"ret": 0 or a code, "segment_ids": [...], "allocated_size": bytes}."""
        failed: dict[str, Any] = {"segment_ids": [], "allocated_size": 0}
        if address_of(size) == 0:
            return {"ret": _codes.INVALID_PARAMS, **failed}
        with self._lock:
            code = self._resize_by(size)
            if code:
                return {"ret": code, **failed}
            name = str(uuid.uuid4())
            self._segments[name] = size
        return {"ret": _codes.OK, "segment_ids": [name], "allocated_size": size}

    def unmount_and_free_segment(
        self, segment_ids: list[str], grace_period_seconds: int = 0
    ) -> int:
        """Shrinks the pool; 0, or -600 for an unknown id.

        Needs no grace period: objects in use stay until their readers finish.
        """
        address_of(grace_period_seconds)
        names = list(segment_ids)
        with self._lock:
            if len(set(names)) < len(names) or any(one not in self._segments for one in names):
                return _codes.INVALID_PARAMS
            code = self._resize_by(-sum(self._segments[one] for one in names)) if names else 0
            if code == _codes.OK:
                for one in names:
                    del self._segments[one]
        return code
