# SPDX-License-Identifier: Apache-2.0
"""The store over HTTP: mc_store_rest_server, with Mooncake's paths, bodies and answers.

    PUT    /api/put            {"key", "value"}, both text      GET /api/get/KEY    the bytes
    DELETE /api/remove/KEY, /api/remove_all                     GET /api/exist/KEY  {"exists"}
    POST   /api/mount {"size"}, /api/unmount {"segment_ids"}    GET /health

Errors are {"error", "code"}: 400 a bad request, 404 no such key, 413 more than 100 MiB, 503 no
agent, 507 no space. The server listens on this host only, unless --host names another address;
then clients must send the token (_http.py).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import difflib
import logging
import sys
from typing import Any

from aiohttp import web
from mckv import _web
from mckv._web import Refused

from mooncake import _codes
from mooncake._http import Access
from mooncake.mooncake_config import MooncakeConfig
from mooncake.store import MooncakeDistributedStore

MAX_BODY_BYTES = 100 << 20
MAX_GRACE_S = 3600
_CHUNK_BYTES = 1 << 20
_SLOW_READER_S = 60.0

logger = logging.getLogger("mooncake")

_STATUS = {
    _codes.INVALID_KEY: 400,
    _codes.INVALID_PARAMS: 400,
    _codes.OBJECT_NOT_FOUND: 404,
    _codes.TENANT_NOT_REGISTERED: 404,
    _codes.OBJECT_ALREADY_EXISTS: 409,
    _codes.NOT_SUPPORTED: 501,
    _codes.ILLEGAL_CLIENT: 503,
    _codes.RPC_FAIL: 503,
    _codes.UNAVAILABLE_IN_CURRENT_STATUS: 503,
    _codes.RPC_TIMEOUT: 504,
    _codes.NO_AVAILABLE_HANDLE: 507,
}
_CAUSE = {
    _codes.INVALID_KEY: "a key has 1 to 1024 bytes",
    _codes.INVALID_PARAMS: "a parameter is refused",
    _codes.OBJECT_NOT_FOUND: "Key not found",
    _codes.ILLEGAL_CLIENT: "the store is not connected",
    _codes.RPC_FAIL: "the agent does not answer",
    _codes.RPC_TIMEOUT: "the agent did not answer in time",
    _codes.NO_AVAILABLE_HANDLE: "no space",
}


class _Failed(Refused):
    def __init__(self, code: int, what: str) -> None:
        cause = _CAUSE.get(code, "see the log of mc-agent")
        super().__init__(_STATUS.get(code, 500), f"{what}: {cause} ({code})")


def _check(code: int, what: str) -> int:
    if code < 0:
        raise _Failed(code, what)
    return code


def _error(status: int, reason: str) -> dict[str, Any]:
    return {"error": reason, "code": status}


class MooncakeStoreService:
    """A store and its HTTP server, in the running event loop."""

    def __init__(
        self, config_path: str | None = None, cli_config: dict[str, str] | None = None
    ) -> None:
        """Raises ValueError or OSError for an invalid configuration."""
        self.config = (
            MooncakeConfig.from_file(config_path) if config_path else MooncakeConfig.load_from_env()
        ).overridden(cli_config or {})
        self.store: MooncakeDistributedStore | None = None
        self.port = 0
        self._server: Any = None

    async def start_store_service(
        self, max_wait_time: float = 60, shutdown_event: asyncio.Event | None = None
    ) -> bool:
        """Sets the store up, with a retry every second for max_wait_time; False on failure."""
        stop = shutdown_event or asyncio.Event()
        deadline = asyncio.get_running_loop().time() + max_wait_time
        config = dataclasses.asdict(self.config)
        config["rdma_devices"] = config.pop("device_name") or ""
        config["master_server_addr"] = config.pop("master_server_address")
        while not stop.is_set():
            store = MooncakeDistributedStore()
            code = await asyncio.to_thread(store.setup, config)
            if code == 0:
                self.store = store
                return True
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                logger.error("mc: setup failed (%d) for %.0f s; giving up", code, max_wait_time)
                return False
            try:
                await asyncio.wait_for(stop.wait(), min(1.0, left))
            except TimeoutError:
                continue
        return False

    async def start_http_service(self, port: int = 8080, host: str = "127.0.0.1") -> bool:
        """Raises ValueError for a host that other hosts reach without a key; OSError."""
        try:
            access = Access(host)
        except OSError as error:
            raise ValueError(str(error)) from None
        self._server = _web.serving(self._application(access), host, port)
        self.port = await self._server.__aenter__()
        logger.info("mc: the store's REST interface is on http://%s:%d", host, self.port)
        return True

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.__aexit__(None, None, None)
            self._server = None
        if self.store is not None:
            await asyncio.to_thread(self.store.close)
            self.store = None

    def _application(self, access: Access) -> web.Application:
        @web.middleware
        async def keyed(request: web.Request, handler: _web.Handler) -> web.StreamResponse:
            if not access.allows(request.method, request.path, request.headers):
                raise Refused(401, Access.REFUSAL)
            return await handler(request)

        app = web.Application(
            client_max_size=MAX_BODY_BYTES, middlewares=[_web.errors_as_json(_error), keyed]
        )
        app.add_routes(
            [
                web.put("/api/put", self.handle_put),
                web.get("/api/get/{key:.+}", self.handle_get),
                web.get("/api/exist/{key:.+}", self.handle_exist),
                web.delete("/api/remove/{key:.+}", self.handle_remove),
                web.delete("/api/remove_all", self.handle_remove_all),
                web.post("/api/mount", self.handle_mount),
                web.post("/api/unmount", self.handle_unmount),
                web.post("/api/mount_shm", self.handle_foreign_memory),
                web.post("/api/unmount_shm", self.handle_foreign_memory),
                web.post("/api/unmount_local_disk", self.handle_local_disk),
                web.post("/api/reconfigure", self.handle_reconfigure),
                web.get("/health", self.handle_health),
            ]
        )
        return app

    def _store(self) -> MooncakeDistributedStore:
        if self.store is None:
            raise _Failed(_codes.ILLEGAL_CLIENT, "store")
        return self.store

    # ---- Objects -------------------------------------------------------------------------------

    async def handle_put(self, request: web.Request) -> web.StreamResponse:
        body = await _web.read_json(request)
        key, value = body.get("key"), body.get("value")
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise Refused(400, "Missing key or value: both are text")
        try:
            data = value.encode()
            key.encode()
        except UnicodeEncodeError:
            raise Refused(400, "key and value must be valid Unicode") from None
        if not data:
            raise Refused(400, "Missing key or value: an object has at least one byte")
        _check(await asyncio.to_thread(self._store().put, key, data), "put")
        return web.json_response({"status": "success"})

    async def handle_get(self, request: web.Request) -> web.StreamResponse:
        """Sends the object's bytes directly from the pool, pinned until the last byte."""
        view = await asyncio.to_thread(self._store()._view_or_code, request.match_info["key"])
        if isinstance(view, int):
            raise _Failed(view, "get")
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        response.content_length = len(view)
        await response.prepare(request)
        for span in view.spans():
            for at in range(0, len(span), _CHUNK_BYTES):
                chunk = memoryview(span)[at : at + _CHUNK_BYTES]
                await asyncio.wait_for(response.write(chunk), _SLOW_READER_S)
        await response.write_eof()
        return response

    async def handle_exist(self, request: web.Request) -> web.StreamResponse:
        size = await asyncio.to_thread(self._store().get_size, request.match_info["key"])
        if size < 0 and size != _codes.OBJECT_NOT_FOUND:
            raise _Failed(size, "exist")
        return web.json_response({"exists": size >= 0})

    async def handle_remove(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"]
        _check(await asyncio.to_thread(self._store().remove, key), "remove")
        return web.json_response({"status": "success"})

    async def handle_remove_all(self, request: web.Request) -> web.StreamResponse:
        count = _check(await asyncio.to_thread(self._store().remove_all), "remove_all")
        return web.json_response({"status": f"success removed {count} keys"})

    # ---- Segments ------------------------------------------------------------------------------

    async def handle_mount(self, request: web.Request) -> web.StreamResponse:
        """Grows the pool by `size` bytes."""
        size = (await _web.read_json(request)).get("size")
        if type(size) is not int or not 0 < size < 1 << 63:
            raise Refused(400, "Invalid size, must be a positive integer")
        made = await asyncio.to_thread(self._store().allocate_and_mount_segment, size)
        _check(made["ret"], "mount")
        return web.json_response(
            {
                "status": "success",
                "segment_ids": made["segment_ids"],
                "allocated_size": made["allocated_size"],
            }
        )

    async def handle_unmount(self, request: web.Request) -> web.StreamResponse:
        body = await _web.read_json(request)
        _grace(body)
        names = body.get("segment_ids", [])
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not names or not all(type(one) is str for one in names):
            raise Refused(400, "Missing segment_ids: a text or a list of them")
        code = await asyncio.to_thread(self._store().unmount_and_free_segment, names)
        _check(code, "unmount")
        return web.json_response({"status": "success"})

    async def handle_foreign_memory(self, request: web.Request) -> web.StreamResponse:
        await _web.read_json(request)
        raise Refused(501, "the pool's memory is the agent's; enlarge it with POST /api/mount")

    async def handle_local_disk(self, request: web.Request) -> web.StreamResponse:
        _grace(await _web.read_json(request))
        _check(self._store().unmount_local_disk_segment(), "unmount_local_disk")
        return web.json_response({"status": "success"})

    async def handle_reconfigure(self, request: web.Request) -> web.StreamResponse:
        body = await _web.read_json(request)
        mode = body.get("mode")
        if mode == "prefill":
            return web.json_response({"status": "success", "mode": "prefill"})
        if mode != "decode":
            raise Refused(400, "Invalid mode. Use 'decode' or 'prefill'")
        if not body.get("path") or body.get("size") is None:
            raise Refused(400, "Missing path or size for decode mode")
        return await self.handle_foreign_memory(request)

    async def handle_health(self, request: web.Request) -> web.StreamResponse:
        state = 1 if self.store is None else await asyncio.to_thread(self.store.health_check)
        text = ("healthy", "not set up", "the agent does not answer")[state]
        return web.json_response({"status": text}, status=503 if state else 200)


def _grace(body: dict[str, Any]) -> None:
    """Checks the argument, then ignores it: a read object stays until its readers finish."""
    value = body.get("grace_period_seconds", 0)
    if type(value) is not int or not 0 <= value <= MAX_GRACE_S:
        raise Refused(
            400,
            "Invalid grace_period_seconds, must be a non-negative integer no greater than "
            f"{MAX_GRACE_S}",
        )


def _overrides(items: list[str]) -> dict[str, str]:
    """-D NAME=VALUE. An unknown name ends the program, with the nearest known name."""
    known = [one.name for one in dataclasses.fields(MooncakeConfig)]
    made = {}
    for item in items:
        name, equals, value = item.partition("=")
        if name not in known or not equals:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            sys.exit(f"mc_store_rest_server: -D {item!r} is no NAME=VALUE of a setting{hint}")
        made[name] = value
    return made


async def main() -> None:
    parser = argparse.ArgumentParser(
        prog="mc_store_rest_server", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--config", help="a JSON file; else $MOONCAKE_CONFIG_PATH or MOONCAKE_*")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--max-wait-time", type=float, default=60, metavar="SECONDS")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    stop = _web.stop_event()
    try:
        service = MooncakeStoreService(options.config, _overrides(options.define))
    except (ValueError, OSError) as error:
        sys.exit(f"mc_store_rest_server: {error}")
    try:
        if not await service.start_store_service(options.max_wait_time, stop):
            sys.exit(0 if stop.is_set() else "mc_store_rest_server: the store cannot be set up")
        await service.start_http_service(options.port, options.host)
        await stop.wait()
    except (ValueError, OSError) as error:
        sys.exit(f"mc_store_rest_server: {error}")
    finally:
        await service.stop()


def sync_main() -> None:
    """The console command."""
    asyncio.run(main())


if __name__ == "__main__":
    sync_main()
