# SPDX-License-Identifier: Apache-2.0
"""mooncake.store over mckv: names, signatures, returns and codes as Mooncake's.

Addresses and sizes are plain ints. Calls on a store that was not set up, or was closed, answer
ILLEGAL_CLIENT (-601), b"", None or 0 instead of ending the process. What mc lacks raises
NotImplementedError with the method's name.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, cast

import mckv
from mckv._native import AddressRanges, BufferHandle

from mooncake import _codes, _pool
from mooncake._codes import CODE
from mooncake._memory import MooncakeHostMemAllocator, bind_to_numa_node
from mooncake._tensor_calls import TensorCalls
from mooncake._types import (
    Descriptor,
    DiskDescriptor,
    MemoryDescriptor,
    ObjectDataType,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
)

__all__ = [
    "BufferHandle",
    "Descriptor",
    "DiskDescriptor",
    "MemoryDescriptor",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "bind_to_numa_node",
]

logger = logging.getLogger("mooncake")

_DEFAULT_SOFT_PIN_S = 1800.0
_MAX_SOFT_PIN_MS = 86_400_000
_DICT_SIZE = 16 << 20
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20}
_SIZES |= {"g": 1 << 30, "gb": 1 << 30, "t": 1 << 40, "tb": 1 << 40}
_warned: set[str] = set()
_DEFAULT = ReplicateConfig()  # of every put without a config; nobody else has it


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        logger.warning("mc: %s", text)


def _size(value: Any) -> int:
    """512, "512", "512MB". Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(value)
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(value))
    if match is None or match[2].lower() not in _SIZES:
        raise ValueError(value)
    return int(float(match[1]) * _SIZES[match[2].lower()])


def _key(key: Any) -> str | bytes:
    if not isinstance(key, str | bytes):
        raise TypeError(f"incompatible function arguments: a key is str, not {type(key).__name__}")
    return key


def _keys(keys: Any) -> list[Any]:
    if isinstance(keys, str | bytes):
        raise TypeError("incompatible function arguments: keys is a list of str")
    made = list(keys)
    for one in made:
        _key(one)
    return made


def _bad(key: str | bytes) -> int:
    """0 for a key that mc can hold."""
    length = len(key) if isinstance(key, bytes) else len(key.encode())
    return 0 if 0 < length <= 1024 else _codes.INVALID_KEY if length else _codes.INVALID_PARAMS


def _address(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise TypeError(f"incompatible function arguments: {value!r} is no address or size")
    return value


class MooncakeDistributedStore(TensorCalls):
    """A client of the pool, with Mooncake's methods."""

    def __init__(self) -> None:
        self._pool: _pool.Pool | None = None
        self._ranges = AddressRanges()
        self._hostname = ""
        self._get_sessions: dict[Any, Any] = {}
        self._put_sessions: dict[Any, tuple[mckv.Reservation, dict[str, Any]]] = {}
        self._allocated: dict[int, mckv.SessionBuffer] = {}
        self._lock = threading.Lock()

    # ---- Life ----------------------------------------------------------------------------------

    def setup(self, *args: Any, **kwargs: Any) -> int:
        """setup(config: dict) or setup(local_hostname, metadata_server, ...); 0, or a code."""
        if not kwargs and len(args) == 1 and isinstance(args[0], dict):
            return self._setup_dict(args[0])
        if not args and set(kwargs) == {"config"} and isinstance(kwargs["config"], dict):
            return self._setup_dict(kwargs["config"])
        return self._setup_arguments(*args, **kwargs)

    def _setup_arguments(
        self,
        local_hostname: str,
        metadata_server: str,
        global_segment_size: int,
        local_buffer_size: int,
        protocol: str,
        rdma_devices: str,
        master_server_addr: str,
        engine: Any = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        enable_client_http_server: bool = False,
        client_http_port: int = 9300,
    ) -> int:
        for value in (global_segment_size, local_buffer_size, client_http_port):
            _address(value)
        for text in (local_hostname, metadata_server, protocol, rdma_devices, master_server_addr):
            if not isinstance(text, str):
                raise TypeError(f"setup(): incompatible function arguments: {text!r} is no str")
        if enable_ssd_offload:
            logger.error("mc: enable_ssd_offload: mc has no disk tier yet; setup refused")
            return _codes.NOT_SUPPORTED
        if enable_client_http_server:
            logger.error("mc: enable_client_http_server: not there yet; see mcctl status")
            return _codes.NOT_SUPPORTED
        if protocol.lower() not in ("tcp", ""):
            _warn_once(f"protocol {protocol!r} means nothing on one host: memory is shared")
        if self._pool is not None:
            return _codes.OK
        try:
            self._pool = _pool.open_pool(
                tenant_id or "default", global_segment_size, local_buffer_size, local_hostname[:60]
            )
        except mckv.McError as error:
            logger.error("mc: setup: %s", error)
            return CODE[error.status]
        port = 12300 + os.getpid() % 2000
        self._hostname = local_hostname if ":" in local_hostname else f"{local_hostname}:{port}"
        return _codes.OK

    def _setup_dict(self, config: dict[str, Any]) -> int:
        known: dict[str, Any] = {
            name: str(config[name])
            for name in ("local_hostname", "metadata_server", "ssd_offload_path", "tenant_id")
            if name in config
        }
        if not known.get("local_hostname") or not known.get("metadata_server"):
            logger.error("mc: setup: local_hostname and metadata_server are required")
            return _codes.INVALID_PARAMS
        try:
            segment = _size(config.get("global_segment_size", _DICT_SIZE))
            buffer = _size(config.get("local_buffer_size", _DICT_SIZE))
            port = int(config.get("client_http_port", 9300))
            switches: dict[str, Any] = {
                name: _switch(config[name])
                for name in ("enable_ssd_offload", "enable_client_http_server")
                if name in config
            }
        except (ValueError, TypeError) as error:
            logger.error("mc: setup: not a size, number or switch: %s", error)
            return _codes.INVALID_PARAMS
        master = config.get("master_server_addr", config.get("master_server_address", ""))
        return self._setup_arguments(
            **known,
            **switches,
            global_segment_size=segment,
            local_buffer_size=buffer,
            protocol=str(config.get("protocol", "tcp")),
            rdma_devices=str(config.get("rdma_devices", config.get("device_name", ""))),
            master_server_addr=str(master),
            client_http_port=port,
        )

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """The pool is in another process: the agent. Without one, RPC_FAIL (-900)."""
        host = server_address.rpartition(":")[0] or "127.0.0.1"
        _address(mem_pool_size)
        return self._setup_arguments(
            host, "P2PHANDSHAKE", 0, max(_address(local_buffer_size), mem_pool_size), "tcp", "", ""
        )

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int = 16 << 20) -> int:
        return self._setup_arguments(
            "localhost", "P2PHANDSHAKE", mount_segment_size, _DICT_SIZE, protocol, device_name, ""
        )

    def close(self) -> int:
        with self._lock:
            pool, self._pool = self._pool, None
            self._get_sessions.clear()
            self._put_sessions.clear()
            self._allocated.clear()
        if pool is not None:
            pool.close()
        return _codes.OK

    def health_check(self) -> int:
        """0 healthy, 1 not set up or closed, 2 the agent does not answer."""
        if self._pool is None:
            return 1
        try:
            self._pool.client.ping(timeout=2)
        except mckv.McError:
            return 2
        return 0

    def get_hostname(self) -> str:
        return self._hostname

    # ---- Ground of all calls -------------------------------------------------------------------

    @property
    def _client(self) -> mckv.Client:
        pool = self._pool
        if pool is None:
            raise mckv.ClosedError("this store was not set up, or was closed")
        return pool.client

    @staticmethod
    def _coded(call: Callable[[], int]) -> int:
        try:
            return call()
        except mckv.McError as error:
            return CODE[error.status]

    def _rules(self, config: ReplicateConfig, keys: int) -> dict[str, Any] | int:
        """The keywords of a put, or the code for a configuration that cannot be."""
        if config is _DEFAULT:
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
        if config.replica_num > 1:
            _warn_once("replica_num: one host keeps one replica")
        if groups is not None:
            _warn_once("group_ids: accepted as a hint; objects are evicted one by one")
        if config.with_hard_pin:
            return {"pin": mckv.Pin.HARD}
        if soft and ttl != 0:
            return {
                "pin": mckv.Pin.SOFT,
                "pin_ttl": _DEFAULT_SOFT_PIN_S if ttl is None else ttl / 1e3,
            }
        return {}

    def _put(self, key: Any, parts: Any, config: ReplicateConfig, upsert: bool) -> int:
        _key(key)
        rules = self._rules(config, 1)
        if isinstance(rules, int):
            return rules
        if bad := _bad(key):
            return bad

        def call() -> int:
            self._client.put(key, parts, upsert=upsert, **rules)
            return _codes.OK

        return self._coded(call)

    def _put_addresses(
        self, keys: Any, addresses: Any, sizes: Any, config: ReplicateConfig, upsert: bool
    ) -> list[int]:
        names = _keys(keys)
        rules = self._rules(config, len(names))
        if isinstance(rules, int):
            return [rules] * len(names)
        try:
            done = self._client.put_addresses(
                names, addresses, sizes, upsert=upsert, ranges=self._ranges, **rules
            )
        except mckv.McError as error:
            return [CODE[error.status]] * len(names)
        except OverflowError as error:
            raise TypeError(f"incompatible function arguments: {error}") from None
        return [CODE[one] for one in done]

    def _get_addresses(self, keys: Any, addresses: Any, sizes: Any) -> list[int]:
        names = _keys(keys)
        try:
            done = self._client.get_addresses(names, addresses, sizes, ranges=self._ranges)
        except mckv.McError as error:
            return [CODE[error.status]] * len(names)
        except OverflowError as error:
            raise TypeError(f"incompatible function arguments: {error}") from None
        return [one if one >= 0 else self._get_code(-one, names[i]) for i, one in enumerate(done)]

    @staticmethod
    def _get_code(status: int, key: Any) -> int:
        if status == mckv.Status.INVALID_ARGUMENT and _bad(key):
            return _codes.OBJECT_NOT_FOUND  # what no key can be stored under is not there
        return CODE[status]

    # ---- Bytes ---------------------------------------------------------------------------------

    def put(self, key: str, value: Any, config: ReplicateConfig = _DEFAULT) -> int:
        return self._put(key, _bytes_like(value), config, False)

    def upsert(self, key: str, value: Any, config: ReplicateConfig = _DEFAULT) -> int:
        return self._put(key, _bytes_like(value), config, True)

    def put_parts(self, key: str, *args: Any, config: ReplicateConfig = _DEFAULT) -> int:
        parts = [_bytes_like(one) for one in args]
        if not any(memoryview(one).nbytes for one in parts):
            _key(key)
            return _codes.OK  # as Mooncake: nothing is stored
        return self._put(key, parts, config, False)

    def upsert_parts(
        self,
        key: str,
        *args: Any,
        config: ReplicateConfig = _DEFAULT,
    ) -> int:
        parts = [_bytes_like(one) for one in args]
        if not any(memoryview(one).nbytes for one in parts):
            _key(key)
            return _codes.OK
        return self._put(key, parts, config, True)

    def _put_batch(self, keys: Any, values: Any, config: ReplicateConfig, upsert: bool) -> int:
        names, parts = _keys(keys), [_bytes_like(one) for one in values]
        rules = self._rules(config, len(names))
        if isinstance(rules, int):
            return rules
        if len(names) != len(parts) or not all(memoryview(one).nbytes for one in parts):
            return _codes.INVALID_PARAMS
        for name in names:
            if bad := _bad(name):
                return bad

        def call() -> int:
            done = self._client.put_batch(names, parts, upsert=upsert, **rules)
            return next((CODE[one] for one in done if one), _codes.OK)

        return self._coded(call)

    def put_batch(
        self,
        keys: list[str],
        values: list[Any],
        config: ReplicateConfig = _DEFAULT,
    ) -> int:
        return self._put_batch(keys, values, config, False)

    def upsert_batch(
        self,
        keys: list[str],
        values: list[Any],
        config: ReplicateConfig = _DEFAULT,
    ) -> int:
        return self._put_batch(keys, values, config, True)

    def get(self, key: str, /) -> bytes:
        """b"" for a miss."""
        _key(key)
        try:
            return cast(bytes, self._client.get(key, b""))
        except mckv.McError:
            return b""

    def get_batch(self, keys: list[str], /) -> list[bytes]:
        return [self.get(key) for key in _keys(keys)]

    def get_buffer(self, key: str, /) -> BufferHandle | None:
        """The object's bytes in the pool, read-only, pinned while the handle lives, or None."""
        _key(key)
        try:
            view = self._client.view(key, None)
            if view is not None and view.span_count != 1:
                view = view.tobytes()
        except mckv.BusyError:
            view = self.get(key) or None  # this thread holds 1,023 views: then a copy
        except mckv.McError:
            return None
        return None if view is None else BufferHandle(view)

    def batch_get_buffer(self, keys: list[str], /) -> list[BufferHandle | None]:
        return [self.get_buffer(key) for key in _keys(keys)]

    def get_size(self, key: str, /) -> int:
        _key(key)
        if _bad(key):
            return _codes.OBJECT_NOT_FOUND
        return self._coded(lambda: self._client.stat(key).length)

    # ---- Ask and remove ------------------------------------------------------------------------

    def is_exist(self, key: str, /) -> int:
        """1 or 0; 0 too when in doubt: callers take the answer for a truth value."""
        _key(key)
        try:
            return int(self._client.exists(key))
        except mckv.McError:
            return 0

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        names = _keys(keys)
        try:
            return [int(one) for one in self._client.exists_batch(names)]
        except mckv.InvalidArgumentError:
            return [self.is_exist(key) for key in names]
        except mckv.McError:
            return [0] * len(names)

    def remove(self, key: str, force: bool = False) -> int:
        """0 or -704. Nothing is leased here: readers hold views, which outlive the object."""
        return self.batch_remove([key], force)[0]

    def batch_remove(self, keys: list[str], force: bool = False) -> list[int]:
        names = _keys(keys)
        good = [key for key in names if not _bad(key)]
        try:
            done = dict(zip(good, self._client.remove_batch(good), strict=True))
        except mckv.McError as error:
            return [CODE[error.status]] * len(names)
        return [CODE[done.get(key, mckv.Status.NOT_FOUND)] for key in names]

    def _remove_where(self, wanted: Callable[[bytes], bool]) -> int:
        def call() -> int:
            client = self._client
            doomed = [key for key in client.keys(namespace=self._tenant()) if wanted(key)]
            return sum(one == mckv.Status.OK for one in client.remove_batch(doomed))

        return self._coded(call)

    def _tenant(self) -> str:
        return self._pool._name[1] if self._pool is not None else "default"

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """How many were removed. The pattern is Python's, searched for anywhere in the key."""
        try:
            pattern = re.compile(regex_pattern)
        except re.error as error:
            logger.error("mc: remove_by_regex(%r): %s", regex_pattern, error)
            return _codes.INVALID_PARAMS
        return self._remove_where(
            lambda key: pattern.search(key.decode("utf-8", "surrogateescape")) is not None
        )

    def remove_all(self, force: bool = False) -> int:
        """How many were removed, of this tenant."""
        return self._remove_where(lambda key: True)

    # ---- Zero copy -----------------------------------------------------------------------------

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """0; -600 if it overlaps one that is registered, or is no memory."""
        good = self._ranges.add(_address(buffer_ptr), _address(size))
        return _codes.OK if good else _codes.INVALID_PARAMS

    def unregister_buffer(self, buffer_ptr: int) -> int:
        good = self._ranges.remove(_address(buffer_ptr))
        return _codes.OK if good else _codes.INVALID_PARAMS

    def put_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        config: ReplicateConfig = _DEFAULT,
    ) -> int:
        if config is not _DEFAULT:
            return self._put_addresses([key], [buffer_ptr], [size], config, False)[0]
        try:
            done = self._client.put_addresses([key], [buffer_ptr], [size], ranges=self._ranges)
        except mckv.McError as error:
            return CODE[error.status]
        except OverflowError as error:
            raise TypeError(f"incompatible function arguments: {error}") from None
        return CODE[done[0]]

    def upsert_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        config: ReplicateConfig = _DEFAULT,
    ) -> int:
        return self._put_addresses([key], [buffer_ptr], [size], config, True)[0]

    def put_from_with_metadata(
        self,
        key: str,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: ReplicateConfig = _DEFAULT,
    ) -> int:
        """The metadata first, then the bytes, in one object."""
        places, sizes = [[metadata_buffer_ptr, buffer_ptr]], [[metadata_size, size]]
        return self._put_addresses([key], places, sizes, config, False)[0]

    def batch_put_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        config: ReplicateConfig = _DEFAULT,
    ) -> list[int]:
        return self._put_addresses(keys, buffer_ptrs, sizes, config, False)

    def batch_upsert_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        config: ReplicateConfig = _DEFAULT,
    ) -> list[int]:
        return self._put_addresses(keys, buffer_ptrs, sizes, config, True)

    def batch_put_from_multi_buffers(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        config: ReplicateConfig = _DEFAULT,
    ) -> list[int]:
        return self._put_addresses(keys, all_buffer_ptrs, all_sizes, config, False)

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """The object's size; -704 a miss, -600 a buffer that is too small or no memory."""
        try:
            done = self._client.get_address(key, buffer_ptr, size, self._ranges)
        except mckv.McError as error:
            return CODE[error.status]
        except OverflowError as error:
            raise TypeError(f"incompatible function arguments: {error}") from None
        return done if done >= 0 else self._get_code(-done, key)

    def batch_get_into(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        return self._get_addresses(keys, buffer_ptrs, sizes)

    def batch_get_into_multi_buffers(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> list[int]:
        return self._get_addresses(keys, all_buffer_ptrs, all_sizes)

    def get_into_ranges(
        self,
        buffer_ptrs: list[int],
        all_keys: list[list[str]],
        all_dst_offsets: list[list[list[int]]],
        all_src_offsets: list[list[list[int]]],
        all_sizes: list[list[list[int]]],
    ) -> list[list[list[int]]]:
        """For each buffer and key the bytes of each range, or a code; a miss is one code."""
        made: list[list[list[int]]] = []
        lists = (all_keys, all_dst_offsets, all_src_offsets, all_sizes)
        if any(len(one) != len(buffer_ptrs) for one in lists):
            return [[[_codes.INVALID_PARAMS]]]
        for base, keys, to, start, sizes in zip(buffer_ptrs, *lists, strict=True):
            row: list[list[int]] = []
            made.append(row)
            for i, key in enumerate(keys):
                view = self._view_or_code(key)
                if isinstance(view, int):
                    row.append([view])
                    continue
                row.append(
                    [
                        size
                        if view.copy_ranges([base + at], [size], [offset], self._ranges)
                        else _codes.INVALID_PARAMS
                        for at, offset, size in zip(to[i], start[i], sizes[i], strict=True)
                    ]
                )
        return made

    def _view_or_code(self, key: Any) -> Any:
        if _bad(_key(key)):
            return _codes.OBJECT_NOT_FOUND
        try:
            view = self._client.view(key, None)
        except mckv.McError as error:
            return CODE[error.status]
        return _codes.OBJECT_NOT_FOUND if view is None else view

    def alloc_from_mem_pool(self, size: int, /) -> int:
        """The address of memory shared with the agent, until close(); 0 if there is none."""
        try:
            buffer = self._client.alloc(_address(size))
        except mckv.McError:
            return 0
        self._allocated[buffer.address] = buffer
        return buffer.address

    # ---- Sessions ------------------------------------------------------------------------------

    def batch_get_session_start(self, keys: list[str]) -> list[int]:
        """0 or a code each; the objects found stay readable until the end of the session."""
        made = []
        for key in _keys(keys):
            view = self._view_or_code(key)
            if isinstance(view, int):
                made.append(view)
            else:
                self._get_sessions[key] = view
                made.append(_codes.OK)
        return made

    def batch_get_into_multi_buffer_ranges(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_src_offsets: list[list[int]],
    ) -> list[int]:
        """Bytes read of each key, or -600: no session, or a range beyond the end."""
        return self._ranged(
            keys, all_buffer_ptrs, all_sizes, all_src_offsets, self._get_session_copy
        )

    def _get_session_copy(self, key: Any) -> Any:
        view = self._get_sessions.get(key)
        return None if view is None else view.copy_ranges

    def _put_session_copy(self, key: Any) -> Any:
        session = self._put_sessions.get(key)
        return None if session is None else session[0].write_ranges

    def _ranged(self, keys: Any, ptrs: Any, sizes: Any, offsets: Any, session: Any) -> list[int]:
        names = _keys(keys)
        if not len(names) == len(ptrs) == len(sizes) == len(offsets):
            return [_codes.INVALID_PARAMS] * len(names)
        made = []
        for i, key in enumerate(names):
            copy = session(key)
            good = copy is not None
            try:
                good = good and copy(ptrs[i], sizes[i], offsets[i], self._ranges)
            except mckv.McError:
                good = False
            made.append(sum(sizes[i]) if good else _codes.INVALID_PARAMS)
        return made

    def batch_get_session_end(self, keys: list[str]) -> int:
        for key in _keys(keys):
            self._get_sessions.pop(key, None)
        return _codes.OK

    def batch_put_session_start(
        self,
        keys: list[str],
        sizes: list[int],
        config: ReplicateConfig = _DEFAULT,
    ) -> list[int]:
        """Room for each object; 0, or -705 for one that exists or is being written."""
        names = _keys(keys)
        rules = self._rules(config, len(names))
        if isinstance(rules, int) or len(names) != len(sizes):
            return [rules if isinstance(rules, int) else _codes.INVALID_PARAMS] * len(names)
        made = []
        for key, size in zip(names, sizes, strict=True):
            made.append(self._coded(lambda k=key, s=size: self._begin_put(k, s, rules)))  # type: ignore[misc]
        return made

    def _begin_put(self, key: Any, size: int, rules: dict[str, Any]) -> int:
        if bad := _bad(key):
            return bad
        if key in self._put_sessions or self._client.exists(key):
            return _codes.OBJECT_ALREADY_EXISTS
        self._put_sessions[key] = (self._client.reserve(_address(size)), rules)
        return _codes.OK

    def batch_put_from_multi_buffer_ranges(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_dst_offsets: list[list[int]],
    ) -> list[int]:
        """Bytes written of each key, or -600: no session, or a range beyond the end."""
        return self._ranged(
            keys, all_buffer_ptrs, all_sizes, all_dst_offsets, self._put_session_copy
        )

    def batch_put_session_end(self, keys: list[str]) -> list[int]:
        """Makes the objects readable."""
        made = []
        for key in _keys(keys):
            session = self._put_sessions.pop(key, None)
            if session is None:
                made.append(_codes.INVALID_PARAMS)
                continue
            reservation, rules = session

            def commit(k: Any = key, r: Any = reservation, options: Any = rules) -> int:
                r.commit(k, **options)
                return _codes.OK

            made.append(self._coded(commit))
        return made

    def batch_put_session_revoke(self, keys: list[str]) -> list[int]:
        made = []
        for key in _keys(keys):
            session = self._put_sessions.pop(key, None)
            if session is not None:
                session[0].abandon()
            made.append(_codes.INVALID_PARAMS if session is None else _codes.OK)
        return made

    # ---- Placement -----------------------------------------------------------------------------

    def get_replica_desc(self, key: str) -> list[ReplicaDescriptor]:
        size = self.get_size(key)
        return [] if size < 0 else [ReplicaDescriptor(size, self._hostname)]

    def batch_get_replica_desc(self, keys: list[str]) -> dict[str, list[ReplicaDescriptor]]:
        """Only of the keys that exist."""
        found = {key: self.get_replica_desc(key) for key in _keys(keys)}
        return {key: replicas for key, replicas in found.items() if replicas}

    def batch_replica_clear(self, keys: list[str], segment_name: str = "") -> list[str]:
        """The keys whose replica was dropped; with segment_name, only if it is this host's."""
        if segment_name and segment_name != self._hostname:
            return []
        names = _keys(keys)
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


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("", "0", "false", "no", "off"):
        return False
    raise ValueError(value)


def _bytes_like(value: Any) -> Any:
    try:
        memoryview(value)
    except TypeError:
        raise TypeError(
            f"incompatible function arguments: a value has bytes; {type(value).__name__} has none"
        ) from None
    return value


def _missing(name: str, why: str) -> Any:
    def method(self: MooncakeDistributedStore, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"MooncakeDistributedStore.{name}: {why}")

    method.__name__ = name
    method.__doc__ = f"Not there: {why}."
    return method


def _add_missing(names: Iterable[str], why: str) -> None:
    for name in names:
        setattr(MooncakeDistributedStore, name, _missing(name, why))


_add_missing(
    "mount_segment unmount_segment allocate_and_mount_segment unmount_and_free_segment".split(),
    "the agent owns the pool; resize it with `mcctl segment resize`",
)
_add_missing(["unmount_local_disk_segment"], "mc has no disk tier yet")
_add_missing(
    ["get_tensor_into_cuda", "batch_get_tensor_into_cuda"], "mc reaches host memory only today"
)
_add_missing(
    [
        f"{batch}{verb}_tensor_with_parallelism{ending}"
        for batch in ("", "batch_")
        for verb, ending in (
            ("put", ""),
            ("put", "_from"),
            ("upsert", ""),
            ("upsert", "_from"),
            ("get", ""),
            ("get", "_into"),
        )
    ],
    "use the *_with_tp forms; other kinds of parallelism are not there",
)


def _missing_class(name: str, why: str) -> type:
    def init(self: object, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"mooncake.store.{name}: {why}")

    return type(name, (), {"__init__": init, "__doc__": f"Not there: {why}."})


# pybind11 exports an enumeration's names beside it.
for _names in (ObjectDataType, SoftPinAction, ReplicaStatus, TaskType, TaskStatus):
    for _name, _value in _names.__members__.items():
        if _names is not SoftPinAction:
            globals()[_name] = _value

EngramStore = _missing_class("EngramStore", "embedding tables are not there")
EngramStoreConfig = _missing_class("EngramStoreConfig", "embedding tables are not there")
MooncakeDistributedNoFRegister = _missing_class(
    "MooncakeDistributedNoFRegister", "NVMe-oF pools are not there"
)
BufferPool = _missing_class("BufferPool", "allocate with numpy or torch, and register_buffer()")
RegisteredBufferPool = BufferPool
ParallelAxis = _missing_class("ParallelAxis", "use the *_with_tp forms")
TensorParallelism = _missing_class("TensorParallelism", "use the *_with_tp forms")
ReadTarget = _missing_class("ReadTarget", "use the *_with_tp forms")


def _tensor_metadata_size() -> int:
    return 304
