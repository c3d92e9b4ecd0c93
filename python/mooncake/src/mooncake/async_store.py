# SPDX-License-Identifier: Apache-2.0
"""A store with an async_METHOD for each method; the loop's executor runs the method."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from mooncake.store import MooncakeDistributedStore


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    def __getattr__(self, name: str) -> Any:
        plain = name.removeprefix("async_")
        call = getattr(type(self), plain, None)
        if plain == name or plain.startswith("_") or not callable(call):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        @functools.wraps(call)
        async def run(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(call, self, *args, **kwargs)

        return run
