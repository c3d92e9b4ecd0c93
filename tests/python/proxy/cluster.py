# SPDX-License-Identifier: Apache-2.0
"""A proxy and its engines, real HTTP servers all, in the test's event loop."""

import asyncio
import contextlib
import functools
import json

import aiohttp
from engine import Engine, Wire
from mckv.proxy.options import settings_of
from mckv.proxy.server import running

KEY = "the key"


class Cluster:
    def __init__(self, proxy, port, session, prefill, decode, wire):
        self.proxy, self.url, self.session = proxy, f"http://127.0.0.1:{port}", session
        self.port, self.prefill, self.decode, self.wire = port, prefill, decode, wire

    async def ask(self, prompt="hello", path="/v1/completions", headers=None, **more):
        """(status, JSON) of a request without a stream."""
        body = {"model": "tiny", "prompt": prompt, **more}
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    @contextlib.asynccontextmanager
    async def stream(self, prompt="hello", **more):
        """Yields events as they come, the last one None for [DONE]."""
        body = {"model": "tiny", "prompt": prompt, "stream": True, **more}
        async with self.session.post(self.url + "/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"

            async def events():
                async for line in answer.content:
                    text = line.decode().strip()
                    if text == "data: [DONE]":
                        yield None
                    elif text:
                        yield json.loads(text.removeprefix("data: "))

            yield events()

    async def streamed(self, prompt="hello", **more):
        """All events of a stream."""
        async with self.stream(prompt, **more) as events:
            return [one async for one in events]

    async def admin(self, verb, engine=None, headers=None, **body):
        if engine is not None:
            body = {"type": engine.role, "instance": engine.url,
                    "bootstrap_port": engine.bootstrap_port, **body}  # fmt: skip
        headers = {"X-API-Key": KEY} if headers is None else headers
        url = f"{self.url}/instances/{verb}"
        async with self.session.post(url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path, headers=None):
        async with self.session.get(self.url + path, headers=headers) as answer:
            return answer.status, await answer.text()

    async def metric(self, name):
        _, text = await self.get("/metrics")
        found = [line for line in text.splitlines() if line.startswith(name + " ")]
        return float(found[0].split()[-1]) if found else 0.0


@contextlib.asynccontextmanager
async def cluster(
    prefill=0, decode=2, ranks=1, admin_key=KEY, api_key="", hosts=("127.0.0.1",), **options
):
    """hosts: of engines, in turn."""
    wire = Wire()
    engines = {
        role: [
            await Engine(role, wire, f"{role}{i}", ranks, hosts[i % len(hosts)]).start()
            for i in range(count)
        ]
        for role, count in (("prefill", prefill), ("decode", decode))
    }
    settings = settings_of(
        **{"port": 0, "health_interval_seconds": 0.05, "agent": "none", **options}
    )
    settings.admin_key, settings.api_key = admin_key, api_key
    settings.instances = [
        (role, one.url, one.bootstrap_port) for role, some in engines.items() for one in some
    ]
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        running(settings) as (proxy, port),
        aiohttp.ClientSession(connector=connector) as session,
    ):
        yield Cluster(proxy, port, session, engines["prefill"], engines["decode"], wire)
        for one in engines["prefill"] + engines["decode"]:
            await one.stop()


async def until(condition):
    """The watchdog ends a wait for what never comes."""
    while not condition():
        await asyncio.sleep(0.005)


def in_loop(test):
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run
