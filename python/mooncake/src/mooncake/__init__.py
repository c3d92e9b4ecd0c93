# SPDX-License-Identifier: Apache-2.0
"""Mooncake's Python interface, served by mc. See python/mooncake/README.md for what differs."""

from typing import Any

_BUFFER_POOLS = ("BufferPool", "RegisteredBufferPool")


def __getattr__(name: str) -> Any:
    """The buffer pools, imported at their first use: mooncake.buffer_pool needs this package."""
    if name in _BUFFER_POOLS:
        import mooncake.buffer_pool

        return getattr(mooncake.buffer_pool, name)
    raise AttributeError(f"module 'mooncake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_BUFFER_POOLS])
