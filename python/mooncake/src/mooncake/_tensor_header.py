# SPDX-License-Identifier: Apache-2.0
"""The 304-byte header of a stored tensor, in Mooncake's layout.

offset  size  field (little-endian)
0       4     magic 0x4d4f4f4e
4       2     version, 1
6       2     header bytes, 304
8       4     element type, see _TYPES
12      4     dimensions, 0 to 8
16      8     layout: 0 whole tensor, 1 part of a tensor, with axes
24      8     offset of the elements, 304
32      8     bytes of elements
40      64    shape of the whole tensor; int64 each, -1 for unused
              dimensions
104     64    shape of this part: the same format
168     4     axes, 0 to 4
172     4     zero
176     128   the axes, 32 bytes each: kind (0 dp, 1 tp, 2 ep, 3 pp), number, rank, size, dimension
              that is split or -1, expert or stage or 0, int32 each; extent there or 0, int64
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from mooncake._parallelism import MAX_AXES, Axis

HEADER_BYTES = 304
MAX_DIMENSIONS = 8
_MAGIC = 0x4D4F4F4E
_LAYOUT = struct.Struct("<IHHIIQQQ8q8q")
# Mooncake's number, torch's name, bytes of an element.
_TYPES = (
    (0, "float32", 4),
    (1, "float64", 8),
    (2, "int8", 1),
    (3, "uint8", 1),
    (4, "int16", 2),
    (5, "uint16", 2),
    (6, "int32", 4),
    (7, "uint32", 4),
    (8, "int64", 8),
    (9, "uint64", 8),
    (10, "bool", 1),
    (11, "float16", 2),
    (12, "bfloat16", 2),
    (13, "float8_e4m3fn", 1),
    (14, "float8_e5m2", 1),
)
_AXES_AT = 168
_AXIS = struct.Struct("<2I4iq")
_BY_NUMBER = {number: (name, size) for number, name, size in _TYPES}
_BY_NAME = {name: (number, size) for number, name, size in _TYPES}


class Stored(NamedTuple):
    """The fields of a header. dtype: torch's name; whole: the shape of the whole tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_bytes: int
    whole: tuple[int, ...]
    axes: tuple[Axis, ...]


def type_number(dtype: Any) -> int:
    """Mooncake's number of an element type. Raises ValueError for an unsupported type."""
    name = str(dtype).removeprefix("torch.")
    if name not in _BY_NAME:
        raise ValueError(f"a tensor of {name}")
    return _BY_NAME[name][0]


def type_name(number: int) -> str:
    """torch's name of an element type. Raises ValueError for an unknown one."""
    if number not in _BY_NUMBER:
        raise ValueError("an unknown element type")
    return _BY_NUMBER[number][0]


def encode(
    dtype: Any,
    shape: tuple[int, ...],
    whole: tuple[int, ...] | None = None,
    axes: tuple[Axis, ...] = (),
) -> bytes:
    """Raises ValueError for an unsupported tensor."""
    number = type_number(dtype)
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"a tensor with {len(shape)} dimensions")
    padding = [-1] * (MAX_DIMENSIONS - len(shape))
    header = _LAYOUT.pack(
        _MAGIC, 1, HEADER_BYTES, number, len(shape), 1 if axes else 0, HEADER_BYTES,
        math.prod(shape) * _BY_NUMBER[number][1],
        *(shape if whole is None else whole), *padding, *shape, *padding,
    )  # fmt: skip
    if axes:
        header += struct.pack("<II", len(axes), 0)
        for i, one in enumerate(axes):
            header += _AXIS.pack(one.kind, i, one.rank, one.size, one.dim, one.tag, one.extent)
    return header.ljust(HEADER_BYTES, b"\0")


def decode(header: bytes, object_bytes: int) -> Stored:
    """Raises ValueError for an invalid header."""
    if len(header) < HEADER_BYTES:
        raise ValueError("too short for a stored tensor")
    magic, version, size, number, dimensions, layout, start, data_bytes, *sides = (
        _LAYOUT.unpack_from(header)
    )
    if (magic, version, size, start) != (_MAGIC, 1, HEADER_BYTES, HEADER_BYTES) or layout > 1:
        raise ValueError("no tensor is stored here, or one of another version")
    if number not in _BY_NUMBER or dimensions > MAX_DIMENSIONS:
        raise ValueError("a stored tensor of an unknown type or too many dimensions")
    name, item_bytes = _BY_NUMBER[number]
    shape = tuple(sides[MAX_DIMENSIONS : MAX_DIMENSIONS + dimensions])
    if any(side < 0 for side in shape) or math.prod(shape) * item_bytes != data_bytes:
        raise ValueError("a stored tensor whose shape does not agree with its length")
    if HEADER_BYTES + data_bytes > object_bytes:
        raise ValueError("a stored tensor that is longer than what holds it")
    whole = tuple(sides[:dimensions])
    return Stored(name, shape, data_bytes, whole, _axes(header) if layout else ())


def _axes(header: bytes) -> tuple[Axis, ...]:
    (count,) = struct.unpack_from("<I", header, _AXES_AT)
    if count > MAX_AXES:
        raise ValueError("a stored tensor with too many axes")
    made = []
    for i in range(count):
        kind, _, rank, size, dim, tag, extent = _AXIS.unpack_from(
            header, _AXES_AT + 8 + i * _AXIS.size
        )
        if kind > 3 or not 0 <= rank < size:
            raise ValueError("a stored tensor with a damaged axis")
        made.append(Axis(kind, rank, size, dim, tag, extent))
    return tuple(sorted(made, key=lambda one: one.kind))
