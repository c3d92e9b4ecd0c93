# SPDX-License-Identifier: Apache-2.0
"""Tensors that are stored along some axes of parallelism and read along others.

As in Mooncake, the argument of put_tensor_with_parallelism() depends on the axes. Along TP alone,
the argument is this rank's shard. Along TP and other axes, the argument is the whole tensor, and
the call stores this rank's part. With a writer_partition, the argument is the whole tensor, and the
call stores this writer's part. The *_from methods along TP alone take the whole tensor and store
the shards of all ranks.

A target that was not stored in the requested form is assembled from the stored form: the shards
along TP, the writers' parts, or the whole tensor under the key.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import mckv
from mckv import _arrays

from mooncake import _codes, _parallelism, _tensor_header
from mooncake._calls.base import DEFAULT
from mooncake._calls.tensor import TensorCalls, over
from mooncake._parallelism import KINDS, MODES, Axis, Manifest
from mooncake._tensor_header import HEADER_BYTES, Stored
from mooncake._types import ReplicateConfig

logger = logging.getLogger("mooncake")


@dataclasses.dataclass
class _Source:
    """Stored shards of one tensor: keys[i] has part i along dim; all parts are equally long."""

    keys: list[str]
    dim: int
    whole: tuple[int, ...]
    dtype: str


class ParallelCalls(TensorCalls):
    """Mixed into MooncakeDistributedStore."""

    # ---- Put -----------------------------------------------------------------------------------

    def _put_parallel(
        self,
        key: str,
        tensor: Any,
        parallelism: Any,
        config: ReplicateConfig,
        writer: Any,
        upsert: bool,
        whole_of_tp: bool = False,
    ) -> int:
        import torch

        if not isinstance(tensor, torch.Tensor):
            return _codes.INVALID_PARAMS
        try:
            if writer is not None:
                if parallelism is not None:
                    raise ValueError("writer_partition cannot be combined with parallelism")
                return self._put_part(key, tensor, config, writer, upsert)
            if parallelism is None:
                return self._put_tensor(key, tensor, config, upsert)
            axes = _parallelism.checked_axes(parallelism)
            tp = _parallelism.tp_axis(axes)
            if tp is not None and whole_of_tp and len(axes) == 1:
                return self._put_all(key, tensor, config, tp, upsert)
            return self._put_shard(key, tensor, config, axes, upsert)
        except ValueError as error:
            logger.error("mc: put_tensor_with_parallelism(%r): %s", key, error)
            return _codes.INVALID_PARAMS

    def _put_shard(
        self, key: str, tensor: Any, config: ReplicateConfig, axes: tuple[Axis, ...], upsert: bool
    ) -> int:
        whole, tp = list(tensor.shape), _parallelism.tp_axis(axes)
        if tp is not None:
            if tp.dim >= len(whole):
                raise ValueError(f"split_dim {tp.dim} of {len(whole)} dimensions")
            if len(axes) > 1:
                extent = _extent(tensor, tp)
                tensor = tensor.narrow(tp.dim, tp.rank * extent, extent)
            else:
                extent = whole[tp.dim]
                whole[tp.dim] *= tp.size
            axes = tuple(
                dataclasses.replace(one, extent=extent) if one is tp else one for one in axes
            )
        name = _parallelism.shard_key(key, axes)
        code = self._put_tensor(name, tensor, config, upsert, tuple(whole), axes)
        if code or tp is None:
            return code
        manifest = _manifest(tensor, tp, whole)
        return self._put(f"{key}__parallelism_manifest", manifest, config, upsert)

    def _put_all(
        self, key: str, tensor: Any, config: ReplicateConfig, tp: Axis, upsert: bool
    ) -> int:
        extent = _extent(tensor, tp)
        for rank in range(tp.size):
            axes = (dataclasses.replace(tp, rank=rank),)
            part = tensor.narrow(tp.dim, rank * extent, extent)
            if code := self._put_shard(key, part, config, axes, upsert):
                return code
        return _codes.OK

    def _put_part(
        self, key: str, tensor: Any, config: ReplicateConfig, writer: Any, upsert: bool
    ) -> int:
        axis = _parallelism.writer_axis(writer)
        extent = _extent(tensor, axis)
        part = tensor.narrow(axis.dim, axis.rank * extent, extent)
        whole, axes = tuple(tensor.shape), (dataclasses.replace(axis, extent=extent),)
        name = _parallelism.writer_key(key, axis)
        if code := self._put_tensor(name, part, config, upsert, whole, axes):
            return code
        manifest = _manifest(tensor, axis, list(whole))
        return self._put(f"{key}__writer_manifest", manifest, config, upsert)

    def _put_parallel_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: Any,
        config: ReplicateConfig,
        writer: Any,
        upsert: bool,
    ) -> int:
        found = self._stored_in(buffer_ptr, size)
        if found is None:
            return _codes.INVALID_PARAMS
        tensor = over(buffer_ptr + HEADER_BYTES, found)
        return self._put_parallel(key, tensor, parallelism, config, writer, upsert, True)

    def put_tensor_with_parallelism(
        self,
        key: str,
        tensor: Any,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        return self._put_parallel(key, tensor, parallelism, config, writer_partition, False)

    def upsert_tensor_with_parallelism(
        self,
        key: str,
        tensor: Any,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        return self._put_parallel(key, tensor, parallelism, config, writer_partition, True)

    def put_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        return self._put_parallel_from(
            key, buffer_ptr, size, parallelism, config, writer_partition, False
        )

    def upsert_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partition: Any = None,
    ) -> int:
        return self._put_parallel_from(
            key, buffer_ptr, size, parallelism, config, writer_partition, True
        )

    # ---- Get -----------------------------------------------------------------------------------

    def _direct(self, key: str, axes: tuple[Axis, ...]) -> str | None:
        """The key of the shard for these axes."""
        name = _parallelism.shard_key(key, axes)
        found = self._tensor_view(name)
        if found is None:
            return None
        stored = found[1].axes
        same = len(stored) == len(axes) and all(
            one.same_place(other) for one, other in zip(stored, axes, strict=True)
        )
        return name if same else None

    def _source(self, key: str, axes: tuple[Axis, ...]) -> _Source | None:
        """The stored parts from which a shard or the whole tensor can be assembled."""
        others = tuple(one for one in axes if KINDS[one.kind] != "tp")
        for ending, name in (
            ("__parallelism_manifest", _parallelism.shard_key),
            ("__writer_manifest", lambda key, axes: _parallelism.writer_key(key, axes[0])),
        ):
            text = self.get(key + ending)
            if not text:
                continue
            try:
                manifest = Manifest.decode(text)
                dtype = _tensor_header.type_name(manifest.type)
            except ValueError as error:
                logger.error("mc: %s%s: %s", key, ending, error)
                continue
            parts = [Axis(1, i, manifest.parts, manifest.dim, 0) for i in range(manifest.parts)]
            keys = [name(key, _ordered((*others, one))) for one in parts]
            return _Source(keys, manifest.dim, manifest.shape, dtype)
        found = self._tensor_view(key)
        if found is None or not found[1].shape:
            return None
        return _Source([key], 0, found[1].shape, found[1].dtype)

    def _assemble(
        self, source: _Source, dim: int, start: int, length: int, room: Callable[[Stored], Any]
    ) -> Any:
        """The part [start, start + length) along dim of a source's tensor, in room(header)."""
        extent = source.whole[source.dim] // len(source.keys)
        part = (*source.whole[: source.dim], extent, *source.whole[source.dim + 1 :])
        pieces = []  # (offset along source.dim in the result, tensor)
        for i, key in enumerate(source.keys):
            first, last = i * extent, (i + 1) * extent
            if source.dim == dim:
                first, last = max(first, start), min(last, start + length)
                if first >= last:
                    continue
            tensor = self._read_only(key, source.dtype, part)
            if tensor is None:
                return None
            if source.dim == dim:
                pieces.append((first - start, tensor.narrow(dim, first - i * extent, last - first)))
            else:
                pieces.append((first, tensor.narrow(dim, start, length)))
        # Allocates memory only now: the existing shards prove the manifest's shape.
        shape = (*source.whole[:dim], length, *source.whole[dim + 1 :])
        header = _tensor_header.decode(_tensor_header.encode(source.dtype, shape), 1 << 62)
        out = room(header)
        if out is not None:
            for at, tensor in pieces:
                out.narrow(source.dim, at, tensor.shape[source.dim]).copy_(tensor)
        return out

    def _read_only(self, key: str, dtype: str, shape: tuple[int, ...]) -> Any:
        """A stored tensor in place, if type and shape match."""
        import torch

        found = self._tensor_view(key)
        if found is None or (found[1].dtype, found[1].shape) != (dtype, shape):
            logger.error("mc: %s: a shard is missing or of another shape", key)
            return None
        view, stored = found
        if stored.data_bytes == 0:
            return torch.empty(shape, dtype=getattr(torch, dtype))
        whole = memoryview(view if view.span_count == 1 else view.tobytes())
        data = whole[HEADER_BYTES : HEADER_BYTES + stored.data_bytes]
        return _arrays.as_torch(data, getattr(torch, dtype), shape)

    def _get_parallel(
        self,
        key: str,
        target: Any,
        plain: Callable[[str], Any],
        room: Callable[[Stored], Any],
    ) -> Any:
        """plain: reads the tensor of one key; room: allocates memory for an assembled tensor."""
        if target is None:
            return plain(key)
        mode = getattr(target, "mode", None)
        if not isinstance(mode, str) or not hasattr(target, "parallelism"):
            logger.error("mc: get_tensor_with_parallelism(%r): a target is a ReadTarget", key)
            return None
        if mode not in MODES:
            raise RuntimeError(f"Unsupported ReadTarget mode {mode!r}: one of {', '.join(MODES)}")
        try:
            given = target.parallelism
            axes = () if given is None else _parallelism.checked_axes(given)
            if mode == "as_stored":
                return plain(_parallelism.shard_key(key, axes) if axes else key)
            if mode == "full":
                source = self._source(key, axes)
                if source is None:
                    return None
                if source.keys == [key]:
                    return plain(key)
                return self._assemble(source, 0, 0, source.whole[0], room)
            if not axes:
                raise ValueError("a shard needs a parallelism")
            name = self._direct(key, axes)
            if name is not None:
                return plain(name)
            tp, source = _parallelism.tp_axis(axes), self._source(key, axes)
            if tp is None or source is None:
                return None
            if tp.dim >= len(source.whole) or source.whole[tp.dim] % tp.size:
                raise ValueError(f"{source.whole} cannot be cut into {tp.size} along {tp.dim}")
        except ValueError as error:
            logger.error("mc: get_tensor_with_parallelism(%r): %s", key, error)
            return None
        extent = source.whole[tp.dim] // tp.size
        return self._assemble(source, tp.dim, tp.rank * extent, extent, room)

    def get_tensor_with_parallelism(self, key: str, target: Any = None) -> Any:
        """A copy of the tensor, or None."""
        import torch

        return self._get_parallel(
            key,
            target,
            self.get_tensor,
            lambda header: torch.empty(header.shape, dtype=getattr(torch, header.dtype)),
        )

    def get_tensor_with_parallelism_into(
        self, key: str, buffer_ptr: int, size: int, target: Any = None
    ) -> Any:
        """Reads header and elements into the buffer; returns a tensor over the buffer, or None."""

        def room(header: Stored) -> Any:
            needed = HEADER_BYTES + header.data_bytes
            if needed > size or not mckv.Client.memory_is_mapped(buffer_ptr, needed, True):
                logger.error("mc: get_tensor_with_parallelism_into: needs %d bytes", needed)
                return None
            text = _tensor_header.encode(header.dtype, header.shape)
            ctypes.memmove(buffer_ptr, text, HEADER_BYTES)
            return over(buffer_ptr + HEADER_BYTES, header)

        return self._get_parallel(
            key, target, lambda name: self.get_tensor_into(name, buffer_ptr, size), room
        )

    # ---- Batches -------------------------------------------------------------------------------

    @staticmethod
    def _given(keys: list[str], values: Any) -> list[Any] | None:
        """One value per key; all None for None; None if the numbers differ."""
        if values is None:
            return [None] * len(keys)
        return list(values) if isinstance(values, list | tuple) else None

    def _put_parallel_batch(
        self,
        put: Callable[..., int],
        keys: list[str],
        columns: list[Any],
        parallelisms: Any,
        config: ReplicateConfig,
        writers: Any,
    ) -> list[int]:
        axes, parts = self._given(keys, parallelisms), self._given(keys, writers)
        items = None
        if axes is not None and parts is not None and (parallelisms is None or writers is None):
            items = self._each(keys, *columns, axes, parts)
        if items is None:
            return [_codes.INVALID_PARAMS] * len(keys)
        return [put(*item[:-1], config, item[-1]) for item in items]

    def batch_put_tensor_with_parallelism(
        self,
        keys: list[str],
        tensors_list: list[Any],
        parallelisms: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Any = None,
    ) -> list[int]:
        put = self.put_tensor_with_parallelism
        columns = [tensors_list]
        return self._put_parallel_batch(put, keys, columns, parallelisms, config, writer_partitions)

    def batch_upsert_tensor_with_parallelism(
        self,
        keys: list[str],
        tensors_list: list[Any],
        parallelisms: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Any = None,
    ) -> list[int]:
        put = self.upsert_tensor_with_parallelism
        columns = [tensors_list]
        return self._put_parallel_batch(put, keys, columns, parallelisms, config, writer_partitions)

    def batch_put_tensor_with_parallelism_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        parallelisms: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Any = None,
    ) -> list[int]:
        put = self.put_tensor_with_parallelism_from
        columns = [buffer_ptrs, sizes]
        return self._put_parallel_batch(put, keys, columns, parallelisms, config, writer_partitions)

    def batch_upsert_tensor_with_parallelism_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        parallelisms: Any = None,
        config: ReplicateConfig = DEFAULT,
        writer_partitions: Any = None,
    ) -> list[int]:
        put = self.upsert_tensor_with_parallelism_from
        columns = [buffer_ptrs, sizes]
        return self._put_parallel_batch(put, keys, columns, parallelisms, config, writer_partitions)

    def batch_get_tensor_with_parallelism(self, keys: list[str], targets: Any = None) -> list[Any]:
        wanted = self._given(keys, targets)
        items = None if wanted is None else self._each(keys, wanted)
        if items is None:
            return [None] * len(keys)
        return [self.get_tensor_with_parallelism(*item) for item in items]

    def batch_get_tensor_with_parallelism_into(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int], targets: Any = None
    ) -> list[Any]:
        wanted = self._given(keys, targets)
        items = None if wanted is None else self._each(keys, buffer_ptrs, sizes, wanted)
        if items is None:
            return [None] * len(keys)
        return [self.get_tensor_with_parallelism_into(*item) for item in items]


def _ordered(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    return tuple(sorted(axes, key=lambda one: one.kind))


def _extent(tensor: Any, axis: Axis) -> int:
    """Length of a part along the axis. Raises ValueError if parts would differ."""
    if axis.dim >= tensor.dim() or tensor.shape[axis.dim] % axis.size:
        raise ValueError(f"{tuple(tensor.shape)} cannot be cut into {axis.size} along {axis.dim}")
    return int(tensor.shape[axis.dim]) // axis.size


def _manifest(tensor: Any, axis: Axis, whole: list[int]) -> bytes:
    number = _tensor_header.type_number(tensor.dtype)
    return Manifest(number, axis.dim, axis.size, tuple(whole)).encode()
