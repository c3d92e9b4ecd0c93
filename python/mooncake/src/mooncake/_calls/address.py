# SPDX-License-Identifier: Apache-2.0
"""Calls with addresses: registered buffers, scatter and gather, session memory."""

from __future__ import annotations

import operator

import mckv

from mooncake import _codes
from mooncake._arguments import address_of
from mooncake._calls.base import DEFAULT, StoreBase
from mooncake._codes import CODE
from mooncake._types import ReplicateConfig


class AddressCalls(StoreBase):
    """Mixed into MooncakeDistributedStore."""

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """0; -600 if the buffer overlaps a registered buffer or is not mapped."""
        good = self._register(address_of(buffer_ptr), address_of(size))
        return _codes.OK if good else _codes.INVALID_PARAMS

    def unregister_buffer(self, buffer_ptr: int) -> int:
        good = self._unregister(address_of(buffer_ptr))
        return _codes.OK if good else _codes.INVALID_PARAMS

    def put_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        config: ReplicateConfig = DEFAULT,
    ) -> int:
        if config is not DEFAULT:
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
        config: ReplicateConfig = DEFAULT,
    ) -> int:
        return self._put_addresses([key], [buffer_ptr], [size], config, True)[0]

    def put_from_with_metadata(
        self,
        key: str,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: ReplicateConfig = DEFAULT,
    ) -> int:
        """Stores metadata and bytes in one object, in this order."""
        places, sizes = [[metadata_buffer_ptr, buffer_ptr]], [[metadata_size, size]]
        return self._put_addresses([key], places, sizes, config, False)[0]

    def batch_put_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        config: ReplicateConfig = DEFAULT,
    ) -> list[int]:
        return self._put_addresses(keys, buffer_ptrs, sizes, config, False)

    def batch_upsert_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        config: ReplicateConfig = DEFAULT,
    ) -> list[int]:
        return self._put_addresses(keys, buffer_ptrs, sizes, config, True)

    def batch_put_from_multi_buffers(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        config: ReplicateConfig = DEFAULT,
    ) -> list[int]:
        return self._put_addresses(keys, all_buffer_ptrs, all_sizes, config, False)

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """The object's size; -704: miss; -600: buffer too small or not mapped."""
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
        """For each buffer, key and destination offset the size of the range, or a code.

        Lists of different lengths: -600 for the ranges of the key, of the buffer, or for all. -600
        for a range beyond the end of the object or of the registered buffer.
        """
        lists = (all_keys, all_dst_offsets, all_src_offsets, all_sizes)
        if any(len(one) != len(buffer_ptrs) for one in lists):
            return [[[_codes.INVALID_PARAMS]]]
        made: list[list[list[int]]] = []
        for base, keys, *groups in zip(buffer_ptrs, *lists, strict=True):
            if any(len(one) != len(keys) for one in groups):
                to = groups[0]
                made.append([[_codes.INVALID_PARAMS] * len(offsets) for offsets in to])
                continue
            base = operator.index(base)
            room = self._room_at(base)
            items = zip(keys, *groups, strict=True)
            made.append([self._ranges_into(base, room, *item) for item in items])
        return made

    def _room_at(self, address: int) -> int:
        """Bytes from the address to the end of its registered buffer. Other memory has no end."""
        if size := self._registered.get(address):
            return size
        ends = (
            at + size for at, size in list(self._registered.items()) if at <= address < at + size
        )
        return next(ends, 1 << 64) - address

    def _ranges_into(
        self, base: int, room: int, key: str, to: list[int], start: list[int], sizes: list[int]
    ) -> list[int]:
        if not len(to) == len(start) == len(sizes):
            return [_codes.INVALID_PARAMS] * len(to)
        view = self._view_or_code(key)
        if isinstance(view, int):
            return [view] * len(to)
        return [
            size
            if 0 <= at <= room - size
            and view.copy_ranges([base + at], [size], [offset], self._ranges)
            else _codes.INVALID_PARAMS
            for at, offset, size in zip(to, start, sizes, strict=True)
        ]

    def alloc_from_mem_pool(self, size: int, /) -> int:
        """Address of memory shared with the agent, valid until close(); 0: no memory."""
        try:
            buffer = self._client.alloc(address_of(size))
        except mckv.McError:
            return 0
        self._allocated[buffer.address] = buffer
        return buffer.address
