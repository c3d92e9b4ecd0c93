# SPDX-License-Identifier: Apache-2.0
"""The proxy asks the pool who holds what: two agents on two addresses, a master, real servers."""

import asyncio
import contextlib
import dataclasses
import itertools
import os
import sys
import time

import pytest

pytest.importorskip("aiohttp", reason="mckv[proxy] is not installed")
pytest.importorskip("prometheus_client", reason="mckv[proxy] is not installed")
sys.path.insert(0, os.path.dirname(__file__))

import mckv  # noqa: E402
from cluster import cluster, in_loop, until  # noqa: E402
from engine import prompt_tokens  # noqa: E402
from machine import WATCHDOG_S, free_port  # noqa: E402
from mckv._block_keys import Card, card_key, sample_tokens  # noqa: E402
from mckv.proxy import hosts  # noqa: E402
from mckv.proxy.choice import Candidate, Held, missing_blocks  # noqa: E402
from mckv.proxy.pool import held_of  # noqa: E402

HOSTS = ("127.0.0.2", "127.0.0.3")
BLOCK = 16
PROMPT = 2048  # tokens
WARM = "warm " * 60
_names = itertools.count()


def card_of(sample=None):
    made = Card(b"vllm/0123/", BLOCK, "sha256", b"\1" * 32, b"")
    (right,) = made.hashes(sample_tokens(BLOCK), 1)
    return dataclasses.replace(made, sample=sample or right)


def new_prompt(length=PROMPT):
    """Text that nobody has seen."""
    name = f"{os.getpid()} {next(_names)} "
    return (name * (length // len(name) + 1))[:length]


def save(client, prompt, blocks=None, begin=0):
    """What an engine does: its blocks of the prompt are in the pool of its host."""
    card = card_of()
    hashes = card.hashes(prompt if isinstance(prompt, list) else prompt_tokens(prompt), 4096)
    for one in hashes[begin:blocks]:
        client.put(card.key(one), b"a block")


class Nodes:
    """Two agents, and a client of each."""

    def __init__(self, make_agent):
        master = f"{HOSTS[0]}:{free_port()}"
        common = {"pool_bytes": "64MiB", "max_pool_bytes": "64MiB", "huge_pages": "off"}
        self.agents = [
            make_agent(**common, listen=f"{HOSTS[0]}:0", master_listen=master),
            make_agent(**common, listen=f"{HOSTS[1]}:0", masters=master),
        ]
        self.clients = [mckv.Client(one.socket) for one in self.agents]
        deadline = time.monotonic() + WATCHDOG_S
        while any(self.members(one) < 2 for one in self.clients):
            assert time.monotonic() < deadline, "the agents do not find one another"
            time.sleep(0.02)
        self.clients[0].put(card_key("tiny"), card_of().encode())

    @staticmethod
    def members(client):
        found = client.ask({"verb": "status"})["cluster"]
        return found["members"] if found["master_ready"] else 0


@pytest.fixture(scope="module")
def nodes(make_module_agent):
    made = Nodes(make_module_agent)
    yield made
    for one in made.clients:
        one.close()


def wait_for_the_pool(c, seconds=WATCHDOG_S):
    """A proxy waits longer for the pool than the option allows: a slow answer is an answer too."""
    c.proxy.pool._wait_s = seconds


@contextlib.asynccontextmanager
async def asking(agent, **options):
    """A proxy that asks the agent, before two engines on two hosts; it knows the model's card."""
    async with cluster(agent=agent.socket, **{"hosts": HOSTS, **options}) as c:
        if "pool_wait_seconds" not in options:
            wait_for_the_pool(c)
        await c.ask(WARM)
        view = c.proxy.pool
        await until(lambda: view._hosts is not None and view._cards.get("tiny") is not None)
        yield c


async def outcomes(c, *names):
    return [await c.metric(f'mckv_proxy_pool_questions_total{{outcome="{one}"}}') for one in names]


def chosen(c):
    return [sum(body["prompt"] != WARM for body in one.prompts) for one in c.decode]


# ---- Pure --------------------------------------------------------------------------------------


def test_the_longest_run_that_somebody_holds_counts_and_who_holds_how_much_of_it():
    assert held_of([[1], [1, 2], [2], [], [1]], 1, 4) == (0.75, {1: 0.5, 2: 0.5})
    assert held_of([[1], [1]], 4, 7) == (1.0, {1: 1.0})  # 8 of 7: the last stride is shorter
    assert held_of([[], [1]], 1, 2) == (0, {}) and held_of([], 1, 1) == (0, {})


def test_a_block_of_another_host_costs_a_quarter():
    held = Held(40, {"a": 24})
    for host, cost in (("a", 10 + 16 / 4 + 24 / 8), ("b", 10 + 40 / 4)):
        one = Candidate(1, host, 0, 0.0)
        assert missing_blocks(one, 50, {}, held.on_host, held.anywhere) == cost
    both = Candidate(2, "a", 0, 0.0)
    assert missing_blocks(both, 50, {2: 50}, held.on_host, held.anywhere) == 0


# ---- Two hosts ---------------------------------------------------------------------------------


def test_an_agent_tells_of_many_keys_at_once_who_holds_them(nodes, key):
    first, second = nodes.clients
    names = [key(i) for i in range(256)]
    for i, one in enumerate(names):
        (first, second)[i % 2].put(one, b"x")
    ids = {
        one["address"].split(":")[0]: one["node"] for one in first.ask({"verb": "nodes"})["nodes"]
    }
    found = first.ask({"verb": "where", "keys": [*names[:255], "not there"]})["holders"]
    assert found == [[ids[HOSTS[i % 2]]] for i in range(255)] + [[]]
    for odd in ([], {}, "key", [1], [["key"]], names + ["one too many"]):
        with pytest.raises(mckv.InvalidArgumentError, match="1 to 256 keys"):
            first.ask({"verb": "where", "keys": odd})
    with pytest.raises(mckv.NoSuchNamespaceError):
        first.ask({"verb": "where", "keys": names[:1], "namespace": "of nobody"})
    # Values of another type than is asked for end no agent.
    for verb, odd in itertools.product(
        ("where", "replicate", "drain", "ping"),
        ("namespace", "key", "keys", "replicas", "node", "stop"),
    ):
        for value in ([1], {"a": {}}, -1, 1.5, "x", True, 1 << 64):
            with contextlib.suppress(mckv.McError):
                first.ask({"verb": verb, "key": "no such", odd: value})
    assert first.ask({"verb": "where", "key": names[0]})["found"]


@in_loop
async def test_a_prompt_goes_where_the_pool_has_it_though_the_proxy_never_saw_it(nodes):
    async with asking(nodes.agents[0]) as c:
        for turn in (0, 1, 1, 0, 1, 0, 0):
            prompt = new_prompt()
            save(nodes.clients[turn], prompt)
            before = chosen(c)
            assert (await c.ask(prompt))[0] == 200
            after = chosen(c)
            assert after[turn] == before[turn] + 1, (turn, before, after)
        assert await outcomes(c, "answered", "late", "failed") == [7, 0, 0]
        # Seven prompts of eight blocks of 256 characters.
        for name in ("held", "held_near"):
            assert await c.metric(f"mckv_proxy_{name}_blocks_total") == pytest.approx(7 * 8)
        assert await c.metric("mckv_proxy_pool_seconds_count") == 7


@in_loop
async def test_who_has_more_of_it_gets_it(nodes):
    async with asking(nodes.agents[1]) as c:
        for more, less in ((0, 1), (1, 0)):
            prompt = new_prompt()
            save(nodes.clients[more], prompt, 100)
            save(nodes.clients[less], prompt, 20)
            before = chosen(c)
            await c.ask(prompt)
            assert chosen(c)[more] == before[more] + 1
            # The beginning is gone: the rest is of no use.
            prompt = new_prompt()
            save(nodes.clients[less], prompt, 40)
            save(nodes.clients[more], prompt, 120, begin=60)
            before = chosen(c)
            await c.ask(prompt)
            assert chosen(c)[less] == before[less] + 1


@in_loop
async def test_an_engine_with_too_much_to_do_is_left_to_its_work(nodes):
    async with asking(nodes.agents[0]) as c:
        prompt = new_prompt()
        save(nodes.clients[1], prompt)
        c.decode[1].gate = asyncio.Event()
        waiting = [asyncio.create_task(c.ask(prompt)) for _ in range(6)]
        await until(lambda: sum(chosen(c)) == 6)
        there, elsewhere = chosen(c)[1], chosen(c)[0]
        assert there >= 1 and elsewhere >= 1
        c.decode[1].gate.set()
        assert [one[0] for one in await asyncio.gather(*waiting)] == [200] * 6


@pytest.mark.parametrize("kind", ["tokens", "chat", "prefill"])
@in_loop
async def test_prompts_of_tokens_chats_and_prefillers(nodes, kind):
    roles = {"prefill": 2, "decode": 1, "way": "sequential"} if kind == "prefill" else {}
    async with asking(nodes.agents[0], **roles) as c:
        for turn in (1, 0, 1, 0):
            text = new_prompt()
            asked = {"prompt": text}
            path = "/v1/completions"
            if kind == "tokens":
                asked["prompt"] = tokens = [1000 + ord(one) for one in text]
            elif kind == "chat":
                path = "/v1/chat/completions"
                asked["messages"] = [{"role": "user", "content": text}]
                tokens = prompt_tokens(asked["messages"])
            else:
                tokens = prompt_tokens(text)
            save(nodes.clients[turn], tokens)
            engines = c.prefill or c.decode
            before = [len(one.prompts) for one in engines]
            assert (await c.ask(path=path, **asked))[0] == 200
            assert len(engines[turn].prompts) == before[turn] + 1
        tokenized = sum(one.tokenized for one in c.prefill + c.decode)
        assert tokenized == (0 if kind == "tokens" else 4)


@in_loop
async def test_what_the_pool_cannot_tell_is_chosen_as_without_it(nodes):
    async with asking(nodes.agents[0]) as c:
        unknown = sum(await outcomes(c, "no_card"))
        prompt = new_prompt()
        image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
        text = {"role": "user", "content": prompt}
        assert (await c.ask(prompt, cache_salt="s"))[0] == 200
        chat = {"path": "/v1/chat/completions"}
        assert (await c.ask(**chat, messages=[text, image]))[0] == 200
        assert (await c.ask([2**40] * 100))[0] == 200
        assert (await c.ask(prompt, model="of no card"))[0] == 200
        assert (await c.ask(prompt, model=7))[0] == 200
        assert await outcomes(c, "no_tokens", "no_card") == [3, unknown + 2]
        c.decode[0].tokenize_status = c.decode[1].tokenize_status = 404
        assert (await c.ask(new_prompt()))[0] == 200
        assert (await c.ask(new_prompt()))[0] == 200
        assert await outcomes(c, "no_tokens", "paused") == [4, 1]


@in_loop
async def test_no_request_waits_for_long_or_for_who_is_always_late(nodes):
    async with asking(nodes.agents[0], pool_wait_seconds=0.02) as c:
        for one in c.decode:
            one.tokenize_gate = asyncio.Event()
        for _ in range(6):
            assert (await c.ask(new_prompt()))[0] == 200
        assert await outcomes(c, "late", "paused") == [3, 3]
        assert sum(one.tokenized for one in c.decode) == 3


@in_loop
async def test_engines_of_one_host_are_chosen_without_asking(nodes):
    async with cluster(decode=2, agent=nodes.agents[0].socket) as c:
        await c.ask(new_prompt())
        assert sum(one.tokenized for one in c.decode) == 0
        assert await outcomes(c, "answered", "no_card", "no_agent") == [0, 0, 0]


@in_loop
async def test_a_proxy_without_an_agent_answers_all_the_same(tmp_path):
    async with cluster(agent=str(tmp_path / "none.sock"), hosts=HOSTS) as c:
        wait_for_the_pool(c)
        for _ in range(3):
            assert (await c.ask(new_prompt()))[0] == 200
        assert await outcomes(c, "no_agent") == [3]


@in_loop
async def test_an_agent_without_a_cluster_knows_of_its_own_host(make_agent, monkeypatch):
    agent = make_agent()
    with mckv.Client(agent.socket) as client:
        client.put(card_key("tiny"), card_of().encode())
        monkeypatch.setattr(hosts, "_is_here", lambda address: address == HOSTS[1])
        async with asking(agent) as c:
            for _ in range(3):
                prompt = new_prompt()
                save(client, prompt)
                before = chosen(c)
                await c.ask(prompt)
                assert chosen(c)[1] == before[1] + 1


@in_loop
async def test_an_agent_that_dies_costs_nothing_but_its_knowledge(make_agent):
    agent = make_agent(listen=f"{HOSTS[0]}:0", master_listen=f"{HOSTS[0]}:{free_port()}")
    with mckv.Client(agent.socket) as client:
        client.put(card_key("tiny"), card_of().encode())
    async with asking(agent) as c:
        assert (await c.ask(new_prompt()))[0] == 200
        assert await outcomes(c, "answered") == [1]
        before = sum(await outcomes(c, "no_agent"))  # while the proxy started
        agent.end(9)
        wait_for_the_pool(c, seconds=1)
        for _ in range(4):
            assert (await c.ask(new_prompt()))[0] == 200
        answered, tried, late, paused, known = await outcomes(
            c, "answered", "failed", "late", "paused", "no_agent"
        )
        known -= before
        assert answered == 1 and tried + late + paused + known == 4
        # A question notices the death, or the look at the agent in the background does.
        assert tried + late >= 1 or known == 4


@in_loop
async def test_a_card_that_is_no_card_is_not_believed(make_agent):
    agent = make_agent()
    with mckv.Client(agent.socket) as client:
        client.put(card_key("tiny"), card_of(sample=b"\2" * 32).encode())
        async with cluster(agent=agent.socket, hosts=HOSTS) as c:
            wait_for_the_pool(c)
            await c.ask(new_prompt())
            view = c.proxy.pool
            await until(lambda: "another version" in view._told.get("tiny", ""))
            assert (await c.ask(new_prompt()))[0] == 200
            assert await outcomes(c, "no_card", "no_agent", "answered") in ([2, 0, 0], [1, 1, 0])
