# SPDX-License-Identifier: Apache-2.0
"""Finds the blocks of a prompt in the pool. Never fails a request; waits wait_s at most.

    prompt ─► tokens (in the request, or /tokenize) ─► keys by the key card ─► "where" ─► Held

The proxy asks the agent of its host, which asks the master. Background tasks read the key cards and
the list of hosts in advance. If one of these is unknown, late or broken, a request gets None, and
the choice uses the record of sent blocks. After a failure, or after LATE_IN_A_ROW late answers, the
proxy pauses these questions, twice as long each time.

Threads: the event loop calls the methods; THREADS threads ask the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import aiohttp

from mckv._block_keys import MAX_CARD_BYTES, Card, card_key
from mckv._engine_pool import Pool
from mckv.proxy import tokens
from mckv.proxy.choice import Held
from mckv.proxy.hosts import Hosts
from mckv.proxy.instances import ROLES, Fleet, Instance
from mckv.proxy.metrics import Metrics

logger = logging.getLogger("mckv.proxy")

T = TypeVar("T")

NONE = "none"  # --agent: the proxy asks no agent
THREADS = 2
MAX_BLOCKS = 2048  # hashed blocks of a prompt: 32,768 tokens in blocks of 16
MAX_KEYS = 256  # blocks per question; of a longer prompt every second or third block, and so on
MAX_ASKING = 32  # concurrent requests with a question; further requests ask nothing
MAX_MODELS = 64  # models whose key cards are kept
REFRESH_S = 5.0
SOONEST_REFRESH_S = 0.2
LATE_IN_A_ROW = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_AGENT_TIMEOUT_S = 1.0  # for calls in a thread; requests do not wait for these


class _Unanswered(Exception):
    """why: the outcome to count. pause: True if the proxy shall pause its questions."""

    def __init__(self, why: str, pause: bool = False) -> None:
        super().__init__(why)
        self.why, self.pause = why, pause


def held_of(
    holders: Sequence[Sequence[int]], stride: int, blocks: int
) -> tuple[float, dict[int, float]]:
    """Fractions of the prompt: the leading blocks that any node holds, and those that each node
    holds. holders: nodes of every stride-th block."""
    nodes: dict[int, float] = {}
    run = 0
    for some in holders:
        if not some:
            break
        run += 1
        for node in some:
            nodes[node] = nodes.get(node, 0) + 1
    part = stride / blocks
    return min(run * part, 1.0), {node: min(count * part, 1.0) for node, count in nodes.items()}


class PoolView:
    """start() and stop() run in the event loop. agent: a socket; "" for this host's agent."""

    def __init__(
        self,
        fleet: Fleet,
        session: aiohttp.ClientSession,
        metrics: Metrics,
        *,
        agent: str,
        namespace: str,
        wait_s: float,
    ) -> None:
        self._fleet, self._session, self._metrics = fleet, session, metrics
        self._agent, self._namespace, self._wait_s = agent, namespace, wait_s
        self._pool = Pool(agent or None, namespace, "mckv proxy", _AGENT_TIMEOUT_S)
        self._threads = ThreadPoolExecutor(THREADS, "mckv-proxy-pool")
        self._refresher: asyncio.Task[None] | None = None
        self._cards: OrderedDict[str, Card | None] = OrderedDict()
        self._told: dict[str, str] = {}  # last log line for each model's key card
        self._hosts: Hosts | None = None
        self._asking = 0
        self._late = 0
        self._pause_s = self._until = 0.0
        self._wanted = asyncio.Event()  # a key card that was never read

    def start(self) -> None:
        if self._agent != NONE and self._wait_s > 0:
            self._refresher = asyncio.create_task(self._keep_fresh())

    async def stop(self) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refresher
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.close()

    def nodes(self) -> dict[str, str]:
        """Text for operators: the node of an instance's host; "" if unknown."""
        hosts = self._hosts
        return {} if hosts is None else {one.host: hosts.name(one.host) for one in self._fleet}

    # ---- In a request --------------------------------------------------------------------------

    async def held(
        self, request: Mapping[str, Any], headers: Mapping[str, str], blocks: int
    ) -> Held | None:
        """blocks: the proxy's blocks of the prompt. None: choose without the pool."""
        if self._refresher is None or blocks == 0 or not self._is_a_choice():
            return None
        started = time.monotonic()
        held, why = None, "answered"
        self._asking += 1
        try:
            if self._until > started:
                raise _Unanswered("paused")
            if self._asking > MAX_ASKING:
                raise _Unanswered("busy")
            async with asyncio.timeout(self._wait_s):
                held = await self._ask(request, headers, blocks)
        except TimeoutError:
            why = "late"
            self._late += 1
            if self._late >= LATE_IN_A_ROW:
                self._pause()
        except _Unanswered as error:
            why = error.why
            if error.pause:
                self._pause()
        else:
            self._late, self._pause_s = 0, 0.0
            self._metrics.pool_seconds.observe(time.monotonic() - started)
        finally:
            self._asking -= 1
        self._metrics.pool_questions.labels(why).inc()
        return held

    def _is_a_choice(self) -> bool:
        """True if the instances run on several hosts: instances of one host share a pool."""
        for role in ROLES:
            if len({one.host for one in self._fleet.of(role) if one.healthy}) > 1:
                return True
        return False

    def _pause(self) -> None:
        self._late = 0
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._until = time.monotonic() + self._pause_s

    async def _ask(
        self, request: Mapping[str, Any], headers: Mapping[str, str], blocks: int
    ) -> Held:
        card = self._card(request.get("model"))
        hosts = self._hosts
        if hosts is None:
            raise _Unanswered("no_agent")
        if card is None:
            raise _Unanswered("no_card")
        prompt = tokens.tokens_or_question(request)
        if prompt is None:
            raise _Unanswered("no_tokens")
        if isinstance(prompt, dict):
            prompt = await self._tokens(prompt, headers)
        try:
            found = await self._in_thread(_where, self._pool, hosts, self._namespace, card, prompt)
        except ValueError:
            raise _Unanswered("no_tokens") from None
        if found is None:
            raise _Unanswered("failed", pause=True)
        anywhere, nodes = found
        here = {host: nodes.get(node, 0.0) * blocks for host, node in hosts.node_of.items()}
        return Held(anywhere * blocks, here)

    async def _tokens(self, question: Any, headers: Mapping[str, str]) -> list[Any]:
        healthy = [one for role in ROLES for one in self._fleet.of(role) if one.healthy]
        least: Instance = min(healthy, key=lambda one: one.requests)
        try:
            return await tokens.ask(self._session, least.url, question, headers)
        except tokens.NoTokens as error:
            logger.debug("instance=%s no tokens: %s", least.url, error)
            raise _Unanswered("no_tokens", pause=error.lasting) from None

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    def _card(self, model: Any) -> Card | None:
        """The model's key card as last read; the next round reads a new model's card."""
        if not isinstance(model, str):
            return None
        if model not in self._cards:
            self._wanted.set()
            if len(self._cards) == MAX_MODELS:
                self._cards.popitem(last=False)
        found = self._cards.setdefault(model, None)
        self._cards.move_to_end(model)
        return found

    # ---- In the background ---------------------------------------------------------------------

    async def _keep_fresh(self) -> None:
        while True:
            try:
                await self._refresh()
            except Exception:
                logger.exception("the pool is not asked until the next look at it")
                self._hosts = None
            await asyncio.sleep(SOONEST_REFRESH_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), REFRESH_S)
            self._wanted.clear()

    async def _refresh(self) -> None:
        if not self._agent and not _an_agent_is_here():
            self._hosts = None
            return
        names = {one.host for one in self._fleet}
        before = self._hosts
        self._hosts = await self._in_thread(Hosts.read, self._pool, names)
        if (before is None) != (self._hosts is None):
            logger.info("pool=%s nodes=%s", "asked" if self._hosts else "away", self.nodes())
        if self._hosts is None:
            return
        told = {}
        for model in list(self._cards):
            card, told[model] = await self._in_thread(_read_card, self._pool, model)
            if model in self._cards:
                self._cards[model] = card
            if told[model] != self._told.get(model):
                logger.info("model=%r keys=%s", model[:100], told[model] or "known")
        self._told = told


def _an_agent_is_here() -> bool:
    """True if the socket of mckv.Client() exists."""
    named = os.environ.get("MC_AGENT")
    usual = ("/run/mc/agent.sock", f"/dev/shm/mc-{os.getuid()}/agent.sock")
    return any(os.path.exists(one) for one in ([named] if named else usual))


def _read_card(pool: Pool, model: str) -> tuple[Card | None, str]:
    """The model's key card, or None and the reason why the pool has no valid card."""
    data = pool.small(card_key(model), MAX_CARD_BYTES)
    if data is None:
        return None, "no engine has put its card into the pool"
    try:
        return Card.decode(data), ""
    except ValueError as error:
        return None, str(error)


def _where(
    pool: Pool, hosts: Hosts, namespace: str, card: Card, prompt: Sequence[Any]
) -> tuple[float, dict[int, float]] | None:
    """held_of() the prompt; None without an answer. Raises ValueError without tokens."""
    # An engine always computes the last token.
    blocks = max(len(prompt) - 1, 0) // card.block_tokens
    hashes = card.hashes(prompt, min(blocks, MAX_BLOCKS))
    if not hashes:
        return 0.0, {}
    stride = -(-len(hashes) // MAX_KEYS)
    keys = [card.key(one) for one in hashes[stride - 1 :: stride]]
    holders = hosts.holders(pool, namespace, keys)
    return None if holders is None else held_of(holders, stride, blocks)
