# SPDX-License-Identifier: Apache-2.0
"""Checks the health of every instance, and reads the engine ids of prefillers.

One task per instance, until the instance leaves. A restarted engine has a new engine id, so a
prefiller is healthy only if the same round has read its engine id.
"""

from __future__ import annotations

import asyncio
import json
import logging

import aiohttp

from mckv.proxy import protocol
from mckv.proxy.instances import Fleet, Instance

logger = logging.getLogger("mckv.proxy")

_MAX_ANSWER_BYTES = 1 << 20


class Health:
    """The tasks of all instances. stop() ends the tasks."""

    def __init__(
        self,
        fleet: Fleet,
        session: aiohttp.ClientSession,
        *,
        way: str,
        interval_s: float,
        timeout_s: float,
        failures: int,
    ) -> None:
        self._fleet, self._session, self._way = fleet, session, way
        self._interval_s, self._failures = interval_s, failures
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._tasks: set[asyncio.Task[None]] = set()

    async def watch(self, instance: Instance) -> None:
        """Checks once and returns; further checks run in the background."""
        await self._ask(instance)
        task = asyncio.create_task(self._keep_asking(instance))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_asking(self, instance: Instance) -> None:
        while not instance.leaving:
            await asyncio.sleep(self._interval_s)
            await self._ask(instance)

    async def _ask(self, instance: Instance) -> None:
        why = await self._why_not(instance)
        if instance.leaving:
            return
        if why is None:
            if not instance.healthy:
                logger.info("instance=%s role=%s healthy=true", instance.url, instance.role)
                instance.came_back()
                self._fleet.wake_all()
            instance.failures = 0
            return
        instance.failures += 1
        if instance.healthy and instance.failures >= self._failures:
            logger.warning(
                "instance=%s role=%s healthy=false cause=%r", instance.url, instance.role, why
            )
            instance.went_away(why)
            self._fleet.wake_all()
        elif not instance.healthy:
            instance.why = why

    async def _why_not(self, instance: Instance) -> str | None:
        """The reason why the instance may get no request; None for a healthy instance."""
        try:
            async with self._session.get(
                f"{instance.url}/health", timeout=self._timeout, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    return f"/health answers {answer.status}"
            if instance.role == "prefill" and self._way == protocol.MOONCAKE:
                async with self._session.get(
                    f"{instance.bootstrap}/query", timeout=self._timeout, allow_redirects=False
                ) as answer:
                    if answer.status != 200:
                        return f"bootstrap server: /query answers {answer.status}"
                    text = await answer.content.read(_MAX_ANSWER_BYTES)
                instance.engine_ids = protocol.engine_ids(json.loads(text))
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"[:200]
        return None
