# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: one completion queue, one descriptor in the loop, one future per request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mckv import _native
from mckv._errors import (
    BufferTooSmallError,
    ClosedError,
    CorruptError,
    NotFoundError,
    Status,
    error_for,
)

if TYPE_CHECKING:
    from mckv import Client

_SHORT_TEXT: dict[int, bytes] = {}


def _error(status: int) -> Exception:
    text = _SHORT_TEXT.get(status)
    if text is None:
        text = _SHORT_TEXT[status] = _native.status_text(status).encode()
    return error_for(status, text)


class AsyncClient:
    """A client's calls for one running event loop.

        async with client.asyncio() as pool:
            await pool.put("key", value)

    Cancelling the task that awaits a call cancels the request; a put is then whole or
    absent. A submission copies or pins its data, so the caller may reuse a put's value at once; a
    get writes its buffer until the call returns, cancelled or not. Errors are those of Client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._queue: _native.Queue | None = _native.Queue(client)
        self._fd = self._queue.fd()
        # Opens this thread's channel now, so that no local read waits for the agent.
        client.exists_batch((b"\0",))
        self._futures: dict[int, asyncio.Future[list[int] | None]] = {}
        self._loop.add_reader(self._fd, self._drain)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels all requests; awaiting calls raise ClosedError. A second call has no effect."""
        queue, self._queue = self._queue, None
        if queue is None:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        queue.close()
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done() and not self._loop.is_closed():
                future.set_exception(ClosedError("this AsyncClient was closed"))

    def _live(self) -> _native.Queue:
        if self._queue is None:
            raise ClosedError("this AsyncClient was closed")
        return self._queue

    def _drain(self) -> None:
        if self._queue is None:
            return
        for number, status, lengths in self._queue.poll():
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            if status == Status.OK or lengths is not None:
                future.set_result(lengths)
            else:
                future.set_exception(_error(status))

    async def _wait(self, number: int) -> list[int] | None:
        future: asyncio.Future[list[int] | None] = self._loop.create_future()
        self._futures[number] = future
        # A request that is complete at once needs no turn of the loop.
        self._drain()
        try:
            return await future
        except asyncio.CancelledError:
            if self._queue is not None and number in self._futures:
                self._futures.pop(number)
                self._queue.cancel(number)
            raise

    async def put(
        self,
        key: str | bytes,
        value: Any,
        *,
        parent: str | bytes | None = None,
        pin: int | None = None,
        pin_ttl: float | None = None,
        upsert: bool = False,
        timeout: float | None = None,
        replicas: int = 1,
        visibility: int | None = None,
        host: int = 0,
    ) -> None:
        """Client.put()."""
        rules = (parent, pin, pin_ttl, upsert, timeout, replicas, visibility, host)
        await self._wait(self._live().put((key,), (value,), *rules, None))

    async def put_batch(
        self,
        keys: Sequence[str | bytes],
        values: Sequence[Any],
        *,
        parent: str | bytes | None = None,
        pin: int | None = None,
        pin_ttl: float | None = None,
        upsert: bool = False,
        timeout: float | None = None,
        replicas: int = 1,
        visibility: int | None = None,
        host: int = 0,
        stream: int | None = None,
    ) -> None:
        """Puts up to 1,024 objects at once. Raises the first failure; others may be stored.

        stream: torch.cuda.Stream.cuda_stream; the values are then GPU memory, and the copies are
        work of the stream.
        """
        rules = (parent, pin, pin_ttl, upsert, timeout, replicas, visibility, host)
        await self._wait(self._live().put(keys, values, *rules, stream))

    async def get(self, key: str | bytes, default: Any = ...) -> Any:
        """Client.get(); default: the result of a miss, instead of NotFoundError."""
        while True:
            found = self._client.stat_tuples((key,))[0]
            if found is None:
                if default is ...:
                    raise NotFoundError(_native.status_text(Status.NOT_FOUND))
                return default
            buffer = bytearray(found[0])
            try:
                copied = await self.get_into(key, buffer)
            except (NotFoundError, CorruptError):
                if default is ...:
                    raise
                return default
            except BufferTooSmallError:
                continue  # a longer object has replaced this object meanwhile
            return bytes(memoryview(buffer)[:copied])

    async def get_into(self, key: str | bytes, buffer: Any) -> int:
        """Client.get_into() of the whole object; returns the number of bytes."""
        (length,) = await self.get_into_batch((key,), (buffer,))
        if length < 0:
            raise _error(-length)
        return length

    async def get_into_batch(
        self, keys: Sequence[str | bytes], buffers: Sequence[Any]
    ) -> list[int]:
        """Up to 1,024 objects: for each the number of bytes copied, or the negative Status."""
        lengths = await self._wait(self._live().get(keys, buffers))
        assert lengths is not None
        return lengths

    async def remove(self, key: str | bytes, timeout: float | None = None) -> bool:
        """Client.remove()."""
        try:
            await self._wait(self._live().remove((key,), timeout))
        except NotFoundError:
            return False
        return True

    async def exists(self, key: str | bytes) -> bool:
        """Client.exists(); local, so the answer is immediate."""
        self._live()
        return self._client.exists(key)

    def view(self, key: str | bytes, default: Any = ...) -> Any:
        """Client.view(): local and immediate, so not a coroutine."""
        self._live()
        return self._client.view(key) if default is ... else self._client.view(key, default)
