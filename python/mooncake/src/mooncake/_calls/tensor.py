# SPDX-License-Identifier: Apache-2.0
"""The tensor methods of MooncakeDistributedStore: torch tensors in host memory, no pickle."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from typing import Any

import mckv
from mckv import _tensors

from mooncake import _codes, _tensor_header
from mooncake._calls.byte import ByteCalls
from mooncake._parallelism import Axis
from mooncake._tensor_header import HEADER_BYTES, Stored
from mooncake._types import ReplicateConfig

logger = logging.getLogger("mooncake")


def over(address: int, stored: Stored) -> Any:
    """A tensor over the caller's memory."""
    import torch

    kind = getattr(torch, stored.dtype)
    if stored.data_bytes == 0:
        return torch.empty(stored.shape, dtype=kind)
    memory = (ctypes.c_ubyte * stored.data_bytes).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8).view(kind).reshape(stored.shape)


def _shards(tensor: Any, tp_size: int, split_dim: int) -> list[Any] | None:
    """Equal parts along split_dim; None if the size is not divisible."""
    if tp_size < 1 or not 0 <= split_dim < max(tensor.dim(), 1):
        return None
    if tp_size == 1:
        return [tensor]
    if tensor.dim() == 0 or tensor.shape[split_dim] % tp_size:
        return None
    return list(tensor.chunk(tp_size, split_dim))


def _shard_key(key: str, rank: int, tp_size: int) -> str:
    return key if tp_size == 1 else f"{key}_tp_{rank}"


class TensorCalls(ByteCalls):
    """Mixed into MooncakeDistributedStore."""

    # ---- One tensor ----------------------------------------------------------------------------

    def _put_tensor(
        self,
        key: str,
        tensor: Any,
        config: ReplicateConfig,
        upsert: bool,
        whole: tuple[int, ...] | None = None,
        axes: tuple[Axis, ...] = (),
    ) -> int:
        import torch

        if not isinstance(tensor, torch.Tensor):
            return _codes.INVALID_PARAMS
        try:
            header = _tensor_header.encode(tensor.dtype, tuple(tensor.shape), whole, axes)
        except ValueError as error:
            logger.error("mc: put_tensor(%r): %s cannot be stored", key, error)
            return _codes.INVALID_PARAMS
        data = _tensors.contiguous(tensor)  # raises NotImplementedError for devices other than CUDA
        parts = [header, data.reshape(-1).view(torch.uint8)] if data.numel() else [header]
        return self._put(key, parts, config, upsert)

    def put_tensor(self, key: str, tensor: Any) -> int:
        return self._put_tensor(key, tensor, ReplicateConfig(), False)

    def pub_tensor(self, key: str, tensor: Any, config: ReplicateConfig = ReplicateConfig()) -> int:  # noqa: B008
        return self._put_tensor(key, tensor, config, False)

    def upsert_tensor(self, key: str, tensor: Any) -> int:
        return self._put_tensor(key, tensor, ReplicateConfig(), True)

    def upsert_pub_tensor(
        self,
        key: str,
        tensor: Any,
        config: ReplicateConfig = ReplicateConfig(),  # noqa: B008
    ) -> int:
        return self._put_tensor(key, tensor, config, True)

    def _tensor_view(self, key: str) -> tuple[Any, Stored] | None:
        view = self._view_or_code(key)
        if isinstance(view, int):
            return None
        whole = view.spans()
        start = bytes(whole[0][:HEADER_BYTES])
        if len(start) < HEADER_BYTES and len(whole) > 1:
            start = view.tobytes()[:HEADER_BYTES]
        try:
            return view, _tensor_header.decode(start, len(view))
        except ValueError as error:
            logger.error("mc: get_tensor(%r): %s", key, error)
            return None

    def get_tensor(self, key: str) -> Any:
        """A copy of the tensor, or None."""
        import torch

        found = self._tensor_view(key)
        if found is None:
            return None
        view, stored = found
        tensor = torch.empty(stored.shape, dtype=getattr(torch, stored.dtype))
        if stored.data_bytes:
            view.copy_ranges([tensor.data_ptr()], [stored.data_bytes], [HEADER_BYTES])
        return tensor

    def get_tensor_into(self, key: str, buffer_ptr: int, size: int) -> Any:
        """Reads header and elements into the buffer; returns a tensor over the buffer, or None."""
        found = self._tensor_view(key)
        if found is None:
            return None
        view, stored = found
        if len(view) > size:
            logger.error("mc: get_tensor_into(%r): needs %d bytes", key, len(view))
            return None
        try:
            if not view.copy_ranges([buffer_ptr], [len(view)], [0], self._ranges):
                return None
        except (mckv.McError, OverflowError):
            return None
        return over(buffer_ptr + HEADER_BYTES, stored)

    def _stored_in(self, buffer_ptr: int, size: int) -> Stored | None:
        """The header in a caller's buffer."""
        if size < HEADER_BYTES or not mckv.Client.memory_is_mapped(buffer_ptr, size, False):
            return None
        try:
            return _tensor_header.decode(ctypes.string_at(buffer_ptr, HEADER_BYTES), size)
        except ValueError as error:
            logger.error("mc: put_tensor_from: %s", error)
            return None

    def _put_from(self, key: str, buffer_ptr: int, size: int, upsert: bool) -> int:
        found = self._stored_in(buffer_ptr, size)
        if found is None:
            return _codes.INVALID_PARAMS
        whole = HEADER_BYTES + found.data_bytes
        return self._put_addresses([key], [buffer_ptr], [whole], ReplicateConfig(), upsert)[0]

    def put_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        return self._put_from(key, buffer_ptr, size, False)

    def upsert_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        return self._put_from(key, buffer_ptr, size, True)

    # ---- Batches -------------------------------------------------------------------------------

    @staticmethod
    def _each(keys: list[str], *others: Iterable[Any]) -> list[tuple[Any, ...]] | None:
        lists = [list(one) for one in others]
        if any(len(one) != len(keys) for one in lists):
            return None
        return list(zip(keys, *lists, strict=True))

    def _put_tensors(
        self, keys: list[str], tensors: Any, config: ReplicateConfig, upsert: bool
    ) -> list[int]:
        items = self._each(keys, tensors)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(keys)
        return [self._put_tensor(key, tensor, config, upsert) for key, tensor in items]

    def batch_put_tensor(self, keys: list[str], tensors_list: list[Any]) -> list[int]:
        return self._put_tensors(keys, tensors_list, ReplicateConfig(), False)

    def batch_pub_tensor(
        self,
        keys: list[str],
        tensors_list: list[Any],
        config: ReplicateConfig = ReplicateConfig(),  # noqa: B008
    ) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, False)

    def batch_upsert_tensor(self, keys: list[str], tensors_list: list[Any]) -> list[int]:
        return self._put_tensors(keys, tensors_list, ReplicateConfig(), True)

    def batch_upsert_pub_tensor(
        self,
        keys: list[str],
        tensors_list: list[Any],
        config: ReplicateConfig = ReplicateConfig(),  # noqa: B008
    ) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, True)

    def batch_get_tensor(self, keys: list[str]) -> list[Any]:
        return [self.get_tensor(key) for key in keys]

    def batch_get_tensor_into(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[Any]:
        """A tensor for each key, or None; lists of different lengths: -600 for each key."""
        items = self._each(keys, buffer_ptrs, sizes)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(keys)
        return [self.get_tensor_into(*item) for item in items]

    def batch_put_tensor_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        items = self._each(keys, buffer_ptrs, sizes)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(keys)
        return [self.put_tensor_from(*item) for item in items]

    def batch_upsert_tensor_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        items = self._each(keys, buffer_ptrs, sizes)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(keys)
        return [self.upsert_tensor_from(*item) for item in items]

    # ---- Shards by tensor-parallel rank --------------------------------------------------------

    def _put_shards(
        self, key: str, tensor: Any, config: ReplicateConfig, tp_size: int, split_dim: int
    ) -> int:
        import torch

        if not isinstance(tensor, torch.Tensor):
            return _codes.INVALID_PARAMS
        parts = _shards(tensor, tp_size, split_dim)
        if parts is None:
            return _codes.INVALID_PARAMS
        codes = [
            self._put_tensor(_shard_key(key, rank, tp_size), part, config, False)
            for rank, part in enumerate(parts)
        ]
        return next((code for code in codes if code), _codes.OK)

    def put_tensor_with_tp(
        self, key: str, tensor: Any, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """Stores the shards of all ranks under KEY_tp_RANK."""
        return self._put_shards(key, tensor, ReplicateConfig(), tp_size, split_dim)

    def pub_tensor_with_tp(
        self,
        key: str,
        tensor: Any,
        config: ReplicateConfig = ReplicateConfig(),  # noqa: B008
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> int:
        return self._put_shards(key, tensor, config, tp_size, split_dim)

    def batch_put_tensor_with_tp(
        self,
        base_keys: list[str],
        tensors_list: list[Any],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        items = self._each(base_keys, tensors_list)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(base_keys)
        return [self.put_tensor_with_tp(k, one, tp_rank, tp_size, split_dim) for k, one in items]

    def batch_pub_tensor_with_tp(
        self,
        base_keys: list[str],
        tensors_list: list[Any],
        config: ReplicateConfig = ReplicateConfig(),  # noqa: B008
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        items = self._each(base_keys, tensors_list)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(base_keys)
        return [self._put_shards(k, one, config, tp_size, split_dim) for k, one in items]

    def put_tensor_with_tp_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> int:
        found = self._stored_in(buffer_ptr, size)
        if found is None:
            return _codes.INVALID_PARAMS
        tensor = over(buffer_ptr + HEADER_BYTES, found)
        return self._put_shards(key, tensor, ReplicateConfig(), tp_size, split_dim)

    def batch_put_tensor_with_tp_from(
        self,
        base_keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        items = self._each(base_keys, buffer_ptrs, sizes)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(base_keys)
        return [
            self.put_tensor_with_tp_from(key, ptr, size, tp_rank, tp_size, split_dim)
            for key, ptr, size in items
        ]

    def get_tensor_with_tp(
        self, key: str, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> Any:
        return self.get_tensor(_shard_key(key, tp_rank, tp_size))

    def batch_get_tensor_with_tp(
        self, base_keys: list[str], tp_rank: int = 0, tp_size: int = 1
    ) -> list[Any]:
        return [self.get_tensor_with_tp(key, tp_rank, tp_size) for key in base_keys]

    def get_tensor_with_tp_into(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> Any:
        return self.get_tensor_into(_shard_key(key, tp_rank, tp_size), buffer_ptr, size)

    def batch_get_tensor_with_tp_into(
        self,
        base_keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        tp_rank: int = 0,
        tp_size: int = 1,
    ) -> list[Any]:
        items = self._each(base_keys, buffer_ptrs, sizes)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(base_keys)
        return [
            self.get_tensor_with_tp_into(key, ptr, size, tp_rank, tp_size)
            for key, ptr, size in items
        ]

    # ---- Files ---------------------------------------------------------------------------------

    def save_tensor_to_safetensor(self, key: str, file_name: Any = None) -> int:
        from safetensors.torch import save_file

        tensor = self.get_tensor(key)
        if tensor is None:
            return _codes.OBJECT_NOT_FOUND
        save_file({key: tensor}, key if file_name is None else str(file_name))
        return _codes.OK

    def load_tensor_from_safetensor(self, key: Any = None, file_name: str = "") -> Any:
        """The tensor, put under the key; None for a file without a tensor, or a failed put."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        name = file_name if key is None else str(key)
        try:
            tensors = load_file(file_name)
        except (OSError, SafetensorError) as error:
            logger.error("mc: load_tensor_from_safetensor(%r): %s", file_name, error)
            return None
        if not tensors:
            return None
        if name not in tensors:
            logger.warning("mc: %r is not in %s; its first tensor is taken", name, file_name)
        tensor = tensors.get(name, next(iter(tensors.values())))
        return tensor if self._put_tensor(name, tensor, ReplicateConfig(), False) == 0 else None
