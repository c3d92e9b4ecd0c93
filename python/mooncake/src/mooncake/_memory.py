# SPDX-License-Identifier: Apache-2.0
"""Host memory for engines that allocate through Mooncake."""

import ctypes
import logging
import mmap
import os
import threading

logger = logging.getLogger("mooncake")


class MooncakeHostMemAllocator:
    """Page-aligned memory of this process, by address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._maps: dict[int, mmap.mmap] = {}

    def alloc(self, size: int, /) -> int:
        """The address; 0 without memory."""
        try:
            memory = mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            logger.error("mc: alloc(%r): %s", size, error)
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        with self._lock:
            self._maps[address] = memory
        return address

    def free(self, address: int, /) -> int:
        """0; -600 for an address that was not allocated here."""
        with self._lock:
            memory = self._maps.pop(address, None)
        if memory is None:
            return -600
        memory.close()
        return 0


def bind_to_numa_node(node: int) -> None:
    """Binds this thread to the processors of a NUMA node, on hosts with several nodes."""
    if (
        node < 0
        or os.path.exists(f"/sys/devices/system/node/node{node + 1}") is False
        and node == 0
    ):
        return
    try:
        with open(f"/sys/devices/system/node/node{node}/cpulist") as file:
            parts = [part.split("-") for part in file.read().strip().split(",") if part]
        os.sched_setaffinity(0, {n for p in parts for n in range(int(p[0]), int(p[-1]) + 1)})
    except OSError as error:
        logger.warning("mc: bind_to_numa_node(%d): %s", node, error)
