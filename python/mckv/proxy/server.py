# SPDX-License-Identifier: Apache-2.0
"""The proxy's HTTP paths. Trusts no client: bodies are bounded, administration needs the key.

POST /v1/completions, /v1/chat/completions       GET /v1/models     to an engine
POST /instances/add, /instances/remove           {"type", "instance", "bootstrap_port"}, X-API-Key
GET  /status                                     X-API-Key if a key is set
GET  /health                                     200 while a decoder is healthy, else 503
GET  /metrics                                    Prometheus text
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web

from mckv import _web
from mckv._web import Refused
from mckv.proxy.exchange import ClientGone, Exchange, Limits, error_of
from mckv.proxy.health import Health
from mckv.proxy.instances import ROLES, Fleet, Role, checked_url
from mckv.proxy.metrics import Metrics
from mckv.proxy.options import DEFAULT_BOOTSTRAP_PORT, Settings
from mckv.proxy.pool import PoolView

logger = logging.getLogger("mckv.proxy")

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Proxy:
    """Created by running()."""

    def __init__(self, settings: Settings, session: aiohttp.ClientSession) -> None:
        self._settings, self._session = settings, session
        self.fleet = Fleet(
            max_requests=settings.max_requests,
            max_requests_per_instance=settings.max_requests_per_instance,
            max_queue=settings.max_queue,
            index_blocks=settings.index_blocks,
        )
        self.metrics = Metrics(self.fleet)
        self.health = Health(
            self.fleet,
            session,
            way=settings.way,
            interval_s=settings.health_interval_seconds,
            timeout_s=settings.health_timeout_seconds,
            failures=settings.health_failures,
        )
        self.pool = PoolView(
            self.fleet,
            session,
            self.metrics,
            agent=settings.agent,
            namespace=settings.namespace,
            wait_s=settings.pool_wait_seconds,
        )
        limits = Limits(
            retries=settings.retries,
            queue_s=settings.queue_seconds,
            connect_s=settings.connect_seconds,
            first_byte_s=settings.first_byte_seconds,
            answer_s=settings.answer_seconds,
            idle_s=settings.idle_seconds,
            max_answer_bytes=settings.max_answer_bytes,
        )
        self._exchange = Exchange(
            self.fleet, session, self.metrics, self.pool, settings.way, limits
        )

    def application(self) -> web.Application:
        app = web.Application(
            client_max_size=self._settings.max_body_bytes,
            middlewares=[self._counted, _web.errors_as_json(error_of), self._keyed],
        )
        app.add_routes(
            [
                web.post("/v1/completions", self.complete),
                web.post("/v1/chat/completions", self.complete),
                web.get("/v1/models", self.models),
                web.post("/instances/add", self.add_instance),
                web.post("/instances/remove", self.remove_instance),
                web.get("/status", self.status),
                web.get("/health", self.say_health),
                web.get("/metrics", self.say_metrics),
            ]
        )
        return app

    @web.middleware
    async def _counted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        # All unknown paths share one metric: a client cannot create metrics.
        route = request.match_info.route.resource
        name = route.canonical if route is not None else "other"
        try:
            answer: web.StreamResponse = await handler(request)
        except asyncio.CancelledError:
            self.metrics.cancelled.inc()
            self.metrics.requests.labels(name, "cancelled").inc()
            raise
        self.metrics.requests.labels(name, str(answer.status)).inc()
        return answer

    @web.middleware
    async def _keyed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self._settings.api_key and request.path.startswith("/v1/"):
            _web.check_bearer(request, self._settings.api_key)
        answer: web.StreamResponse = await handler(request)
        return answer

    # ---- Inference -----------------------------------------------------------------------------

    async def complete(self, request: web.Request) -> web.StreamResponse:
        started = time.monotonic()
        body = await _web.read_json(request)
        wanted, kind = ("messages", list) if "chat" in request.path else ("prompt", (str, list))
        if not isinstance(body.get(wanted), kind):
            raise Refused(400, f"{wanted} is missing, or of another type")
        if not isinstance(body.get("stream", False), bool | None):
            raise Refused(400, "stream is true or false")
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        try:
            return await self._exchange.answer(
                request, body, request_id, lambda: self._first_byte(started)
            )
        except ClientGone as gone:
            self.metrics.cancelled.inc()
            if request.transport is not None:
                request.transport.abort()
            return gone.response
        finally:
            self.metrics.duration.observe(time.monotonic() - started)

    def _first_byte(self, started: float) -> None:
        self.metrics.first_byte.observe(time.monotonic() - started)

    async def models(self, request: web.Request) -> web.StreamResponse:
        """The models of the first healthy engine."""
        timeout = aiohttp.ClientTimeout(total=self._settings.health_timeout_seconds)
        for role in reversed(ROLES):
            for one in self.fleet.of(role):
                if not one.healthy:
                    continue
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    async with self._session.get(
                        f"{one.url}/v1/models", timeout=timeout, allow_redirects=False
                    ) as answer:
                        text = await answer.content.read(self._settings.max_body_bytes)
                        return web.Response(
                            body=text, status=answer.status, content_type=answer.content_type
                        )
        raise Refused(503, "no instance is healthy")

    # ---- Administration ------------------------------------------------------------------------

    async def _named(self, request: web.Request) -> tuple[Role, str, int]:
        """The instance that an administrator names. Raises Refused."""
        if not self._settings.admin_key:
            raise Refused(403, "instances are fixed: start the proxy with ADMIN_API_KEY set")
        _web.check_key(request, self._settings.admin_key)
        body = await _web.read_json(request)
        port = body.get("bootstrap_port", DEFAULT_BOOTSTRAP_PORT)
        if type(port) is not int or not 0 < port < 65536:
            raise Refused(400, f"bootstrap_port {port!r} is no port")
        role = body.get("type")
        if role not in ROLES:
            raise Refused(400, f"type is {' or '.join(ROLES)}, not {role!r}")
        try:
            return role, checked_url(body.get("instance")), port
        except ValueError as error:
            raise Refused(400, str(error)) from None

    async def add_instance(self, request: web.Request) -> web.StreamResponse:
        role, url, port = await self._named(request)
        made = self.fleet.add(role, url, port)
        await self.health.watch(made)
        logger.info("instance=%s role=%s joined healthy=%s", url, role, made.healthy)
        return web.json_response(
            {"message": f"Added {role} {url}", "healthy": made.healthy, "why": made.why}
        )

    async def remove_instance(self, request: web.Request) -> web.StreamResponse:
        """The instance gets no new request and finishes its running requests."""
        role, url, _ = await self._named(request)
        gone = self.fleet.remove(role, url)
        logger.info("instance=%s role=%s left requests=%d", url, role, gone.requests)
        return web.json_response({"message": f"Removed {role} {url}", "requests": gone.requests})

    async def status(self, request: web.Request) -> web.StreamResponse:
        if self._settings.admin_key:
            _web.check_key(request, self._settings.admin_key)
        nodes = {role: [one.url for one in self.fleet.of(role)] for role in ROLES}
        return web.json_response(
            {
                **{f"{role}_node_count": len(urls) for role, urls in nodes.items()},
                **{f"{role}_nodes": urls for role, urls in nodes.items()},
                "in_flight": self.fleet.in_flight,
                "queued": self.fleet.queued,
                "pool_nodes": self.pool.nodes(),
                "instances": [
                    {
                        "type": one.role, "instance": one.url, "healthy": one.healthy,
                        "why": one.why, "requests": one.requests,
                        "pending_blocks": round(one.pending_blocks, 3),
                        "served": one.served, "failed": one.failed,
                    }
                    for one in self.fleet
                ],
            }
        )  # fmt: skip

    async def say_health(self, request: web.Request) -> web.StreamResponse:
        healthy = sum(one.healthy for one in self.fleet.of("decode"))
        return web.json_response(
            {"status": "healthy" if healthy else "no decode instance is healthy"},
            status=200 if healthy else 503,
        )

    async def say_metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=self.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"}
        )


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[Proxy, int]]:
    """The listening proxy and its port; at exit, requests have drain_seconds left."""
    # Engines' servers close idle connections after 5 s; reuse at that moment would fail.
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=10, keepalive_timeout=2)
    async with aiohttp.ClientSession(
        connector=connector, headers={"Accept-Encoding": "identity"}
    ) as session:
        proxy = Proxy(settings, session)
        try:
            made = [proxy.fleet.add(*one) for one in settings.instances]
            await asyncio.gather(*(proxy.health.watch(one) for one in made))
            proxy.pool.start()
            async with _web.serving(
                proxy.application(), settings.host, settings.port, settings.drain_seconds
            ) as port:
                yield proxy, port
        finally:
            await proxy.pool.stop()
            await proxy.health.stop()
