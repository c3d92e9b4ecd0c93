# SPDX-License-Identifier: Apache-2.0
"""One request of a client: admission, attempts, and streaming of the answer.

    arrived ── admitted ── sent to prefiller and decoder ── first byte ── passed on ── done
                  ▲                     │ failed                │ failed
                  └── others, at most `retries` times           └── an error event; the end

The proxy never retries after the first byte reached the client, because the client has seen tokens.
The proxy sends an answer without streaming only when the answer is complete. An instance's refusal
(4xx) is the answer. When the client disconnects, aiohttp cancels the handler; that closes the
connections to the instances, which then abort the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from aiohttp import web

from mckv._web import Refused
from mckv.proxy import protocol
from mckv.proxy.instances import Fleet, Instance, Ticket
from mckv.proxy.metrics import Metrics
from mckv.proxy.pool import PoolView
from mckv.proxy.prefix import chain_of

logger = logging.getLogger("mckv.proxy")

_BUSY = (429, 503)
_PASSED_ON = ("Authorization", "X-Request-Id", "OpenAI-Organization", "User-Agent", "traceparent")


@dataclasses.dataclass(frozen=True)
class Limits:
    retries: int
    queue_s: float
    connect_s: float
    first_byte_s: float  # head of a stream, and a prefiller's answer
    answer_s: float  # an answer without streaming
    idle_s: float  # between two parts of a stream
    max_answer_bytes: int


class AttemptFailed(Exception):
    """This attempt failed; the proxy may try another instance. away: the instance is unreachable;
    busy: the instance is overloaded."""

    def __init__(self, instance: Instance, why: str, away: bool, busy: bool = False) -> None:
        super().__init__(f"{instance.role} {instance.url}: {why}")
        self.instance, self.why, self.away, self.busy = instance, why, away, busy


class _Answer(Exception):
    """An instance's refusal, which the proxy passes on unchanged."""

    def __init__(self, status: int, body: bytes, kind: str) -> None:
        super().__init__(status)
        self.status, self.body, self.kind = status, body, kind


class ClientGone(Exception):
    """The client no longer reads the answer."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__()
        self.response = response


def _passed_on(request: web.Request) -> dict[str, str]:
    return {name: request.headers[name] for name in _PASSED_ON if name in request.headers}


class Exchange:
    """Answers all requests of the proxy."""

    def __init__(
        self,
        fleet: Fleet,
        session: aiohttp.ClientSession,
        metrics: Metrics,
        pool: PoolView,
        way: str,
        limits: Limits,
    ) -> None:
        self._fleet, self._session, self._metrics, self._pool = fleet, session, metrics, pool
        self._way, self._limits = way, limits

    async def answer(
        self,
        request: web.Request,
        body: Mapping[str, Any],
        request_id: str,
        began: Callable[[], None],
    ) -> web.StreamResponse:
        """began: called with the first byte. Raises Refused if no instance answered, ClientGone."""
        chain = chain_of(body)
        held = await self._pool.held(body, _passed_on(request), len(chain))
        last, status = "", 502
        headers: dict[str, str] = {}
        avoid: set[Instance] = set()
        for attempt in range(self._limits.retries + 1):
            try:
                ticket = await self._fleet.admit(chain, held, avoid, self._limits.queue_s)
            except Refused as error:
                if not avoid:
                    raise
                raise Refused(status, f"{error.reason}; last: {last}", headers) from None
            try:
                return await self._attempt(request, body, request_id, ticket, began)
            except _Answer as said:
                return web.Response(body=said.body, status=said.status, content_type=said.kind)
            except AttemptFailed as error:
                last = str(error)
                status, headers = (503, {"Retry-After": "1"}) if error.busy else (502, {})
                avoid.add(error.instance)
                error.instance.failed += 1
                if error.away:
                    error.instance.went_away(error.why)
                    self._fleet.wake_all()
                self._metrics.failures.labels(error.instance.role).inc()
                logger.warning("request=%s attempt=%d failed=%r", request_id, attempt + 1, last)
                if attempt < self._limits.retries:
                    self._metrics.retries.labels("away" if error.away else "refused").inc()
            finally:
                ticket.close()
        reason = f"{self._limits.retries + 1} attempts failed; last: {last}"
        raise Refused(status, reason, headers)

    async def _attempt(
        self,
        request: web.Request,
        body: Mapping[str, Any],
        request_id: str,
        ticket: Ticket,
        began: Callable[[], None],
    ) -> web.StreamResponse:
        assert ticket.decode is not None
        headers = {**_passed_on(request), "X-Request-Id": request_id}
        transfer_id = protocol.new_transfer_id()
        prefill: asyncio.Task[Any] | None = None
        engine_id = bootstrap = ""
        answered = None
        way = self._way if ticket.prefill is not None else protocol.SEQUENTIAL
        if ticket.prefill is None:
            if self._fleet.of("prefill"):
                self._metrics.without_prefill.inc()
        else:
            sent = protocol.prefill_request(body, way, transfer_id)
            told = dict(headers)
            rank = ticket.prefill.next_rank() if way == protocol.MOONCAKE else None
            if rank is not None:
                engine_id, bootstrap = rank[1], ticket.prefill.bootstrap
                if len(ticket.prefill.engine_ids) > 1:
                    told["X-data-parallel-rank"] = str(rank[0])
            prefill = asyncio.create_task(self._parsed(ticket.prefill, request.path, sent, told))
        try:
            if prefill is not None and way == protocol.SEQUENTIAL:
                answered = (await prefill).get("kv_transfer_params")
            sent = protocol.decode_request(body, way, transfer_id, engine_id, bootstrap, answered)
            if body.get("stream"):
                return await self._stream(request, ticket, sent, headers, prefill, began)
            limit_s = self._limits.answer_s
            whole = self._whole(ticket.decode, request.path, sent, headers, limit_s)
            text, kind = await _both(whole, prefill)
            ticket.first_token()
            began()
            ticket.decode.served += 1
            return web.Response(body=text, content_type=kind, headers={"X-Request-Id": request_id})
        finally:
            if prefill is not None:
                await _end(prefill)

    # ---- Whole answers -------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _post(
        self, instance: Instance, path: str, body: Any, headers: dict[str, str], limit_s: float
    ) -> Any:
        """Waits limit_s for the answer's head; errors become AttemptFailed or _Answer."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect_s)
        try:
            async with asyncio.timeout(limit_s):
                head = await self._session.post(
                    instance.url + path, json=body, headers=headers, timeout=timeout,
                    allow_redirects=False,
                )  # fmt: skip
            async with head as answer:
                if answer.status != 200:
                    text = await self._bounded(instance, answer)
                    if 400 <= answer.status < 500 and answer.status not in _BUSY:
                        raise _Answer(answer.status, text, answer.content_type)
                    busy = answer.status in _BUSY
                    raise AttemptFailed(instance, f"answers {answer.status}", False, busy)
                yield answer
        except TimeoutError as error:
            away = isinstance(error, aiohttp.ConnectionTimeoutError)
            raise AttemptFailed(instance, "does not answer in time", away) from None
        except (aiohttp.ClientError, OSError) as error:
            raise AttemptFailed(instance, f"{type(error).__name__}: {error}"[:300], True) from None

    async def _bounded(self, instance: Instance, answer: aiohttp.ClientResponse) -> bytes:
        parts, size = [], 0
        while part := await asyncio.wait_for(answer.content.readany(), self._limits.idle_s):
            size += len(part)
            if size > self._limits.max_answer_bytes:
                raise AttemptFailed(
                    instance, f"answers more than {self._limits.max_answer_bytes} bytes", False
                )
            parts.append(part)
        return b"".join(parts)

    async def _whole(
        self, instance: Instance, path: str, body: Any, headers: dict[str, str], limit_s: float
    ) -> tuple[bytes, str]:
        """The bytes and the type of an answer."""
        async with self._post(instance, path, body, headers, limit_s) as answer:
            return await self._bounded(instance, answer), answer.content_type

    async def _parsed(
        self, instance: Instance, path: str, body: Any, headers: dict[str, str]
    ) -> dict[str, Any]:
        """A prefiller's answer."""
        limit_s = self._limits.first_byte_s
        text, _ = await self._whole(instance, path, body, headers, limit_s)
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise AttemptFailed(instance, "answers with something other than JSON", False)
        instance.served += 1
        return said

    # ---- Streams -------------------------------------------------------------------------------

    async def _stream(
        self,
        request: web.Request,
        ticket: Ticket,
        body: Any,
        headers: dict[str, str],
        prefill: asyncio.Task[Any] | None,
        began: Callable[[], None],
    ) -> web.StreamResponse:
        assert ticket.decode is not None
        decode = ticket.decode
        limits = self._limits
        response = web.StreamResponse(
            headers={"X-Request-Id": headers["X-Request-Id"], "Cache-Control": "no-cache"}
        )
        try:
            async with contextlib.AsyncExitStack() as stack:
                post = self._post(decode, request.path, body, headers, limits.first_byte_s)
                answer, part = await _both(self._begin(stack, decode, post), prefill)
                ticket.first_token()
                began()
                response.content_type = answer.content_type
                await self._write(response, response.prepare(request))
                while part:
                    await self._write(response, response.write(part))
                    part = await asyncio.wait_for(answer.content.readany(), limits.idle_s)
        except AttemptFailed as error:
            if not response.prepared:
                raise
            # The client has seen tokens: send an error event, never retry.
            self._metrics.broken.inc()
            decode.failed += 1
            if error.away:
                decode.went_away(error.why)
                self._fleet.wake_all()
            logger.warning("request=%s broken=%r", headers["X-Request-Id"], str(error))
            event = json.dumps(error_of(502, f"the stream broke: {error}")).encode()
            await self._write(response, response.write(b"data: " + event + b"\n\n"))
            return response
        decode.served += 1
        await self._write(response, response.write_eof())
        return response

    async def _begin(
        self, stack: contextlib.AsyncExitStack, decode: Instance, post: Any
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Head and first bytes of a stream. An error event at the start is a failure."""
        answer: aiohttp.ClientResponse = await stack.enter_async_context(post)
        first = await asyncio.wait_for(answer.content.readany(), self._limits.first_byte_s)
        if not first:
            raise AttemptFailed(decode, "ended a stream that had not begun", False)
        if first.startswith(b'data: {"error"'):
            raise AttemptFailed(decode, f"began with {first[:200]!r}", False)
        return answer, first

    async def _write(self, response: web.StreamResponse, writing: Any) -> None:
        """Writes to the client. A client that stops reading blocks an engine idle_s at most."""
        try:
            await asyncio.wait_for(writing, self._limits.idle_s)
        except (OSError, aiohttp.ClientError):  # TimeoutError, too
            raise ClientGone(response) from None


def error_of(status: int, reason: str) -> dict[str, Any]:
    """An error in OpenAI's format."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": reason, "type": kind, "param": None, "code": status}}


async def _both(wanted: Any, prefill: asyncio.Task[Any] | None) -> Any:
    """Awaits `wanted`, unless the prefiller fails first: its KV would never arrive."""
    task = asyncio.ensure_future(wanted)
    try:
        if prefill is not None:
            await asyncio.wait((task, prefill), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                prefill.result()
        return await task
    finally:
        await _end(task)


async def _end(task: asyncio.Task[Any]) -> None:
    """Ends the task and drops its exception, which is reported already or irrelevant."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
