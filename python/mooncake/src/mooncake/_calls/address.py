# SPDX-License-Identifier: Apache-2.0
"""Calls with addresses: registered buffers, scatter and gather, session memory."""

from __future__ import annotations

import mckv

from mooncake import _codes
from mooncake._arguments import address_of
from mooncake._base import DEFAULT, StoreBase
from mooncake._codes import CODE
from mooncake._types import ReplicateConfig


class AddressCalls(StoreBase):
    """Mixed into MooncakeDistributedStore."""

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """0; -600 if the buffer overlaps a registered buffer or is not mapped."""
        good = self._ranges.add(address_of(buffer_ptr), address_of(size))
        return _codes.OK if good else _codes.INVALID_PARAMS

    def unregister_buffer(self, buffer_ptr: int) -> int:
        good = self._ranges.remove(address_of(buffer_ptr))
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
        """For each buffer and key the size of each range, or a code; a miss is one code."""
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

    def alloc_from_mem_pool(self, size: int, /) -> int:
        """Address of memory shared with the agent, valid until close(); 0: no memory."""
        try:
            buffer = self._client.alloc(address_of(size))
        except mckv.McError:
            return 0
        self._allocated[buffer.address] = buffer
        return buffer.address
