# SPDX-License-Identifier: Apache-2.0
"""The base of all store calls: the pool, the store's state, and error codes.

Addresses and sizes are plain ints. A call before setup() or after close() returns ILLEGAL_CLIENT
(-601), b"", None or 0; Mooncake would end the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import mckv
from mckv._native import AddressRanges

from mooncake import _codes, _pool
from mooncake._arguments import bad_key, key_of, keys_of
from mooncake._calls.key_order import KeyOrder
from mooncake._client_http import ClientServer
from mooncake._codes import CODE
from mooncake._types import ReplicateConfig, SoftPinAction

logger = logging.getLogger("mooncake")

_DEFAULT_SOFT_PIN_S = 1800.0
_MAX_SOFT_PIN_MS = 86_400_000
_MAX_REPLICAS = 8  # of mc.h
DEFAULT = ReplicateConfig()  # the config of every put without a config; private
_warned: set[str] = set()


def warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        logger.warning("mc: %s", text)


class StoreBase:
    """The state of a store, and the basic calls."""

    def __init__(self) -> None:
        self._pool: _pool.Pool | None = None
        self._lender = object()  # this store among the stores of the pool
        self._has_buffer = True  # false with local_buffer_size 0
        self._ranges = AddressRanges()
        self._order = KeyOrder()
        self._registered: dict[int, int] = {}  # sizes of the registered buffers, by address
        self._hostname = ""
        self._get_sessions: dict[Any, Any] = {}
        self._put_sessions: dict[Any, tuple[mckv.Reservation, dict[str, Any]]] = {}
        self._allocated: dict[int, mckv.SessionBuffer] = {}
        self._segments: dict[str, int] = {}  # bytes that this store added to the pool
        self._http: ClientServer | None = None
        self._lock = threading.Lock()

    @property
    def _client(self) -> mckv.Client:
        pool = self._pool
        if pool is None:
            raise mckv.ClosedError("this store was not set up, or was closed")
        return pool.client

    def _register(self, address: int, size: int) -> bool:
        good = self._ranges.add(address, size)
        if good:
            self._registered[address] = size
        return good

    def _unregister(self, address: int) -> bool:
        self._registered.pop(address, None)
        return self._ranges.remove(address)

    @staticmethod
    def _coded(call: Callable[[], int]) -> int:
        try:
            return call()
        except mckv.McError as error:
            return CODE[error.status]

    def _rules(self, config: ReplicateConfig, keys: int) -> dict[str, Any] | int:
        """The keyword arguments of a put, or the code for an invalid configuration."""
        if config is DEFAULT:
            return {}
        if not isinstance(config, ReplicateConfig):
            raise TypeError("incompatible function arguments: config is a ReplicateConfig")
        if config.dfs_replica_num:
            return _codes.DFS_SERVICE_UNAVAILABLE
        if config.replica_num == 0 or config.nof_replica_num:
            return _codes.INVALID_PARAMS
        groups, ttl = config.group_ids, config.soft_pin_ttl_ms
        if groups is not None and len(groups) != keys:
            return _codes.INVALID_PARAMS
        soft = config.soft_pin_action == SoftPinAction.ENABLE
        if ttl is not None and (not soft or ttl > _MAX_SOFT_PIN_MS):
            return _codes.INVALID_PARAMS
        rules: dict[str, Any] = {}
        if host := self._preferred_host(config):
            rules["host"] = host
        if config.replica_num > 1:
            rules["replicas"] = min(config.replica_num, _MAX_REPLICAS)
        if groups is not None:
            warn_once("group_ids: accepted as a hint; objects are evicted one by one")
        if config.with_hard_pin:
            rules["pin"] = mckv.Pin.HARD
        elif soft and ttl != 0:
            rules["pin"] = mckv.Pin.SOFT
            rules["pin_ttl"] = _DEFAULT_SOFT_PIN_S if ttl is None else ttl / 1e3
        return rules

    def _node_of(self, segment: str) -> int | None:
        """The node id of the host with this segment; None: no host of the cluster has it."""
        if self._pool is None:
            return None
        if segment == self._hostname:
            return int(self._client.info()["node_id"])
        return self._pool.node_of(segment)

    def _preferred_host(self, config: ReplicateConfig) -> int:
        """Node id of the first preferred segment that a host has; 0: no host has one."""
        one = config.preferred_segment
        for name in [one] if one else config.preferred_segments:
            if (node := self._node_of(name)) is not None:
                return node
        return 0

    @staticmethod
    def _refuse_bytes() -> int:
        """As Mooncake, whose puts copy through the local buffer."""
        warn_once(
            "local_buffer_size is 0: only puts from addresses are possible; set it to put bytes"
        )
        return _codes.INVALID_PARAMS

    def _put(self, key: Any, parts: Any, config: ReplicateConfig, upsert: bool) -> int:
        key_of(key)
        if not self._has_buffer:
            return self._refuse_bytes()
        rules = self._rules(config, 1)
        if isinstance(rules, int):
            return rules
        if bad := bad_key(key):
            return bad

        def call() -> int:
            self._client.put(key, parts, upsert=upsert, **rules)
            return _codes.OK

        return self._coded(call)

    def _put_addresses(
        self, keys: Any, addresses: Any, sizes: Any, config: ReplicateConfig, upsert: bool
    ) -> list[int]:
        names = keys_of(keys)
        rules = self._rules(config, len(names))
        if isinstance(rules, int):
            return [rules] * len(names)
        try:
            done = self._client.put_addresses(
                names,
                addresses,
                sizes,
                parents=self._order.parents(names),
                upsert=upsert,
                ranges=self._ranges,
                **rules,
            )
        except mckv.McError as error:
            return [CODE[error.status]] * len(names)
        except OverflowError as error:
            raise TypeError(f"incompatible function arguments: {error}") from None
        return [CODE[one] for one in done]

    def _get_addresses(self, keys: Any, addresses: Any, sizes: Any) -> list[int]:
        names = keys_of(keys)
        self._order.note(names)
        try:
            done = self._client.get_addresses(names, addresses, sizes, ranges=self._ranges)
        except mckv.McError as error:
            return [CODE[error.status]] * len(names)
        except OverflowError as error:
            raise TypeError(f"incompatible function arguments: {error}") from None
        return [one if one >= 0 else self._get_code(-one, names[i]) for i, one in enumerate(done)]

    @staticmethod
    def _get_code(status: int, key: Any) -> int:
        if status == mckv.Status.INVALID_ARGUMENT and bad_key(key):
            return _codes.OBJECT_NOT_FOUND  # no object can have an invalid key
        return CODE[status]

    def _view_or_code(self, key: Any) -> Any:
        if bad_key(key_of(key)):
            return _codes.OBJECT_NOT_FOUND
        try:
            view = self._client.view(key, None)
        except mckv.McError as error:
            return CODE[error.status]
        return _codes.OBJECT_NOT_FOUND if view is None else view

    def _tenant(self) -> str:
        return self._pool.tenant if self._pool is not None else "default"
