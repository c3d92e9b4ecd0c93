# SPDX-License-Identifier: Apache-2.0
"""A store's port 9300: /health and /metrics of its pool, on this host only."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

import mckv

from mooncake._http import Handler


class _Handler(Handler):
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in ("/health", "/metrics", "/metrics/summary"):
            self._answer(404, b"404 Not Found")
            return
        try:
            self.server.client.ping(timeout=1)
            if path != "/health":
                text = _metrics(self.server.client)
                self._answer(200, text.encode(), "text/plain; version=0.0.4")
                return
            status, health = 200, {"status": "healthy", "code": 0}
        except mckv.McError as error:
            status, health = 503, {"status": "agent_unreachable", "code": 2, "reason": str(error)}
        self._answer(status, json.dumps(health).encode(), "application/json")


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


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    client: mckv.Client


class ClientServer:
    """Serves until close()."""

    def __init__(self, client: mckv.Client, port: int) -> None:
        """Raises OSError if the port is taken."""
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.client = client
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
