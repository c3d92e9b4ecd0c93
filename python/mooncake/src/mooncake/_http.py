# SPDX-License-Identifier: Apache-2.0
"""The HTTP servers of this package: their handlers, and who may ask.

A server with a token takes requests with the token alone, as a bearer token or in X-API-Key;
/health is open. The token is the line in $MC_HTTP_TOKEN_FILE, else $ADMIN_API_KEY. A server that
other hosts reach must have a token, and without these two has one that follows from the cluster's
key.
"""

from __future__ import annotations

import hashlib
import hmac
import http.server
import logging
import os
from collections.abc import Mapping
from email.message import Message

from mckv import _web

logger = logging.getLogger("mooncake")

_MAX_BYTES = 4096  # of a token or a key
_REMEDY = "set MC_HTTP_TOKEN_FILE or ADMIN_API_KEY, or the cluster's key with MC_CLUSTER_KEY_FILE"


def _text(path: str) -> bytes:
    """The file without newlines at the end. Raises OSError if there is no text."""
    with open(path, "rb") as file:
        text = file.read(_MAX_BYTES).rstrip(b"\r\n")
    if not text:
        raise OSError(f"{path} is empty")
    return text


def has_cluster_key() -> bool:
    return bool(os.environ.get("MC_CLUSTER_KEY_FILE") or os.environ.get("MC_CLUSTER_KEY"))


def _cluster_token() -> bytes:
    path = os.environ.get("MC_CLUSTER_KEY_FILE")
    key = _text(path) if path else os.fsencode(os.environ["MC_CLUSTER_KEY"])
    return hmac.new(key, b"mc http", hashlib.sha256).hexdigest().encode()


def _own_token() -> bytes:
    """Empty: none. Raises OSError for a file that cannot be read."""
    path = os.environ.get("MC_HTTP_TOKEN_FILE")
    if path:
        return _text(path).splitlines()[0]
    return os.fsencode(os.environ.get("ADMIN_API_KEY", ""))


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler of short answers; it logs on the level DEBUG."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)

    def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Access:
    REFUSAL = "a bearer token, or X-API-Key, is missing or wrong"

    def __init__(self, host: str, insecure: bool = False) -> None:
        """insecure: serve everybody. Raises OSError for a host that needs a token without one."""
        self._token = b"" if insecure else _own_token()
        if insecure or self._token or _web.is_loopback(host):
            return
        if not has_cluster_key():
            raise OSError(f"other hosts reach {host}: {_REMEDY}")
        self._token = _cluster_token()

    def allows(self, method: str, path: str, headers: Mapping[str, str] | Message) -> bool:
        """Compares in constant time. Without a token, a web page of a browser changes nothing."""
        if path == "/health":
            return True
        if not self._token:
            return method in ("GET", "HEAD") or "Origin" not in headers
        given = headers.get("X-API-Key") or headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)


def default_host(insecure: bool = False) -> str:
    """The address to listen on if the user names none: of all networks only with a token."""
    return "0.0.0.0" if insecure or _own_token() or has_cluster_key() else "127.0.0.1"
