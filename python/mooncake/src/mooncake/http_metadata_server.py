# SPDX-License-Identifier: Apache-2.0
"""Mooncake's HTTP metadata server: GET, PUT and DELETE of /metadata?key=KEY, in memory.

mc needs no such server; transfer engines of other processes may. Beyond loopback the server takes
requests with the token alone (_http.py). It holds at most 65,536 keys and 256 MiB.
"""

from __future__ import annotations

import argparse
import http.server
import logging
import threading
import urllib.parse

from mooncake._http import Access, Handler, default_host

MAX_KEYS = 65536
MAX_VALUE_BYTES = 1 << 20
MAX_BYTES = 256 << 20  # of all keys and values

logger = logging.getLogger("mooncake")


class _Handler(Handler):
    server: MetadataServer

    def _key(self) -> str | None:
        url = urllib.parse.urlsplit(self.path)
        if not self.server.access.allows(self.command, url.path, self.headers):
            self.close_connection = True
            self._answer(401, Access.REFUSAL.encode())
        elif url.path == "/health":
            self._answer(200, b"OK")
        elif url.path != "/metadata":
            self._answer(404, b"not found")
        else:
            key = urllib.parse.parse_qs(url.query).get("key", [""])[0].strip()
            if key:
                return key
            self._answer(400, b"key is missing")
        return None

    def do_GET(self) -> None:
        if (key := self._key()) is None:
            return
        with self.server.lock:
            value = self.server.values.get(key)
        if value is None:
            self._answer(404, b"metadata not found")
        else:
            self._answer(200, value, "application/json")

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_VALUE_BYTES:
            self.close_connection = True
            self._answer(413, b"a length of at most 1 MiB is needed")
            return
        if (key := self._key()) is None:
            self.close_connection = True  # the body stays unread
            return
        value = self.rfile.read(int(length))
        if self.server.store(key, value):
            self._answer(200, b"metadata updated")
        else:
            self._answer(507, b"too many keys, or too many bytes together")

    def do_DELETE(self) -> None:
        if (key := self._key()) is None:
            return
        if self.server.forget(key) is None:
            self._answer(404, b"metadata not found")
        else:
            self._answer(200, b"metadata deleted")


class MetadataServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, insecure: bool = False) -> None:
        """Raises OSError; see Access."""
        self.access = Access(host, insecure)
        self.values: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self._bytes = 0
        super().__init__((host, port), _Handler)

    def store(self, key: str, value: bytes) -> bool:
        """False: there is no room."""
        with self.lock:
            old = self.values.get(key)
            grown = len(value) - len(old) if old is not None else len(key) + len(value)
            full = old is None and len(self.values) >= MAX_KEYS
            if full or self._bytes + grown > MAX_BYTES:
                return False
            self.values[key] = value
            self._bytes += grown
            return True

    def forget(self, key: str) -> bytes | None:
        with self.lock:
            value = self.values.pop(key, None)
            if value is not None:
                self._bytes -= len(key) + len(value)
            return value


class KVBootstrapServer:
    """The server in a thread of this process."""

    def __init__(self, port: int, host: str = "") -> None:
        """host: of all networks if there is a token, else loopback. Raises OSError."""
        host = host or default_host()
        self._server = MetadataServer(host, port)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def run(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description=__doc__)
    parser.add_argument("--host", default=default_host(), help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args()
    logging.basicConfig(level=options.log_level.upper())
    try:
        server = MetadataServer(options.host, options.port)
    except OSError as error:
        parser.exit(1, f"mooncake_http_metadata_server: cannot listen: {error}\n")
    with server:
        logger.info("metadata on http://%s:%d/metadata", options.host, options.port)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
