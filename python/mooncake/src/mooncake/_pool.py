# SPDX-License-Identifier: Apache-2.0
"""The pool of a store: this host's agent, or a pool inside this process.

All stores of a process, agent and tenant share one client. $MC_AGENT names the agent; setup() fails
if that agent does not answer. Without $MC_AGENT, the store uses the agent at the default socket.
Without an agent, the process embeds a pool of the first store's global_segment_size, until the last
store closes.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import mckv

logger = logging.getLogger("mooncake")

_Name = tuple[int, str, str]  # process, agent, tenant
_MIN_SEGMENT_BYTES = 16 << 20
_PATIENCE_S = 5.0


class Pool:
    """A shared client; close() is called once for each open_pool()."""

    def __init__(self, client: mckv.Client, name: _Name, embedded: bool) -> None:
        self.client = client
        self.embedded = embedded
        self._name = name
        self.tenant = name[2]
        self._users = 1

    def close(self) -> None:
        with _lock:
            self._users -= 1
            if self._users == 0:
                _pools.pop(self._name, None)
                self.client.close()


_lock = threading.Lock()
_pools: dict[_Name, Pool] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def default_socket() -> str:
    system = "/run/mc/agent.sock"
    return system if os.path.exists(system) else f"/dev/shm/mc-{os.geteuid()}/agent.sock"


def open_pool(tenant: str, segment_bytes: int, staging_bytes: int, label: str) -> Pool:
    """Raises mckv.McError."""
    # A forked child cannot use the parent's clients.
    name = (os.getpid(), os.environ.get("MC_AGENT") or "", tenant)
    with _lock:
        found = _pools.get(name)
        if found is not None:
            found._users += 1
            _grow(found, tenant, segment_bytes)
            return found
        pool = _open(name, tenant, segment_bytes, staging_bytes, label)
        _pools[name] = pool
        return pool


def _open(name: _Name, tenant: str, segment_bytes: int, staging_bytes: int, label: str) -> Pool:
    agent = os.environ.get("MC_AGENT") or None
    common: dict[str, Any] = {
        "namespace": tenant,
        "label": label,
        "timeout": _PATIENCE_S,
        "channel_count": 64,
    }
    staging = min(max(staging_bytes, 1 << 20), 4 << 30)
    if agent != "embedded" and (agent is not None or os.path.exists(default_socket())):
        try:
            pool = Pool(
                mckv.Client(agent, staging_bytes=staging, **common),
                name,
                False,
            )
        except mckv.AgentUnavailableError:
            if agent is not None:
                raise
        else:
            logger.info("mc: using this host's agent (%s)", agent or default_socket())
            _grow(pool, tenant, segment_bytes)
            return pool
    if segment_bytes <= 0:
        raise mckv.AgentUnavailableError(
            "no agent runs on this host and global_segment_size is 0: there is nothing to store in"
        )
    if tenant != "default":
        raise mckv.NoSuchNamespaceError(
            f"tenant {tenant!r}: an embedded pool has the tenant 'default' only; start an agent"
        )
    pool_bytes = max(segment_bytes, _MIN_SEGMENT_BYTES)
    logger.log(
        logging.INFO if agent == "embedded" else logging.WARNING,
        "mc: %s; embedding a pool of %d bytes that other processes do not see and that ends with "
        "this one",
        "MC_AGENT=embedded" if agent == "embedded" else "no agent runs on this host",
        pool_bytes,
    )
    client = mckv.Client(
        "embedded",
        staging_bytes=staging,
        config={"pool_bytes": pool_bytes},
        **common,
    )
    return Pool(client, name, True)


def _grow(pool: Pool, tenant: str, segment_bytes: int) -> None:
    """Mooncake's clients contribute memory; mc's pool grows to the largest requested size."""
    if segment_bytes <= 0:
        return
    try:
        segments = pool.client.ask({"verb": "segments"})["segments"]
        now = next(one["pool_bytes"] for one in segments if one["namespace"] == tenant)
        if now < segment_bytes:
            pool.client.ask({"verb": "resize", "namespace": tenant, "pool_bytes": segment_bytes})
    except (mckv.McError, StopIteration) as error:
        logger.warning("mc: the pool keeps its size; global_segment_size is ignored: %s", error)
