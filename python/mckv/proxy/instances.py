# SPDX-License-Identifier: Apache-2.0
"""The engines behind the proxy: membership, health, and the queue of requests.

Instances join and leave at any time. A leaving instance gets no new request and finishes its
running requests. Owns the in-flight counts: a Ticket is one request's place at its instances, and
the caller must close the ticket.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import urlsplit

from mckv._web import Refused
from mckv.proxy import choice
from mckv.proxy.choice import Candidate, Held
from mckv.proxy.prefix import PrefixIndex

Role = Literal["prefill", "decode"]
ROLES: tuple[Role, ...] = ("prefill", "decode")
MAX_INSTANCES = 1024

_holders = itertools.count(1)


def checked_url(text: object) -> str:
    """http://HOST:PORT for a URL or for HOST:PORT. Raises ValueError."""
    if not isinstance(text, str) or not text or len(text) > 256:
        raise ValueError("an instance is HOST:PORT or http://HOST:PORT")
    full = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    plain = not (parts.query or parts.fragment or parts.username) and parts.path in ("", "/")
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(f"{text!r} is not HOST:PORT or http://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


class Instance:
    """An engine's server. healthy: may get requests; leaving: removed, with running requests."""

    def __init__(self, role: Role, url: str, bootstrap_port: int) -> None:
        self.role: Role = role
        self.url = url
        self.host = urlsplit(url).hostname or ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.bootstrap = f"http://{host}:{bootstrap_port}"
        self.engine_ids: dict[int, str] = {}  # by data-parallel rank
        self.healthy = False
        self.leaving = False
        self.why = "not asked yet"
        self.failures = 0  # failed health checks in a row
        self.requests = 0
        self.pending_blocks = 0.0
        self.served = 0
        self.failed = 0
        self.turn = 0
        self.holder = next(_holders)

    def went_away(self, why: str) -> None:
        """Stops requests until a health check succeeds; forgets the blocks on the GPU."""
        if self.healthy:
            self.holder = next(_holders)
        self.healthy, self.why = False, why

    def came_back(self) -> None:
        self.healthy, self.why, self.failures = True, "", 0

    def candidate(self) -> Candidate:
        return Candidate(self.holder, self.host, self.requests, self.pending_blocks)

    def next_rank(self) -> tuple[int, str] | None:
        """The next data-parallel rank and its engine id."""
        if not self.engine_ids:
            return None
        self.turn += 1
        return sorted(self.engine_ids.items())[self.turn % len(self.engine_ids)]


class Ticket:
    """A request's place at a prefiller (if any) and a decoder."""

    def __init__(self, fleet: Fleet, chain: list[bytes]) -> None:
        self._fleet, self._chain = fleet, chain
        self.prefill: Instance | None = None
        self.decode: Instance | None = None
        self._lacking: list[tuple[Instance, float]] = []
        self._open = True

    def take(self, instance: Instance, lacks: float) -> None:
        setattr(self, instance.role, instance)
        instance.requests += 1
        instance.pending_blocks += lacks
        self._lacking.append((instance, lacks))

    def first_token(self) -> None:
        """Records that the prompt is computed and which instance has its blocks."""
        for instance, lacks in self._lacking:
            instance.pending_blocks -= lacks
            self._fleet.index.record(self._chain, instance.holder)
        self._lacking.clear()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for instance, lacks in self._lacking:
            instance.pending_blocks -= lacks
        for one in (self.prefill, self.decode):
            if one is not None:
                one.requests -= 1
        self._fleet.released()


class Fleet:
    """All instances, and the queue of requests."""

    def __init__(
        self,
        *,
        max_requests: int,
        max_requests_per_instance: int,
        max_queue: int,
        index_blocks: int,
    ) -> None:
        self._max_requests = max_requests
        self._per_instance = max_requests_per_instance
        self._max_queue = max_queue
        self._all: dict[tuple[Role, str], Instance] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turn = 0
        self.index = PrefixIndex(index_blocks)
        self.in_flight = 0
        self.matched_blocks = 0
        self.held_blocks = self.held_near_blocks = 0.0
        self.asked_blocks = 0

    # ---- Membership ----------------------------------------------------------------------------

    def add(self, role: Role, url: str, bootstrap_port: int) -> Instance:
        """Raises Refused: 409 for a known instance, 507 for too many instances."""
        if (role, url) in self._all:
            raise Refused(409, f"{role} {url} is there already")
        if len(self._all) >= MAX_INSTANCES:
            raise Refused(507, f"there are {MAX_INSTANCES} instances already")
        made = Instance(role, url, bootstrap_port)
        self._all[role, url] = made
        return made

    def remove(self, role: Role, url: str) -> Instance:
        """Raises Refused (404)."""
        found = self._all.pop((role, url), None)
        if found is None:
            raise Refused(404, f"there is no {role} {url}")
        found.leaving = True
        self.wake_all()
        return found

    def __iter__(self) -> Iterator[Instance]:
        return iter(list(self._all.values()))

    def of(self, role: Role) -> list[Instance]:
        return [one for one in self._all.values() if one.role == role]

    @property
    def queued(self) -> int:
        return len(self._waiting)

    # ---- Admission -----------------------------------------------------------------------------

    def wake_all(self) -> None:
        """Wakes the queue: an instance has room, or no instance will have room."""
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    def _wake_first(self) -> None:
        if self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)

    def released(self) -> None:
        self.in_flight -= 1
        self._wake_first()

    async def admit(
        self,
        chain: list[bytes],
        held: Held | None,
        avoid: set[Instance],
        wait_s: float,
    ) -> Ticket:
        """A place for a request, in the order of arrival. held: blocks of the prompt in the pool;
        avoid: instances that have failed this request.

        Without a healthy prefiller the decoder computes the prompt itself. Raises Refused: 429 if
        the queue is full, 503 if no decoder is healthy or had room within wait_s.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        if not self._waiting and (ticket := self._try(chain, held, avoid)):
            return ticket
        self._refuse_hopeless(avoid)
        if len(self._waiting) >= self._max_queue:
            raise Refused(
                429, f"{self.in_flight} requests run and {self.queued} wait", {"Retry-After": "1"}
            )
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            while True:
                if self._waiting[0] is mine and (ticket := self._try(chain, held, avoid)):
                    return ticket
                self._refuse_hopeless(avoid)
                left = deadline - asyncio.get_running_loop().time()
                try:
                    await asyncio.wait_for(asyncio.shield(mine), max(left, 0))
                except TimeoutError:
                    raise Refused(
                        503, f"no instance came free in {wait_s:g} s", {"Retry-After": "1"}
                    ) from None
                # Keeps the place in the queue, with a new future for the next turn.
                renewed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting[self._waiting.index(mine)] = renewed
                mine = renewed
        finally:
            self._waiting.remove(mine)
            self._wake_first()

    def _usable(self, role: Role, avoid: set[Instance]) -> list[Instance]:
        return [one for one in self.of(role) if one.healthy and one not in avoid]

    def _refuse_hopeless(self, avoid: set[Instance]) -> None:
        if not self._usable("decode", avoid):
            there, failed = len(self.of("decode")), len([a for a in avoid if a.role == "decode"])
            raise Refused(
                503,
                f"no decode instance is healthy: {there} known, {failed} failed this request",
                {"Retry-After": "1"},
            )

    def _try(self, chain: list[bytes], held: Held | None, avoid: set[Instance]) -> Ticket | None:
        roles: tuple[Role, ...] = ROLES if self._usable("prefill", avoid) else ("decode",)
        if self._max_requests and self.in_flight >= self._max_requests:
            return None
        matched = self.index.matched(chain)
        chosen: list[tuple[Instance, float]] = []
        hosts: Mapping[str, float]
        # A pool without blocks of the prompt may soon get them from an instance.
        if held is not None and held.anywhere > 0:
            hosts, anywhere = held.on_host, held.anywhere
        else:
            hosts, anywhere = choice.host_matches([one.candidate() for one in self], matched), 0.0
        for role in roles:
            usable = [
                one
                for one in self._usable(role, avoid)
                if not self._per_instance or one.requests < self._per_instance
            ]
            candidates = [one.candidate() for one in usable]
            at = choice.choose(candidates, len(chain), matched, self._turn, hosts, anywhere)
            if at is None:
                return None
            lacks = choice.missing_blocks(candidates[at], len(chain), matched, hosts, anywhere)
            # A decoder does not compute the blocks that a prefiller sends.
            chosen.append((usable[at], lacks if role == roles[0] else 0.0))
        self._turn += 1
        self.in_flight += 1
        self.asked_blocks += len(chain)
        self.matched_blocks += matched.get(chosen[0][0].holder, 0)
        if held is not None:
            self.held_blocks += held.anywhere
            self.held_near_blocks += held.on_host.get(chosen[0][0].host, 0)
        ticket = Ticket(self, chain)
        for instance, lacks in chosen:
            ticket.take(instance, lacks)
        return ticket
