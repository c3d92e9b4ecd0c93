# SPDX-License-Identifier: Apache-2.0
"""Tensors as objects: a bounded, checked header of 64 to 128 bytes, then the elements.

    offset  size  field (little-endian)
    0       4     magic "MCKT"
    4       1     layout version, 1
    5       1     DLPack type code: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool
    6       1     bits of an element: 8, 16, 32, 64
    7       1     number of dimensions, 0 to 8
    8       4     header bytes: 64, or 128 with more than 5 dimensions
    12      4     zero
    16      8     bytes of elements
    24      8*n   the dimensions

Reading a header executes and imports nothing. The reader refuses a header that does not match the
object's length. Any process may have put a stored object, so the format has no pickle.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from typing import TYPE_CHECKING, Any

from mckv import _arrays
from mckv._errors import CorruptError, InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from mckv._native import View

MAX_DIMENSIONS = 8
_FIXED = struct.Struct("<4sBBBBIIQ")
_MAGIC = b"MCKT"
_VERSION = 1

# (DLPack code, bits) -> name in numpy and torch
_TYPES: dict[tuple[int, int], str] = {
    (0, 8): "int8",
    (0, 16): "int16",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 16): "uint16",
    (1, 32): "uint32",
    (1, 64): "uint64",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (6, 8): "bool",
}
_CODES = {name: code for code, name in _TYPES.items()}


@dataclasses.dataclass(frozen=True)
class TensorHeader:
    """The fields of a stored tensor's header. dtype: the name in numpy and torch."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def item_bytes(self) -> int:
        return _CODES[self.dtype][1] // 8

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes

    @property
    def header_bytes(self) -> int:
        return 64 if len(self.shape) <= 5 else 128

    def encode(self) -> bytes:
        if len(self.shape) > MAX_DIMENSIONS:
            raise InvalidArgumentError(f"a tensor has at most {MAX_DIMENSIONS} dimensions")
        code, bits = _CODES[self.dtype]
        text = _FIXED.pack(
            _MAGIC,
            _VERSION,
            code,
            bits,
            len(self.shape),
            self.header_bytes,
            0,
            self.data_bytes,
        ) + struct.pack(f"<{len(self.shape)}Q", *self.shape)
        return text.ljust(self.header_bytes, b"\0")

    @staticmethod
    def decode(start: bytes | memoryview, object_bytes: int) -> TensorHeader:
        """The header at the start of an object of object_bytes. Raises CorruptError."""
        if len(start) < 64:
            raise CorruptError("too short for a stored tensor")
        magic, version, code, bits, dimensions, header_bytes, zero, data_bytes = _FIXED.unpack_from(
            start
        )
        if magic != _MAGIC:
            raise CorruptError("no tensor is stored here (put_tensor was not used)")
        name = _TYPES.get((code, bits))
        if version != _VERSION or name is None or dimensions > MAX_DIMENSIONS or zero != 0:
            raise CorruptError("the stored tensor's header is damaged or of a newer version")
        end = _FIXED.size + 8 * dimensions
        if len(start) < end:
            raise CorruptError("the stored tensor's header is cut off")
        shape = struct.unpack_from(f"<{dimensions}Q", start, _FIXED.size)
        header = TensorHeader(name, shape)
        if (
            header.header_bytes != header_bytes
            or header.data_bytes != data_bytes
            or header_bytes + data_bytes != object_bytes
        ):
            raise CorruptError("the stored tensor's header does not agree with its length")
        return header


def header_of(tensor: Any) -> TensorHeader:
    """dtype and shape of a numpy array, torch tensor, or anything with the two attributes."""
    shape = getattr(tensor, "shape", None)
    dtype = getattr(tensor, "dtype", None)
    if shape is None or dtype is None:
        raise TypeError(f"needs a tensor with shape and dtype, not {type(tensor).__name__}")
    name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    if name not in _CODES:
        raise UnsupportedError(f"tensors of {name} cannot be stored; put them as bytes")
    return TensorHeader(name, tuple(int(one) for one in shape))


def contiguous(tensor: Any) -> Any:
    """The tensor, or a contiguous copy on the same device (host or CUDA)."""
    if hasattr(tensor, "contiguous"):  # torch
        tensor = tensor.detach()
        if tensor.device.type not in ("cpu", "cuda"):
            raise UnsupportedError(f"tensors on {tensor.device} are not read; call .cpu() first")
        return tensor.resolve_conj().resolve_neg().contiguous()
    if hasattr(tensor, "__array_interface__"):
        import numpy

        # A reader would misread the bytes of a big-endian array.
        if tensor.dtype.byteorder == ">":
            tensor = tensor.astype(tensor.dtype.newbyteorder("<"))
        # As bytes, because numpy's buffers have no bfloat16; a 0-d array keeps its shape.
        return numpy.ascontiguousarray(tensor).reshape(-1).view(numpy.uint8)
    return tensor


def shard(tensor: Any, dim: int, rank: int, size: int) -> Any:
    """Part `rank` of `size` of tensor along dim, cut like torch.chunk()."""
    check_shard(rank, size)
    dimensions = len(tensor.shape)
    if not -dimensions <= dim < dimensions:
        raise InvalidArgumentError(f"dim {dim} of a tensor of {dimensions} dimensions")
    extent = int(tensor.shape[dim])
    step = -(-extent // size)
    start, end = min(rank * step, extent), min((rank + 1) * step, extent)
    if start >= end:
        raise InvalidArgumentError(f"a dimension of {extent} cannot be cut into {size} shards")
    where: list[slice] = [slice(None)] * dimensions
    where[dim] = slice(start, end)
    return tensor[tuple(where)]


def check_shard(rank: int, size: int) -> None:
    if size < 1 or not 0 <= rank < size:
        raise InvalidArgumentError(f"tensor-parallel rank {rank} of {size}")


def shard_key(key: str | bytes, rank: int, size: int) -> bytes:
    """The key of a tensor-parallel rank's shard: KEY, "@tp", RANK, "of", SIZE."""
    check_shard(rank, size)
    name = key.encode() if isinstance(key, str) else key
    return name if size == 1 else b"%b@tp%dof%d" % (name, rank, size)


def of_view(view: View, like: str, copy: bool) -> Any:
    """The tensor in a view's object."""
    if view.span_count == 1:
        whole = memoryview(view)
    else:
        whole = memoryview(view.tobytes())
    header = TensorHeader.decode(whole[: 64 + 64], len(view))
    data = whole[header.header_bytes :]
    if like == "numpy":
        if header.dtype == "bfloat16":
            raise UnsupportedError("numpy has no bfloat16; read this tensor with like='torch'")
        array = _arrays.as_numpy(data, header.dtype, header.shape)
        return array.copy() if copy else array
    if like != "torch":
        raise InvalidArgumentError(f"like is 'numpy' or 'torch', not {like!r}")
    import torch

    if header.data_bytes == 0:
        return torch.empty(header.shape, dtype=getattr(torch, header.dtype))
    tensor = _arrays.as_torch(data, getattr(torch, header.dtype), header.shape)
    return tensor.clone() if copy else tensor
