# SPDX-License-Identifier: Apache-2.0
"""mooncake.store over mckv: names, signatures, returns and codes as Mooncake's.

Addresses and sizes are plain ints. A call before setup() or after close() returns ILLEGAL_CLIENT
(-601), b"", None or 0; Mooncake would end the process. An unsupported method raises
NotImplementedError with the method's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mckv._native import BufferHandle

from mooncake._calls.address import AddressCalls
from mooncake._calls.life import LifeCalls
from mooncake._calls.parallel import ParallelCalls
from mooncake._calls.placement import PlacementCalls
from mooncake._calls.segment import SegmentCalls
from mooncake._calls.session import SessionCalls
from mooncake._memory import MooncakeHostMemAllocator, bind_to_numa_node
from mooncake._parallelism import ParallelAxis, ReadTarget, TensorParallelism
from mooncake._types import (
    Descriptor,
    DiskDescriptor,
    MemoryDescriptor,
    ObjectDataType,
    QueryTaskResponse,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
)
from mooncake.buffer_pool import BufferLease, BufferPool, RegisteredBufferPool

__all__ = [
    "BufferHandle",
    "BufferLease",
    "BufferPool",
    "Descriptor",
    "DiskDescriptor",
    "MemoryDescriptor",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "QueryTaskResponse",
    "ReadTarget",
    "RegisteredBufferPool",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "bind_to_numa_node",
]


class MooncakeDistributedStore(
    LifeCalls, AddressCalls, SessionCalls, PlacementCalls, SegmentCalls, ParallelCalls
):
    """A client of the pool, with Mooncake's methods."""


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
    "mount_segment unmount_segment".split(),
    "the pool's memory is the agent's; allocate_and_mount_segment() makes it larger",
)
_add_missing(
    ["get_tensor_into_cuda", "batch_get_tensor_into_cuda"], "mc reaches host memory only today"
)


def _missing_class(name: str, why: str) -> type:
    def init(self: object, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"mooncake.store.{name}: {why}")

    return type(name, (), {"__init__": init, "__doc__": f"Not there: {why}."})


# pybind11 also exports the names of an enumeration at module level.
for _names in (ObjectDataType, SoftPinAction, ReplicaStatus, TaskType, TaskStatus):
    for _name, _value in _names.__members__.items():
        if _names is not SoftPinAction:
            globals()[_name] = _value

EngramStore = _missing_class("EngramStore", "embedding tables are not there")
EngramStoreConfig = _missing_class("EngramStoreConfig", "embedding tables are not there")
MooncakeDistributedNoFRegister = _missing_class(
    "MooncakeDistributedNoFRegister", "NVMe-oF pools are not there"
)


def _tensor_metadata_size() -> int:
    return 304
