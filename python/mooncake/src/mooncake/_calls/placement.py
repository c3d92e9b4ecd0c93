# SPDX-License-Identifier: Apache-2.0
"""Replicas: their places, and calls that move replicas."""

from __future__ import annotations

import logging
import re

import mckv

from mooncake import _codes
from mooncake._arguments import bad_key, key_of, keys_of
from mooncake._calls.byte import ByteCalls
from mooncake._types import ReplicaDescriptor

logger = logging.getLogger("mooncake")

_KEYS_PER_REMOVAL = 16  # of at most 1,024 bytes each


def _exactly(key: str | bytes) -> bytes:
    """A regular expression for this key."""
    return re.escape(key if isinstance(key, bytes) else key.encode())


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
        """The keys whose replicas were dropped: all of them, or those of this store's segment.

        A host holds one copy for the segments of all its stores. While another store of this
        process has a segment, the copy stays, and its key counts as cleared.
        """
        names = keys_of(keys)
        if not segment_name:
            return [k for k, code in zip(names, self.batch_remove(names), strict=True) if code == 0]
        if segment_name != self._hostname or self._pool is None:
            return []
        found = [key for key, has in zip(names, self.batch_is_exist(names), strict=True) if has]
        if self._pool.has_other_segments(self._lender):
            return found
        try:
            return self._clear_here(found)
        except mckv.McError as error:
            logger.error("mc: batch_replica_clear: %s", error)
            return []

    def _clear_here(self, keys: list[str]) -> list[str]:
        """Drops this host's copies, and returns their keys. Raises mckv.McError."""
        try:
            nodes = self._client.ask({"verb": "nodes"})["nodes"]
            holders = self._client.holders(keys, namespace=self._tenant())
        except mckv.UnsupportedError:  # no cluster
            done = self._client.remove_batch(keys)
            return [key for key, one in zip(keys, done, strict=True) if one == mckv.Status.OK]
        own = next((node["address"] for node in nodes if node["self"]), None)
        here = [key for key, held in zip(keys, holders, strict=True) if own in held]
        for first in range(0, len(here), _KEYS_PER_REMOVAL):
            words = b"|".join(map(_exactly, here[first : first + _KEYS_PER_REMOVAL]))
            self._client.remove_matching(
                regex=b"^(?:%b)$" % words, namespace=self._tenant(), local=True
            )
        return here

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
