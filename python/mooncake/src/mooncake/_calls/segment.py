# SPDX-License-Identifier: Apache-2.0
"""Segments of a store: the agent's pool grows and shrinks by the segment's size."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import mckv

from mooncake import _codes
from mooncake._arguments import address_of
from mooncake._calls.base import StoreBase
from mooncake._codes import CODE

logger = logging.getLogger("mooncake")


class SegmentCalls(StoreBase):
    """Mixed into MooncakeDistributedStore."""

    def _mount(self, segments: dict[str, int]) -> int:
        try:
            if self._pool is None:
                raise mckv.ClosedError("this store was not set up, or was closed")
            self._pool.mount(self._lender, sum(segments.values()))
        except mckv.McError as error:
            logger.error("mc: the store's segments stay as they are: %s", error)
            return CODE[error.status]
        self._segments = segments
        return _codes.OK

    def allocate_and_mount_segment(
        self, size: int, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """Grows the pool: {"ret": 0 or a code, "segment_ids": [...], "allocated_size": bytes}."""
        failed: dict[str, Any] = {"segment_ids": [], "allocated_size": 0}
        if address_of(size) == 0:
            return {"ret": _codes.INVALID_PARAMS, **failed}
        name = str(uuid.uuid4())
        with self._lock:
            if code := self._mount({**self._segments, name: size}):
                return {"ret": code, **failed}
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
            rest = {one: size for one, size in self._segments.items() if one not in names}
            return self._mount(rest) if names else _codes.OK

    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        """0. The agent's disks serve all processes of the host, until the agent ends.

        The agent takes its objects out of the cluster's directory when it ends, which is a minute
        after its last process.
        """
        address_of(grace_period_seconds)
        if self._pool is None:
            return _codes.ILLEGAL_CLIENT
        logger.info("mc: unmount_local_disk_segment: the agent's disks serve until the agent ends")
        return _codes.OK
