# SPDX-License-Identifier: Apache-2.0
"""BufferPool: buffers of a store, registered once and reused.

    pool = BufferPool(store)
    with pool.acquire(4096) as lease:
        store.get_into("key", lease.ptr, lease.size)

A region is session memory, which the agent also maps, up to the store's local_buffer_size; further
regions are anonymous memory of this process. Any thread may call. A lease ends with release(), or
with the last reference to the lease and its buffer; a region outlives its leases.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
import time
import weakref
from typing import Any

import mckv

from mooncake._arguments import address_of
from mooncake._calls.base import StoreBase

__all__ = ["BufferLease", "BufferPool", "RegisteredBufferPool"]


class _Region:
    """Registered memory of one size class. memory: keeps the region mapped."""

    def __init__(self, store: StoreBase, size: int) -> None:
        self.size = size
        self.memory: Any
        try:
            self.memory = store._client.alloc(size)
            self.address = self.memory.address
        except mckv.ClosedError:
            raise RuntimeError("MooncakeDistributedStore is not initialized") from None
        except mckv.McError:  # session memory is exhausted, or smaller than the region
            self.memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self.memory))
        self._store = store
        if not store._register(self.address, size):
            raise RuntimeError(f"a buffer of {size} bytes cannot be registered")

    def free(self) -> None:
        self._store._unregister(self.address)


class BufferLease:
    """A part of a region, of the requested size. BufferPool.acquire() creates leases."""

    def __init__(self, pool: BufferPool, region: _Region, size: int) -> None:
        self._size = size
        self._array: Any = (ctypes.c_ubyte * size).from_address(region.address)
        # Every view of the buffer holds the array, so the array outlives all views.
        weakref.finalize(self._array, pool._take_back, region)

    @property
    def size(self) -> int:
        return self._size

    @property
    def ptr(self) -> int:
        return ctypes.addressof(self._live())

    @property
    def buffer(self) -> memoryview:
        """Writable bytes."""
        return memoryview(self._live()).cast("B")

    def _live(self) -> Any:
        if self._array is None:
            raise RuntimeError("buffer lease is closed")
        return self._array

    def release(self) -> None:
        """Returns the buffer; a second call has no effect. Raises RuntimeError while views live."""
        # This object holds one reference, the argument another.
        if self._array is not None and sys.getrefcount(self._array) > 2:
            raise RuntimeError("cannot release buffer while exported views exist")
        self._array = None

    def __enter__(self) -> BufferLease:
        return self

    def __exit__(self, *args: object) -> None:
        self.release()


class BufferPool:
    """Buffers in powers of two from min_size_class up, kept for reuse.

    max_bytes: limit of all regions, 0: none. max_regions: limit of regions. max_size_class: a
    larger buffer gets a region of its own, which is freed with the buffer. At a limit acquire()
    waits for a release (block, timeout in seconds, None: no timeout) or raises RuntimeError.
    alignment has no effect: regions begin at pages or cache lines.
    """

    def __init__(
        self,
        store: Any,
        max_bytes: int = 0,
        min_size_class: int = 65536,
        max_size_class: int | None = None,
        alignment: int = 8 << 20,
        block_on_exhaustion: bool = True,
        default_timeout: float | None = None,
        max_regions: int | None = None,
        prewarm_size: int | None = None,
        prewarm_count: int = 0,
    ) -> None:
        if not isinstance(store, StoreBase):
            raise RuntimeError("BufferPool: store is a MooncakeDistributedStore")
        if address_of(min_size_class) == 0 or address_of(alignment) == 0:
            raise RuntimeError("min_size_class and alignment must be positive")
        if alignment & (alignment - 1) or alignment < 8:
            raise RuntimeError("alignment must be a power of two and at least sizeof(void*)")
        self._store = store
        self._max_bytes = address_of(max_bytes)
        self._smallest = 1 << (min_size_class - 1).bit_length()
        self._largest = self._rounded(address_of(max_size_class or 1 << 39))
        self._max_regions = max_regions or None
        self._block, self._timeout = block_on_exhaustion, default_timeout
        # Reentrant, because a finalizer may return a buffer while this thread holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._idle: dict[int, list[_Region]] = {}
        self._regions, self._bytes, self._lent = 0, 0, 0
        self._closed = False
        if prewarm_size and prewarm_count:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(
        self, size: int, block: bool | None = None, timeout: float | None = None
    ) -> BufferLease:
        """A buffer of size bytes. Raises RuntimeError: exhausted, closed, or too large."""
        wanted = self._class_of(address_of(size))
        wait = self._block if block is None else block
        limit = self._timeout if timeout is None else timeout
        if limit is not None and limit < 0:
            raise RuntimeError("timeout must be non-negative")
        deadline = None if limit is None else time.monotonic() + limit
        with self._changed:
            while True:
                region = self._find(wanted)
                if region is not None:
                    self._lent += 1
                    return BufferLease(self, region, size)
                left = None if deadline is None else deadline - time.monotonic()
                if not wait or (left is not None and left <= 0):
                    raise RuntimeError(
                        f"buffer pool is exhausted: {self._lent} leases of {self._bytes} bytes"
                    )
                self._changed.wait(left)

    buffer = acquire

    def prewarm(self, size: int, count: int) -> None:
        """Creates regions for count buffers of this size, within the limits."""
        wanted = self._class_of(address_of(size))
        with self._changed:
            while len(self._idle.get(wanted, ())) < count and self._has_room(wanted):
                self._idle.setdefault(wanted, []).append(self._make(wanted))

    def close(self) -> None:
        """Frees all regions; a second call has no effect. Raises RuntimeError while leases live."""
        with self._changed:
            if self._lent:
                raise RuntimeError("cannot close buffer pool with active leases")
            self._closed = True
            self._free_idle()

    def _class_of(self, size: int) -> int:
        if self._closed:
            raise RuntimeError("buffer pool is closed")
        if self._is_single(size):
            wanted = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        else:
            wanted = self._rounded(size)
        if (self._max_bytes and wanted > self._max_bytes) or wanted > 1 << 39:
            raise RuntimeError("requested buffer size exceeds pool capacity")
        return wanted

    def _rounded(self, size: int) -> int:
        return max(self._smallest, 1 << max(size - 1, 0).bit_length())

    def _is_single(self, size: int) -> bool:
        """True for a buffer, or the region of a buffer, beyond the largest class."""
        return size > self._largest

    def _has_room(self, size: int) -> bool:
        return not (self._max_bytes and self._bytes + size > self._max_bytes) and (
            self._max_regions is None or self._regions < self._max_regions
        )

    def _make(self, size: int) -> _Region:
        region = _Region(self._store, size)
        self._regions, self._bytes = self._regions + 1, self._bytes + size
        return region

    def _find(self, size: int) -> _Region | None:
        if self._closed:
            raise RuntimeError("buffer pool is closed")
        idle = self._idle.get(size)
        if idle:
            return idle.pop()
        if not self._has_room(size):
            self._free_idle()  # regions of other sizes
        return self._make(size) if self._has_room(size) else None

    def _free_idle(self) -> None:
        for regions in self._idle.values():
            for region in regions:
                self._free(region)
        self._idle.clear()

    def _free(self, region: _Region) -> None:
        region.free()
        self._regions, self._bytes = self._regions - 1, self._bytes - region.size

    def _take_back(self, region: _Region) -> None:
        with self._changed:
            self._lent -= 1
            if self._is_single(region.size):
                self._free(region)
            else:
                self._idle.setdefault(region.size, []).append(region)
            self._changed.notify_all()


RegisteredBufferPool = BufferPool
