# SPDX-License-Identifier: Apache-2.0
"""The 304 bytes before a stored tensor, laid out as Mooncake's, so that buffers fit both.

offset  size  field (little-endian)
0       4     magic 0x4d4f4f4e
4       2     version, 1
6       2     header bytes, 304
8       4     element type, see _TYPES
12      4     dimensions, 0 to 8
16      8     layout and flags, 0: the whole tensor as it is
24      8     where the elements begin, 304
32      8     bytes of elements
40      64    shape, int64 each, -1 where there is no dimension
104     64    shape of the tensor that this is a part of: the same
168     136   zero
"""

from __future__ import annotations

import math
import struct
from typing import Any

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
_BY_NUMBER = {number: (name, size) for number, name, size in _TYPES}
_BY_NAME = {name: (number, size) for number, name, size in _TYPES}


def encode(dtype: Any, shape: tuple[int, ...]) -> bytes:
    """Raises ValueError for a tensor that cannot be described."""
    name = str(dtype).removeprefix("torch.")
    if name not in _BY_NAME or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"a tensor of {name} with {len(shape)} dimensions")
    number, size = _BY_NAME[name]
    sides = [*shape, *[-1] * (MAX_DIMENSIONS - len(shape))]
    return _LAYOUT.pack(
        _MAGIC, 1, HEADER_BYTES, number, len(shape), 0, HEADER_BYTES, math.prod(shape) * size,
        *sides, *sides,
    ).ljust(HEADER_BYTES, b"\0")  # fmt: skip


def decode(header: bytes, object_bytes: int) -> tuple[str, tuple[int, ...], int]:
    """(torch's name of the type, shape, bytes of elements). Raises ValueError if it is not one."""
    if len(header) < HEADER_BYTES:
        raise ValueError("too short for a stored tensor")
    magic, version, size, number, dimensions, layout, start, data_bytes, *sides = (
        _LAYOUT.unpack_from(header)
    )
    if (magic, version, size, start, layout) != (_MAGIC, 1, HEADER_BYTES, HEADER_BYTES, 0):
        raise ValueError("no tensor is stored here, or one of another version")
    if number not in _BY_NUMBER or dimensions > MAX_DIMENSIONS:
        raise ValueError("a stored tensor of an unknown type or too many dimensions")
    name, item_bytes = _BY_NUMBER[number]
    shape = tuple(sides[:dimensions])
    if any(side < 0 for side in shape) or math.prod(shape) * item_bytes != data_bytes:
        raise ValueError("a stored tensor whose shape does not agree with its length")
    if HEADER_BYTES + data_bytes > object_bytes:
        raise ValueError("a stored tensor that is longer than what holds it")
    return name, shape, data_bytes
