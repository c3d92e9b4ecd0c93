# SPDX-License-Identifier: Apache-2.0
"""Buffers that a transfer engine lends: powers of two, cut from one stretch of address space."""

import ctypes
import mmap
import threading

_SIZE = 1 << 30  # address space; pages are taken when they are touched
_SMALLEST = 4096


class ManagedBuffers:
    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._memory = mmap.mmap(-1, _SIZE, flags)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.size = _SIZE
        self._lock = threading.Lock()
        self._used = 0
        self._free: dict[int, list[int]] = {}  # by size
        self._lent: dict[int, int] = {}  # address: size

    @staticmethod
    def _rounded(length: int) -> int:
        return max(_SMALLEST, 1 << (length - 1).bit_length()) if length > 0 else _SMALLEST

    def allocate(self, length: int) -> int:
        """The address; 0 if there is no room."""
        size = self._rounded(length)
        with self._lock:
            if free := self._free.get(size):
                address = free.pop()
            elif self._used + size <= self.size:
                address = self.address + self._used
                self._used += size
            else:
                return 0
            self._lent[address] = size
            return address

    def free(self, address: int, length: int) -> int:
        """0; -1 for what is not lent."""
        with self._lock:
            size = self._lent.pop(address, 0)
            if size == 0:
                return -1
            self._free.setdefault(size, []).append(address)
            return 0
