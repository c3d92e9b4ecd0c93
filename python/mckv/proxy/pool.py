# SPDX-License-Identifier: Apache-2.0
"""What the pool has of a prompt, and on which hosts. Never fails a request; waits wait_s at most.

    prompt ─► tokens (its own, or /tokenize) ─► keys by the engine's card ─► "where" ─► Held

The agent of the proxy's host is asked, which asks the master. Cards and the list of hosts are read
in the background, before they are needed. A request that comes while something of that is not
known, late or broken gets None: the choice is then made by what was sent where. After a failure,
and when LATE_IN_A_ROW answers were late, nothing is asked for a while, twice as long each time.

Threads: methods are the loop's; the agent is asked in THREADS threads of its own.
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

NONE = "none"  # --agent: nobody is asked
THREADS = 2
MAX_BLOCKS = 2048  # of a prompt that are hashed: 32,768 tokens of 16 a block
MAX_KEYS = 256  # that the agent is asked for; of a longer prompt every second block, or third ...
MAX_ASKING = 32  # requests; more go without
MAX_MODELS = 64  # whose cards are remembered
REFRESH_S = 5.0
SOONEST_REFRESH_S = 0.2
LATE_IN_A_ROW = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_AGENT_TIMEOUT_S = 1.0  # for what runs in a thread; requests do not wait for it


class _Unanswered(Exception):
    """why: the outcome that is counted. pause: whether it is a reason to leave it alone."""

    def __init__(self, why: str, pause: bool = False) -> None:
        super().__init__(why)
        self.why, self.pause = why, pause


def held_of(
    holders: Sequence[Sequence[int]], stride: int, blocks: int
) -> tuple[float, dict[int, float]]:
    """Of the prompt's blocks, as parts of one: those that somebody holds from the first one on, and
    of these the ones each node holds. holders: of every stride-th block."""
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
    """Made by the proxy; start() and stop() in its loop. agent: a socket, "" for this host's."""

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
        self._told: dict[str, str] = {}  # what was logged of each model's card
        self._hosts: Hosts | None = None
        self._asking = 0
        self._late = 0
        self._pause_s = self._until = 0.0
        self._wanted = asyncio.Event()  # a card that was never asked for

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
        """For people: which node's memory an instance's host has; "" where no node is known."""
        hosts = self._hosts
        return {} if hosts is None else {one.host: hosts.name(one.host) for one in self._fleet}

    # ---- In a request --------------------------------------------------------------------------

    async def held(
        self, request: Mapping[str, Any], headers: Mapping[str, str], blocks: int
    ) -> Held | None:
        """blocks: the prompt's, as the proxy counts them. None: choose without."""
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
        """Whether there are instances on several hosts: those of one host have one pool."""
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
        """What was read of it; one that was never asked for is read with the next round."""
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
    """Whether there is the socket that mckv.Client() would look for."""
    named = os.environ.get("MC_AGENT")
    usual = ("/run/mc/agent.sock", f"/dev/shm/mc-{os.getuid()}/agent.sock")
    return any(os.path.exists(one) for one in ([named] if named else usual))


def _read_card(pool: Pool, model: str) -> tuple[Card | None, str]:
    """And why there is none."""
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
    """held_of() the prompt; None when the agent does not say. Raises ValueError: no tokens."""
    # An engine computes the last token itself.
    blocks = max(len(prompt) - 1, 0) // card.block_tokens
    hashes = card.hashes(prompt, min(blocks, MAX_BLOCKS))
    if not hashes:
        return 0.0, {}
    stride = -(-len(hashes) // MAX_KEYS)
    keys = [card.key(one) for one in hashes[stride - 1 :: stride]]
    holders = hosts.holders(pool, namespace, keys)
    return None if holders is None else held_of(holders, stride, blocks)
