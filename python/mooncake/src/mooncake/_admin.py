# SPDX-License-Identifier: Apache-2.0
"""Mooncake's HTTP administration: the master's port 9003, served by an agent of the cluster, and a
client's port 9300, served by a store's agent."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

import mckv

from mooncake._http_access import Access

logger = logging.getLogger("mooncake")

_MAX_KEYS = 100_000


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: AdminServer

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)

    def _answer(self, status: int, text: str, kind: str = "text/plain; version=0.0.4") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if not self.server.access.allows(url.path, self.headers):
            self._answer(401, f"{Access.REFUSAL}\n")
            return
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        try:
            with self.server.open_client() as client:
                if self.server.paths is not None and url.path not in self.server.paths:
                    self._answer(404, "not found\n")
                else:
                    client.ping(timeout=1)
                    self._route(client, url.path, query)
        except mckv.McError as error:
            self._answer(503, f"{error}\n")

    def _route(self, client: mckv.Client, path: str, query: dict[str, str]) -> None:
        if path == "/health":
            self._answer(200, json.dumps({"status": "healthy"}), "application/json")
        elif path == "/role":
            self._answer(200, "leader")
        elif path in ("/metrics", "/metrics/summary"):
            self._answer(200, _metrics(client))
        elif path in ("/get_all_segments", "/get_segments_detail"):
            names = [one["namespace"] for one in client.ask({"verb": "segments"})["segments"]]
            self._answer(200, "".join(f"{name}\n" for name in names))
        elif path == "/get_all_keys":
            keys = []
            for key in client.keys():
                keys.append(key.decode("utf-8", "replace"))
                if len(keys) == _MAX_KEYS:
                    break
            self._answer(200, "".join(f"{key}\n" for key in keys))
        elif path == "/query_key":
            stat = client.stat_batch([query.get("key") or " "])[0]
            if stat is None:
                self._answer(404, "object not found\n")
            else:
                self._answer(200, json.dumps({"size": stat.length}), "application/json")
        else:
            self._answer(404, "not found\n")

    def do_POST(self) -> None:
        self.close_connection = True
        if not self.server.access.allows(self.path, self.headers):
            self._answer(401, f"{Access.REFUSAL}\n")
            return
        self._answer(501, "mc changes nothing over HTTP; use mcctl (rm, segment resize)\n")


def _metrics(client: mckv.Client) -> str:
    """The agent's counters under Mooncake's names."""
    spaces = client.ask({"verb": "status"})["namespaces"]

    def total(name: str) -> int:
        return sum(int(one.get(name, 0)) for one in spaces)

    rows: list[tuple[str, str, Any]] = [
        ("master_allocated_bytes", "gauge", total("used_bytes")),
        ("master_total_capacity_bytes", "gauge", total("capacity_bytes") or total("pool_bytes")),
        ("master_key_count", "gauge", total("objects")),
        ("master_put_end_requests_total", "counter", total("puts")),
        ("master_remove_requests_total", "counter", total("removes")),
        ("master_evicted_key_count", "counter", total("evictions")),
        ("master_evicted_size_bytes", "counter", total("evicted_bytes")),
        ("master_put_start_alloc_failures_total", "counter", total("no_space")),
    ]
    return "".join(f"# TYPE {name} {kind}\n{name} {value}\n" for name, kind, value in rows)


class AdminServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        host: str,
        port: int,
        open_client: Callable[[], contextlib.AbstractContextManager[mckv.Client]],
        paths: frozenset[str] | None = None,
        insecure: bool = False,
    ) -> None:
        """paths: the paths to serve; None: all. Raises OSError; see Access."""
        self.access = Access(host, insecure)
        self.open_client = open_client
        self.paths = paths
        super().__init__((host, port), _Handler)


class ClientServer:
    """A store's /health and /metrics on this host only, until close()."""

    _PATHS = frozenset(("/health", "/metrics", "/metrics/summary"))

    def __init__(self, client: mckv.Client, port: int) -> None:
        """Raises OSError if the port is taken."""
        self._server = AdminServer(
            "127.0.0.1", port, lambda: contextlib.nullcontext(client), self._PATHS, insecure=True
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
