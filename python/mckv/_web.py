# SPDX-License-Identifier: Apache-2.0
"""The common part of mckv's HTTP services over aiohttp: bodies, keys, JSON errors, shutdown.

Trusts no request. A body longer than the application's client_max_size gets 413. Every error answer
has a reason, and only texts of mckv's own exceptions leave the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

logger = logging.getLogger("mckv")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_KEY_HEADER_BYTES = 1024


class Refused(Exception):
    """An error answer with a reason and headers such as Retry-After."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers or {}


async def read_json(request: web.Request) -> dict[str, Any]:
    """The body, a JSON object. Raises Refused (400) for anything else, HTTP 413 if too long."""
    text = await request.read()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise Refused(400, "the body is JSON, but not an object")
    return value


def check_key(request: web.Request, key: str) -> None:
    """Raises Refused (401) unless X-API-Key is the key. Compares in constant time."""
    given = request.headers.get("X-API-Key", "")[:MAX_KEY_HEADER_BYTES]
    if not hmac.compare_digest(given.encode("utf-8", "replace"), key.encode()):
        raise Refused(401, "X-API-Key is missing or wrong")


def check_bearer(request: web.Request, key: str) -> None:
    """Raises Refused (401) unless Authorization is the key as a bearer token."""
    given = request.headers.get("Authorization", "")[:MAX_KEY_HEADER_BYTES]
    if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {key}".encode()):
        raise Refused(401, "Authorization is missing, or not the bearer token of this server")


def errors_as_json(shape: Callable[[int, str], dict[str, Any]]) -> Any:
    """A middleware that turns the handlers' exceptions into JSON of this shape."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refused as error:
            return web.json_response(
                shape(error.status, error.reason), status=error.status, headers=error.headers
            )
        except web.HTTPRequestEntityTooLarge as error:
            reason = f"the body is longer than {request.client_max_size} bytes"
            return web.json_response(shape(error.status, reason), status=error.status)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            reason = f"{request.method} {request.path}: {error.reason}"
            return web.json_response(shape(error.status, reason), status=error.status)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return web.json_response(shape(500, "internal error; see the log"), status=500)

    return middleware


def is_loopback(host: str) -> bool:
    """True if only processes of this host reach a listener at host."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(host, None)
        return bool(found) and all(
            ipaddress.ip_address(str(one[4][0]).split("%")[0]).is_loopback for one in found
        )
    return False


def stop_event() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@contextlib.asynccontextmanager
async def serving(app: web.Application, host: str, port: int, drain: float = 5.0) -> Any:
    """Listens inside the block; yields the port (for port 0, the assigned port).

    Cancels a handler if the client disconnects. At the end requests have `drain` seconds left.
    """
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=drain)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
