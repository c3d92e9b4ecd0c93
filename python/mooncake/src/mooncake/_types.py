# SPDX-License-Identifier: Apache-2.0
"""Configuration, enumerations and descriptors of mooncake.store."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


class _Named(enum.IntEnum):
    """Named numbers; str() is the name, as in Mooncake."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class ObjectDataType(_Named):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class SoftPinAction(_Named):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ReplicaStatus(_Named):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(_Named):
    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(_Named):
    PENDING = 0
    PROCESSING = 1
    FAILED = 2
    SUCCESS = 3


@dataclasses.dataclass(frozen=True)
class QueryTaskResponse:
    """A copy or a move. Times are milliseconds since 1970."""

    id: tuple[int, int] = (0, 0)
    type: TaskType = TaskType.REPLICA_COPY
    status: TaskStatus = TaskStatus.PENDING
    created_at_ms_epoch: int = 0
    last_updated_at_ms_epoch: int = 0
    assigned_client: tuple[int, int] = (0, 0)  # the node id of the latest host that copied, and 0
    message: str = ""  # why the task failed


class _Checked:
    """A property of one type, as in pybind11: another type is a TypeError."""

    def __init__(self, kinds: Any, default: Any, check: Any = None) -> None:
        self._kinds, self._default, self._check = kinds, default, check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._slot = name, "_" + name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = getattr(instance, self._slot, self._default)
        return list(value) if isinstance(value, list) else value

    def __set__(self, instance: Any, value: Any) -> None:
        wrong = not isinstance(value, self._kinds) or (
            isinstance(value, bool) and bool not in _flat(self._kinds)
        )
        if not wrong and isinstance(value, list | tuple):
            value = list(value)
            wrong = any(not isinstance(one, str) for one in value)
        if not wrong and self._check is not None:
            wrong = not self._check(value)
        if wrong:
            raise TypeError(f"{type(instance).__name__}.{self._name}: incompatible value {value!r}")
        object.__setattr__(instance, self._slot, value)


def _flat(kinds: Any) -> tuple[Any, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _count(value: int) -> bool:
    return 0 <= value < 1 << 64


_NONE = type(None)


class ReplicateConfig:
    """Placement and pins of an object. On one host an object has one replica, in the pool."""

    __slots__ = (
        "_data_type",
        "_dfs_replica_num",
        "_group_ids",
        "_nof_replica_num",
        "_prefer_alloc_in_same_node",
        "_preferred_nof_segments",
        "_preferred_segment",
        "_preferred_segments",
        "_replica_num",
        "_soft_pin_action",
        "_soft_pin_ttl_ms",
        "_with_hard_pin",
    )
    replica_num = _Checked(int, 1, _count)
    nof_replica_num = _Checked(int, 0, _count)
    dfs_replica_num = _Checked(int, 0, _count)
    soft_pin_action = _Checked(SoftPinAction, SoftPinAction.PRESERVE)
    soft_pin_ttl_ms = _Checked((int, _NONE), None, lambda value: value is None or _count(value))
    with_hard_pin = _Checked(bool, False)
    preferred_segments = _Checked((list, tuple), [])
    preferred_segment = _Checked(str, "")
    preferred_nof_segments = _Checked((list, tuple), [])
    prefer_alloc_in_same_node = _Checked(bool, False)
    data_type = _Checked(ObjectDataType, ObjectDataType.UNKNOWN)
    group_ids = _Checked((list, tuple, _NONE), None)

    def __str__(self) -> str:
        def names(values: list[str]) -> str:
            return "[" + ", ".join(values) + "]"

        ttl = "default" if self.soft_pin_ttl_ms is None else self.soft_pin_ttl_ms
        return (
            f"ReplicateConfig: {{ replica_num: {self.replica_num}, "
            f"nof_replica_num: {self.nof_replica_num}, dfs_replica_num: {self.dfs_replica_num}, "
            f"soft_pin_action: {self.soft_pin_action.name}, soft_pin_ttl_ms: {ttl}, "
            f"with_hard_pin: {int(self.with_hard_pin)}, "
            f"preferred_segments: {names(self.preferred_segments)}, "
            f"preferred_nof_segments: {names(self.preferred_nof_segments)}, "
            f"prefer_alloc_in_same_node: {int(self.prefer_alloc_in_same_node)}, "
            f"data_type: {self.data_type.name} }}"
        )


class Descriptor:
    """The place of a replica. mc exposes no addresses: buffer_address is 0."""

    def __init__(self, size: int = 0, transport_endpoint: str = "") -> None:
        self.size = size
        self.buffer_address = 0
        self.transport_endpoint = transport_endpoint


class MemoryDescriptor:
    def __init__(self, buffer_descriptor: Descriptor) -> None:
        self.buffer_descriptor = buffer_descriptor


class DiskDescriptor:
    """Never created: such a replica would be on a filesystem that hosts share."""

    file_path = ""
    object_size = 0


class ReplicaDescriptor:
    """A replica in the pool of a host, or on a local disk of a host."""

    status = ReplicaStatus.COMPLETE

    def __init__(self, size: int, endpoint: str, on_disk: bool = False) -> None:
        self._memory = MemoryDescriptor(Descriptor(size, endpoint))
        self._on_disk = on_disk

    def is_memory_replica(self) -> bool:
        return not self._on_disk

    def is_disk_replica(self) -> bool:
        return False

    def is_local_disk_replica(self) -> bool:
        return self._on_disk

    def get_memory_descriptor(self) -> MemoryDescriptor:
        if self._on_disk:
            raise RuntimeError("this replica is on a local disk")
        return self._memory

    def get_disk_descriptor(self) -> DiskDescriptor:
        raise RuntimeError("this replica is on no shared filesystem")
