# SPDX-License-Identifier: Apache-2.0
"""Maps an engine's host to the node whose memory holds the engine's blocks.

An agent of a cluster lists each node with the node's address. A host belongs to the node with the
address that the host's name resolves to. If the name resolves to an address of this machine and no
other node has the address, the host belongs to the proxy's agent. Without a cluster, the proxy's
agent has this machine's engines.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Any

import mckv
from mckv._engine_pool import Pool

ALONE = 0  # number of an agent without a cluster; a node's number is never 0


@dataclasses.dataclass(frozen=True)
class Hosts:
    """node_of: node numbers of the known hosts."""

    node_of: dict[str, int]
    addresses: dict[int, str]
    alone: bool

    def name(self, host: str) -> str:
        """Text for operators."""
        node = self.node_of.get(host)
        return "" if node is None else self.addresses.get(node) or "this agent"

    @staticmethod
    def read(pool: Pool, names: Iterable[str]) -> Hosts | None:
        """Asks the agent and the resolver. None without an answer from the agent."""
        try:
            answer = pool.ask({"verb": "nodes"})
        except mckv.UnsupportedError:
            answer = {"nodes": [{"node": ALONE, "address": "", "self": True}]}
        if answer is None:
            return None
        addresses = {int(one["node"]): str(one["address"]) for one in answer["nodes"]}
        own = next((int(one["node"]) for one in answer["nodes"] if one["self"]), None)
        nodes = {_address(text.rpartition(":")[0]): node for node, text in addresses.items()}
        made = {}
        for name in names:
            found = _resolved(name)
            node = next((nodes[one] for one in found if one in nodes), None)
            if node is None and any(_is_here(one) for one in found):
                node = own
            if node is not None:
                made[name] = node
        return Hosts(made, addresses, own == ALONE)

    def holders(
        self, pool: Pool, namespace: str, keys: Sequence[str]
    ) -> Sequence[Sequence[int]] | None:
        """The nodes that hold each key; None without an answer from the agent."""
        if self.alone:
            return [[ALONE] if one else [] for one in pool.exists([key.encode() for key in keys])]
        try:
            answer = pool.ask({"verb": "where", "namespace": namespace, "keys": keys})
        except mckv.UnsupportedError:  # the agent left the cluster
            return None
        found: Any = None if answer is None else answer.get("holders")
        if not isinstance(found, list) or len(found) != len(keys):
            return None
        return [[int(node) for node in nodes] for nodes in found]


def _address(text: str) -> str:
    """The address in canonical form; other text unchanged."""
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return text


def _resolved(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [_address(str(one[4][0]).partition("%")[0]) for one in found]


def _is_here(address: str) -> bool:
    """True for an address of this machine: no other address can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
            return True
    except OSError:
        return False
