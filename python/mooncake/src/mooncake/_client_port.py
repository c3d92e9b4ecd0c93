# SPDX-License-Identifier: Apache-2.0
"""The port of mooncake_client (50052): tells setup_dummy() the agent of the client.

A connection gets one line of JSON, {"agent": PATH, "tenant": NAME}, and ends.
"""

from __future__ import annotations

import json
import socket
import socketserver

import mckv

_MAX_LINE = 4096
_PATIENCE_S = 5.0


class ClientPort(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, agent: str, tenant: str) -> None:
        """Raises OSError if the port is taken."""
        self.line = json.dumps({"agent": agent, "tenant": tenant}).encode() + b"\n"
        super().__init__((host, port), _Handler)


class _Handler(socketserver.BaseRequestHandler):
    server: ClientPort

    def handle(self) -> None:
        self.request.sendall(self.server.line)


def ask(address: str) -> tuple[str, str]:
    """Agent and tenant of the client at host:port. Raises mckv.McError."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host or "127.0.0.1", int(port)), _PATIENCE_S) as connection:
            said = json.loads(connection.makefile("rb").readline(_MAX_LINE))
        return str(said["agent"]), str(said["tenant"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise mckv.AgentUnavailableError(
            f"no mooncake_client of mc answers at {address}: {error}"
        ) from None
