# SPDX-License-Identifier: Apache-2.0
"""An engine as the proxy sees one: an OpenAI server, and a prefiller's bootstrap server.

It speaks the protocol of vLLM's MooncakeConnector: a prefiller offers what it computed under the
transfer id, a decoder waits for the offer and takes it, once. Its tokens are a function of the
prompt. How it misbehaves is set by its attributes. As a program: engine.py PORT, a lone decoder.
"""

import asyncio
import contextlib
import hashlib
import json
import sys

from aiohttp import web

TOKENS = 8


def tokens_of(body):
    """What a request's answer says, whoever serves it."""
    prompt = body.get("messages", body.get("prompt"))
    digest = hashlib.sha256(json.dumps(prompt).encode()).hexdigest()
    return [digest[4 * i : 4 * i + 4] for i in range(min(body.get("max_tokens", TOKENS), TOKENS))]


def prompt_tokens(prompt):
    """How its tokenizer cuts text; with a template for messages."""
    if isinstance(prompt, str):
        return [ord(one) for one in prompt]
    return [1, *(ord(one) for message in prompt for one in message["content"]), 2]


class Wire:
    """What prefillers have offered: (engine id, transfer id) -> an event."""

    def __init__(self):
        self._offers = {}

    def of(self, engine_id, transfer_id):
        return self._offers.setdefault((engine_id, transfer_id), asyncio.Event())


class Engine:
    def __init__(self, role, wire, name, ranks=1, host="127.0.0.1"):
        self.role, self.wire, self.name, self.host = role, wire, name, host
        self.ids = {str(rank): {"engine_id": f"{name}-{rank}", "worker_addr": {"0": {"0": "tcp://x"}}}
                    for rank in range(ranks)}  # fmt: skip
        self.prompts = []  # of the requests that were served, whole bodies
        self.running = 0
        self.peak = 0
        self.cancelled = 0
        self.ready = True  # what /health says
        self.status = 200
        self.break_after = None  # tokens, after which the connection breaks; 0: before the first
        self.gate = None  # an event that every answer waits for before its first token
        self.step = None  # the same between tokens
        self.first_event = None  # what a stream begins with instead
        self.tokenize_status = 200
        self.tokenize_gate = None  # an event that /tokenize waits for
        self.tokenized = 0
        self.port = self.bootstrap_port = 0

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    async def start(self, port=0):
        app = web.Application(client_max_size=1 << 30)
        app.add_routes([
            web.get("/health", self.health), web.get("/v1/models", self.models),
            web.post("/v1/completions", self.complete),
            web.post("/v1/chat/completions", self.complete), web.post("/tokenize", self.tokenize),
        ])  # fmt: skip
        bootstrap = web.Application()
        bootstrap.add_routes([web.get("/query", self.query)])
        self._runners = []
        for one, at in ((app, port), (bootstrap, 0)):
            runner = web.AppRunner(
                one, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            await web.TCPSite(runner, self.host, at, backlog=1024).start()
            self._runners.append(runner)
        self.port, self.bootstrap_port = (one.addresses[0][1] for one in self._runners)
        return self

    async def stop(self):
        for runner in self._runners:
            await runner.cleanup()
        self._runners = []

    async def health(self, request):
        return web.Response(status=200 if self.ready else 503)

    async def models(self, request):
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})

    async def query(self, request):
        return web.json_response(self.ids)

    async def tokenize(self, request):
        self.tokenized += 1
        if self.tokenize_gate is not None:
            await self.tokenize_gate.wait()
        body = await request.json()
        tokens = prompt_tokens(body.get("messages", body.get("prompt")))
        return web.json_response({"tokens": tokens}, status=self.tokenize_status)

    async def complete(self, request):
        body = await request.json()
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self._complete(request, body)
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _complete(self, request, body):
        self.prompts.append(body)
        if self.status != 200:
            return web.json_response({"error": {"message": self.name}}, status=self.status)
        if self.gate is not None:
            await self.gate.wait()
        if self.break_after == 0:
            request.transport.abort()
            raise ConnectionResetError
        params = body.get("kv_transfer_params") or {}
        if params.get("do_remote_decode") and "transfer_id" in params:
            rank = request.headers.get("X-data-parallel-rank", "0")
            self.wire.of(self.ids[rank]["engine_id"], params["transfer_id"]).set()
        if params.get("do_remote_prefill"):
            offer = self.wire.of(params["remote_engine_id"], params["transfer_id"])
            await asyncio.wait_for(offer.wait(), 60)
        tokens = tokens_of(body)
        if not body.get("stream"):
            answer = {"choices": [{"text": " ".join(tokens)}], "server": self.name}
            if params.get("do_remote_decode") and "transfer_id" not in params:
                answer["kv_transfer_params"] = {"remote_block_ids": [1, 2], "from": self.name}
            return web.json_response(answer)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if self.first_event is not None:
            await response.write(self.first_event)
            return response
        for i, token in enumerate(tokens):
            if self.break_after == i:
                request.transport.abort()
                raise ConnectionResetError
            event = {"choices": [{"text": token}], "server": self.name}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            if self.step is not None:
                await self.step.wait()
        await response.write(b"data: [DONE]\n\n")
        return response


async def main():
    engine = await Engine("decode", Wire(), "process").start(int(sys.argv[1]))
    engine.step = asyncio.Event()  # for ever, after the first token
    print(engine.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
