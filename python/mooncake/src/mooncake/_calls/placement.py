# SPDX-License-Identifier: Apache-2.0
"""Replicas: their places, and calls that move replicas."""

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
        """The replicas of all hosts; the endpoint is the address of a host's agent."""
        key_of(key)
        return self.batch_get_replica_desc([key]).get(key, [])

    def batch_get_replica_desc(self, keys: list[str]) -> dict[str, list[ReplicaDescriptor]]:
        """Results only for keys with a replica."""
        names = [key for key in keys_of(keys) if not bad_key(key)]
        try:
            stats = self._client.stat_batch(names)
            holders = self._client.holders(names, namespace=self._tenant())
        except mckv.UnsupportedError:  # no cluster
            holders = [[self._hostname]] * len(names)
        except mckv.McError as error:
            logger.error("mc: the replicas are not known: %s", error)
            return {}
        return {
            key: [ReplicaDescriptor(stat.length, one) for one in held or [self._hostname]]
            for key, stat, held in zip(names, stats, holders, strict=True)
            if stat is not None
        }

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
