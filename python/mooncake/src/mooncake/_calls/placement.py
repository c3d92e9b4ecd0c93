# SPDX-License-Identifier: Apache-2.0
"""Replicas: their places, and tasks that copy and move objects."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import mckv

from mooncake import _codes
from mooncake._arguments import bad_key, key_of, keys_of
from mooncake._calls.byte import ByteCalls
from mooncake._codes import CODE
from mooncake._types import QueryTaskResponse, ReplicaDescriptor, TaskStatus, TaskType

logger = logging.getLogger("mooncake")

_TaskId = tuple[int, int]
_NO_TASK: _TaskId = (0, 0)
_STATUS = {
    "pending": TaskStatus.PENDING,
    "running": TaskStatus.PROCESSING,
    "failed": TaskStatus.FAILED,
    "done": TaskStatus.SUCCESS,
}
_KEYS_PER_REMOVAL = 16  # of at most 1,024 bytes each
_TASKS = 64  # at once
_TASK_S = 5.0
_LOOK_S = 0.01


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
            replicas = self._client.replicas(names, namespace=self._tenant())
        except mckv.UnsupportedError:  # no cluster
            replicas = [[] for _ in names]
        except mckv.McError as error:
            logger.error("mc: the replicas are not known: %s", error)
            return {}
        return {
            key: [ReplicaDescriptor(stat.length, one.address, one.tier == "disk") for one in held]
            or [ReplicaDescriptor(stat.length, self._hostname)]
            for key, stat, held in zip(names, stats, replicas, strict=True)
            if stat is not None
        }

    def batch_replica_clear(self, keys: list[str], segment_name: str = "") -> list[str]:
        """The keys whose replicas were dropped: all of them, or those of a segment.

        A host holds one copy for the segments of all its stores. While another store of this
        process has a segment, the copy stays, and its key counts as cleared. An object without
        another copy is removed.
        """
        names = keys_of(keys)
        if not segment_name:
            return [k for k, code in zip(names, self.batch_remove(names), strict=True) if code == 0]
        node = self._node_of(segment_name)
        if node is None or self._pool is None:
            return []
        found = [
            key for key, has in zip(names, self.batch_is_exist(names), strict=True) if has == 1
        ]
        if segment_name == self._hostname and self._pool.has_other_segments(self._lender):
            return found
        try:
            if node == self._node_of(self._hostname):
                return self._clear_here(found)
            return self._clear_there(node, found)
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

    def _clear_there(self, node: int, keys: list[str]) -> list[str]:
        """As _clear_here(), of another host. A move ends with the drop of the source's copy."""
        nodes = self._client.ask({"verb": "nodes"})["nodes"]
        address = next((one["address"] for one in nodes if int(one["node"]) == node), None)
        cleared, alone = [], []
        for first in range(0, len(keys), _TASKS):
            some = keys[first : first + _TASKS]
            tasks = {}
            holders = self._client.holders(some, namespace=self._tenant())
            for key, held in zip(some, holders, strict=True):
                if held == [address]:
                    alone.append(key)
                elif address in held:
                    target = next(one for one in held if one != address)
                    tasks[key] = self._client.move(key, node, target, namespace=self._tenant())
            cleared += [key for key, task in tasks.items() if self._succeeds(task)]
        done = self._client.remove_batch(alone)
        return cleared + [k for k, one in zip(alone, done, strict=True) if one == mckv.Status.OK]

    def _succeeds(self, task: _TaskId) -> bool:
        """Waits for the end of a task, in which a host has nothing to copy."""
        deadline = time.monotonic() + _TASK_S
        while (state := self._client.task(task).state) in ("pending", "running"):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)  # no event tells of a task of another host
        return state == "done"

    def create_copy_task(self, key: str, targets: list[str]) -> tuple[_TaskId, int]:
        """The task that copies the object to these segments, and 0; or a code.

        Codes: -704; -600 for no, too many (over 8) or unknown segments; -1010 if a target takes no
        objects now; -1012 for an object in stripes.
        """
        hosts = [self._node_of(name) for name in targets]
        return self._begin_task(
            key, hosts, lambda nodes: self._client.copy(key, nodes, namespace=self._tenant())
        )

    def create_move_task(self, key: str, source: str, target: str) -> tuple[_TaskId, int]:
        """As create_copy_task(); -600 also if the source does not hold the object."""
        hosts = [self._node_of(source), self._node_of(target)]
        return self._begin_task(
            key, hosts, lambda nodes: self._client.move(key, *nodes, namespace=self._tenant())
        )

    def _begin_task(
        self, key: str, hosts: list[int | None], begin: Callable[[list[int]], _TaskId]
    ) -> tuple[_TaskId, int]:
        key_of(key)
        nodes = [node for node in hosts if node is not None]
        try:
            if bad_key(key) or not self._client.exists(key):
                return _NO_TASK, _codes.OBJECT_NOT_FOUND
            if len(nodes) < len(hosts):
                logger.error("mc: no host of the cluster has a segment that the task names")
                return _NO_TASK, _codes.INVALID_PARAMS
            return begin(nodes), _codes.OK
        except mckv.McError as error:
            logger.error("mc: a copy or move of %r: %s", key, error)
            return _NO_TASK, CODE[error.status]

    def query_task(self, task_id: _TaskId) -> tuple[QueryTaskResponse | None, int]:
        """The task and 0; -1400 for a task that no master knows."""
        try:
            task = self._client.task(task_id)
        except (mckv.NotFoundError, mckv.UnsupportedError):  # or no cluster
            return None, _codes.TASK_NOT_FOUND
        except mckv.McError as error:
            logger.error("mc: query_task: %s", error)
            return None, CODE[error.status]
        return QueryTaskResponse(
            task.id,
            TaskType.REPLICA_MOVE if task.type == "move" else TaskType.REPLICA_COPY,
            _STATUS[task.state],
            round(task.begun * 1000),
            round(task.changed * 1000),
            (task.node, 0),
            task.message,
        ), _codes.OK

    def get_offload_rpc_read_count(self) -> int:
        """The objects that this host's agent has read from its disks, for all hosts."""
        try:
            return int(self._client.ask({"verb": "status"}).get("tier", {}).get("read", 0))
        except mckv.McError:
            return 0
