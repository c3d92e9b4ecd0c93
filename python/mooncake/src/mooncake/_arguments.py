# SPDX-License-Identifier: Apache-2.0
"""Arguments of store calls, checked as pybind11 checks Mooncake's: a wrong type is a TypeError."""

from __future__ import annotations

import re
from typing import Any

from mooncake import _codes

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20}
_UNITS |= {"g": 1 << 30, "gb": 1 << 30, "t": 1 << 40, "tb": 1 << 40}


def size_of(value: Any) -> int:
    """512, "512", "512MB". Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(value)
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(value))
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(value)
    return int(float(match[1]) * _UNITS[match[2].lower()])


def key_of(key: Any) -> str | bytes:
    if not isinstance(key, str | bytes):
        raise TypeError(f"incompatible function arguments: a key is str, not {type(key).__name__}")
    return key


def keys_of(keys: Any) -> list[Any]:
    if isinstance(keys, str | bytes):
        raise TypeError("incompatible function arguments: keys is a list of str")
    made = list(keys)
    for one in made:
        key_of(one)
    return made


def bad_key(key: str | bytes) -> int:
    """0 for a valid key, otherwise the error code."""
    length = len(key) if isinstance(key, bytes) else len(key.encode())
    return 0 if 0 < length <= 1024 else _codes.INVALID_KEY if length else _codes.INVALID_PARAMS


def address_of(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise TypeError(f"incompatible function arguments: {value!r} is no address or size")
    return value


def switch_of(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("", "0", "false", "no", "off"):
        return False
    raise ValueError(value)


def bytes_like(value: Any) -> Any:
    try:
        memoryview(value)
    except TypeError:
        raise TypeError(
            f"incompatible function arguments: a value has bytes; {type(value).__name__} has none"
        ) from None
    return value
