# SPDX-License-Identifier: Apache-2.0
"""Managed buffers of a transfer engine: powers of two, cut from one address range.

The range is a memory file of fixed size, so engines of other processes can map the file.
"""

import ctypes
import fcntl
import mmap
import os
import threading

_SIZE = 1 << 30  # address space; the first access takes a page
_SMALLEST = 4096


class ManagedBuffers:
    def __init__(self) -> None:
        file = os.memfd_create("mc-managed-buffers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(file, _SIZE)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._memory = mmap.mmap(file, _SIZE)  # keeps a duplicate of the descriptor
        finally:
            os.close(file)
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
        """The address; 0 without room."""
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
        """0; -1 for an unknown buffer."""
        with self._lock:
            size = self._lent.pop(address, 0)
            if size == 0:
                return -1
            self._free.setdefault(size, []).append(address)
            return 0
