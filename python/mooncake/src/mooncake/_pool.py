# SPDX-License-Identifier: Apache-2.0
"""The pool of a store: this host's agent in the cluster of a master.

All stores of a process, cluster and tenant share one client. setup() joins the cluster of the
master at master_server_addr (an empty address: 127.0.0.1:50051) through this host's agent in that
cluster, which the first process of the host starts. A pool without a size of its own is as large as
the sum of the stores' global_segment_size. $MC_AGENT names an agent instead, or "embedded": a pool
inside this process until the last store closes.
"""

from __future__ import annotations

import atexit
import collections
import dataclasses
import functools
import ipaddress
import json
import logging
import os
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import mckv

from mooncake import _environment

logger = logging.getLogger("mooncake")

_Name = tuple[int, str, str]  # process, agent or master, tenant
_PATIENCE_S = 5.0
_LOOK_S = 1.0  # between two looks at the agent
_HOSTS_S = 5.0  # between two questions about the same segment
_MASTER = "127.0.0.1:50051"


@dataclasses.dataclass(frozen=True)
class _Lent:
    """What a store adds to the pool."""

    segment_bytes: int  # by setup()
    buffer_bytes: int
    added_bytes: int = 0  # by mounted segments


class Pool:
    """A shared client; close() is called once for each open_pool()."""

    def __init__(self, client: mckv.Client, agent: str, name: _Name, sized: bool) -> None:
        self.client = client
        self.agent = agent
        self._name = name
        self.tenant = name[2]
        self._sized = sized  # the pool has a size of its own
        self._hosts: dict[str, int | None] = {}  # by segment, as node_of(), for some seconds
        self._hosts_until = 0.0
        self._lent: dict[object, _Lent] = {}  # by the lender of a store
        self._session = 0  # of the agent that knows what the stores lend
        self._gone: collections.deque[object] = collections.deque()  # lenders of collected stores
        self._closed = threading.Event()

    def node_of(self, segment: str) -> int | None:
        """The node id of the host with this segment; None: no host of the cluster has it.

        A segment's name is the address of the host's agent, or the host:port of a store there.
        """
        now = time.monotonic()
        if now >= self._hosts_until:
            self._hosts = {}
            self._hosts_until = now + _HOSTS_S
        if segment not in self._hosts:
            self._hosts[segment] = self._ask_for_node(segment)
        return self._hosts[segment]

    def _ask_for_node(self, segment: str) -> int | None:
        try:
            nodes = self.client.ask({"verb": "nodes"})["nodes"]
        except mckv.McError:
            return None
        by_address = {one["address"]: int(one["node"]) for one in nodes}
        if segment in by_address:
            return by_address[segment]
        own = [one["address"] for one in nodes if one["self"]]
        wanted = _host_addresses(segment)
        for address in own + sorted(by_address):
            if wanted & _host_addresses(address):
                return by_address[address]
        return None

    def guard(self, start: Callable[[], object] | None) -> None:
        """Starts the agent again if it dies: the client's calls then go on. Until close().

        An agent whose keeper died too has lost the pool: the stores lend their memory again.
        start is None if an operator runs the agent.
        """
        while not self._closed.wait(_LOOK_S):
            try:
                if start and not self._agent_answers():
                    start()
                    logger.warning("mc: the agent at %s had died, and runs again", self.agent)
                self._lend_again()
            except mckv.McError as error:
                logger.warning("mc: the agent at %s does not serve: %s", self.agent, error)

    def _agent_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(self.agent) == 0

    def _lend_again(self) -> None:
        with _lock:
            if self._sized or self._closed.is_set():
                return
            if self.client.info()["session_id"] != self._session:
                self._contribute(self._living())

    def _contribute(self, lent: dict[object, _Lent]) -> None:
        """Raises mckv.McError, and then changes nothing."""
        session = self.client.info()["session_id"]
        order = {
            "verb": "contribute",
            "session": session,
            "bytes": sum(one.segment_bytes + one.added_bytes for one in lent.values()),
            "buffer_bytes": max((one.buffer_bytes for one in lent.values()), default=0),
        }
        self.client.ask(order)
        self._session = session
        self._lent = lent

    def add(self, lender: object, segment_bytes: int, buffer_bytes: int) -> None:
        """A pool with a size of its own may refuse. Else raises mckv.McError."""
        try:
            lent = _Lent(segment_bytes, buffer_bytes)
            self._contribute({**self._living(), lender: lent})
        except mckv.McError as error:
            if not self._sized:
                raise
            logger.warning("mc: the pool keeps its size; global_segment_size: %s", error)
            self._lent[lender] = _Lent(0, 0)

    def mount(self, lender: object, added_bytes: int) -> None:
        """The segments that the store has mounted. Raises mckv.McError, and changes nothing."""
        with _lock:
            lent = dataclasses.replace(self._lent[lender], added_bytes=added_bytes)
            self._contribute({**self._living(), lender: lent})

    def has_other_segments(self, lender: object) -> bool:
        """True if another store of this process lends memory to the pool."""
        with _lock:
            others = [value for key, value in self._living().items() if key is not lender]
        return any(one.segment_bytes + one.added_bytes > 0 for one in others)

    def close(self, lender: object) -> None:
        """Withdraws what the store added. The last store closes the client."""
        with _lock:
            self._gone.append(lender)
            self._withdraw()

    def collect(self, lender: object) -> bool:
        """close() from the garbage collector, which may run while this thread holds the lock.

        If the lock is held, the next call about a store withdraws the memory. False: the pool was
        closed, or is the parent's.
        """
        if self._name[0] != os.getpid() or self._closed.is_set():
            return False
        self._gone.append(lender)
        if _lock.acquire(blocking=False):
            try:
                self._withdraw()
            finally:
                _lock.release()
        return True

    def _living(self) -> dict[object, _Lent]:
        """What the stores lend that are not gone. REQUIRES: the lock is held."""
        while self._gone and self._gone[0] not in self._lent:
            self._gone.popleft()
        gone = list(self._gone)
        return {key: value for key, value in self._lent.items() if key not in gone}

    def end(self) -> None:
        self._closed.set()
        self.client.close()

    def _withdraw(self) -> None:
        """REQUIRES: the lock is held."""
        lent = self._living()
        if not lent:
            _pools.pop(self._name, None)
            self.end()
            return
        try:
            self._contribute(lent)
        except mckv.McError as error:
            logger.warning("mc: the pool keeps a closed store's memory: %s", error)
            self._lent = lent


def _host_addresses(segment: str) -> set[str]:
    """The IP addresses of the host in "host:port" or "host"; the name itself if unknown."""
    host = segment.rpartition(":")[0] or segment
    host = host.strip("[]")
    try:
        return {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}


_lock = threading.Lock()
_pools: dict[_Name, Pool] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    """A goodbye withdraws the process's memory at once; after a crash, the memory stays a time."""
    with _lock:
        for name, pool in _pools.items():
            if name[0] == os.getpid():  # a forked child cannot use the parent's clients
                pool.end()


def open_pool(
    lender: object,
    tenant: str,
    segment_bytes: int,
    buffer_bytes: int,
    hostname: str,
    master: str,
    options: dict[str, str],
    agent: str = "",
) -> Pool:
    """The pool, to which the store lends memory under the name lender. Raises mckv.McError.

    options: variables of an agent that this call starts. agent: the socket of an agent, instead of
    the master's.
    """
    agent = os.environ.get("MC_AGENT") or agent
    name = (os.getpid(), agent or master_address(master), tenant)
    with _lock:
        pool = _pools.get(name)
        pool = pool or _open(name, agent, segment_bytes, buffer_bytes, hostname, options)
        try:
            pool.add(lender, segment_bytes, buffer_bytes)
        except mckv.McError:
            if name not in _pools:
                pool.end()
            raise
        _pools[name] = pool
        return pool


def master_address(text: str) -> str:
    """host:port, or the address of the cluster store that the masters use."""
    if not text:
        return _MASTER
    return text if ":" in text else f"{text}:{_MASTER.rpartition(':')[2]}"


def _listen_words(master: str, hostname: str) -> list[str]:
    named = urllib.parse.urlsplit(master if "://" in master else f"//{master}").hostname or ""
    if named == "localhost" or named == "::1" or named.startswith("127."):
        # Such a master may serve this host alone. The master tells mcctl join its address.
        hostname = ""
    hostname = os.environ.get("MC_TCP_BIND_ADDRESS") or hostname
    try:
        address = ipaddress.ip_address(hostname)
        if address.is_loopback or address.is_unspecified:
            return []
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((hostname, 0))
    except (ValueError, OSError):  # a name, or an address of another host
        return []
    return ["--listen", hostname if address.version == 4 else f"[{hostname}]"]


def join(master: str, hostname: str, options: dict[str, str]) -> tuple[str, bool]:
    """The socket of this host's agent in the master's cluster, and whether an operator runs it.

    Starts the agent if none runs, with these variables below those of the environment. hostname: if
    it is an address of this host's network, and the master is not named by loopback, the agent
    listens there. Raises mckv.McError.
    """
    timeout_ms = round(_environment.connect_timeout_s(_PATIENCE_S) * 1000)
    words = [mckv.program("mcctl"), "--json", "--timeout-ms", str(timeout_ms)]
    words += ["join", master]
    if "://" in master:
        words += ["--cluster-id", os.environ.get("MC_STORE_CLUSTER_ID") or "mooncake_cluster"]
    words += _listen_words(master, hostname)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**options, **os.environ}
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        raise mckv.AgentUnavailableError(f"mcctl join {master}: {done.stderr.strip()}") from None
    if "error" in said:
        raise mckv.AgentUnavailableError(f"{said['error']['cause']}; {said['error']['try']}")
    return str(said["socket"]), bool(said["operated"])


def _join_in_time(master: str, hostname: str, options: dict[str, str]) -> tuple[str, bool]:
    for left in range(_environment.setup_tries() - 1, 0, -1):
        try:
            return join(master, hostname, options)
        except mckv.AgentUnavailableError as error:
            logger.warning("mc: setup: %s; %d more tries", error, left)
            time.sleep(_LOOK_S)  # no event tells of a master that starts on another host
    return join(master, hostname, options)


def _open(
    name: _Name,
    agent: str,
    segment_bytes: int,
    buffer_bytes: int,
    hostname: str,
    options: dict[str, str],
) -> Pool:
    _, master, tenant = name
    more: dict[str, Any] = {}
    if agent == "embedded":
        if segment_bytes <= 0:
            raise mckv.AgentUnavailableError(
                "MC_AGENT=embedded and global_segment_size is 0: there is nothing to store in"
            )
        if tenant != "default":
            raise mckv.NoSuchNamespaceError(
                f"tenant {tenant!r}: an embedded pool has the tenant 'default' only; start an agent"
            )
        logger.info("mc: a pool inside this process, which other processes do not see")
        more["config"] = {"pool_bytes": 0}
        given = {**options, **os.environ}
        for option in ("huge_pages", "tier_paths", "tier_bytes", "tier_stop_seconds"):
            if value := given.get(f"MC_AGENT_{option.upper()}"):
                more["config"][option] = value
    operated = True
    if not agent:
        agent, operated = _join_in_time(master, hostname, options)
    client = mckv.Client(
        agent,
        namespace=tenant,
        label=hostname[:60],
        timeout=_environment.call_timeout_s(_PATIENCE_S),
        channel_count=64,
        staging_bytes=min(max(buffer_bytes, 1 << 20), 4 << 30),
        **more,
    )
    try:
        segments = client.ask({"verb": "segments"})["segments"]
        segment = next(one for one in segments if one["namespace"] == tenant)
        if _environment.needs_huge_pages() and not segment["huge_pages"]:
            raise mckv.UnsupportedError(
                "MC_STORE_USE_HUGEPAGE is set, but the running agent has no huge pages; "
                "start mc-agent with --huge-pages=require, or unset the variable"
            )
        sized = segment["own_bytes"] > 0
    except mckv.McError:
        client.close()
        raise
    logger.info("mc: this host's agent is at %s", agent)
    pool = Pool(client, agent, name, sized)
    if agent != "embedded":
        start = None if operated else functools.partial(join, master, hostname, options)
        threading.Thread(target=pool.guard, args=(start,), daemon=True).start()
    return pool
