# SPDX-License-Identifier: Apache-2.0
"""Placement of replicas and calls that move replicas; the store uses one host."""

from __future__ import annotations

import logging

import mckv

from mooncake import _codes
from mooncake._arguments import bad_key, key_of, keys_of
from mooncake._calls.byte import ByteCalls
from mooncake._types import ReplicaDescriptor

logger = logging.getLogger("mooncake")


class PlacementCalls(ByteCalls):
    """Mixed into MooncakeDistributedStore."""

    def get_replica_desc(self, key: str) -> list[ReplicaDescriptor]:
        """This host's replica; the result omits replicas of other hosts."""
        key_of(key)
        try:
            found = None if bad_key(key) else self._client.stat_batch((key,))[0]
        except mckv.McError:
            return []
        if found is None or found.extent_count == 0:
            return []
        return [ReplicaDescriptor(found.length, self._hostname)]

    def batch_get_replica_desc(self, keys: list[str]) -> dict[str, list[ReplicaDescriptor]]:
        """Results only for keys with a replica on this host."""
        found = {key: self.get_replica_desc(key) for key in keys_of(keys)}
        return {key: replicas for key, replicas in found.items() if replicas}

    def batch_replica_clear(self, keys: list[str], segment_name: str = "") -> list[str]:
        """The keys whose replica was dropped; segment_name must be this host's segment."""
        if segment_name and segment_name != self._hostname:
            return []
        names = keys_of(keys)
        return [k for k, code in zip(names, self.batch_remove(names), strict=True) if code == 0]

    def create_copy_task(self, key: str, targets: list[str]) -> tuple[tuple[int, int], int]:
        logger.error("mc: create_copy_task: there is one host, and so nowhere to copy to")
        return (0, 0), _codes.INVALID_PARAMS

    def create_move_task(self, key: str, source: str, target: str) -> tuple[tuple[int, int], int]:
        logger.error("mc: create_move_task: there is one host, and so nowhere to move to")
        return (0, 0), _codes.INVALID_PARAMS

    def query_task(self, task_id: tuple[int, int]) -> tuple[None, int]:
        return None, _codes.TASK_NOT_FOUND

    def get_offload_rpc_read_count(self) -> int:
        return 0
