# SPDX-License-Identifier: Apache-2.0
"""The proxy before real HTTP servers that speak the engines' protocol."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("aiohttp", reason="mckv[proxy] is not installed")
pytest.importorskip("prometheus_client", reason="mckv[proxy] is not installed")
sys.path.insert(0, os.path.dirname(__file__))

from cluster import KEY, cluster, in_loop, until  # noqa: E402
from engine import Engine, tokens_of  # noqa: E402
from machine import WATCHDOG_S  # noqa: E402


def texts(events):
    return [one["choices"][0]["text"] for one in events if one]


def expected(prompt, **more):
    return tokens_of({"prompt": prompt, **more})


# ---- Passing on --------------------------------------------------------------------------------


@in_loop
async def test_answers_and_streams_pass_through():
    async with cluster(decode=1) as c:
        assert texts(await c.streamed("a b c")) == expected("a b c")
        status, answer = await c.ask("a b c", max_tokens=3)
        assert status == 200
        assert answer["choices"][0]["text"].split() == expected("a b c", max_tokens=3)
        messages = [{"role": "user", "content": "hi"}]
        status, answer = await c.ask(path="/v1/chat/completions", messages=messages)
        assert status == 200 and answer["choices"][0]["text"].split() == expected(messages)
        assert json.loads((await c.get("/v1/models"))[1])["data"][0]["id"] == "tiny"


@in_loop
async def test_tokens_come_as_the_engine_says_them():
    async with cluster(decode=1) as c:
        c.decode[0].step = step = asyncio.Event()
        async with c.stream() as events:
            first = await anext(events)
            assert first["choices"][0]["text"] == expected("hello")[0]
            assert not step.is_set()
            step.set()
            assert len([one async for one in events]) == 8


@in_loop
async def test_an_engines_own_refusal_is_the_answer():
    async with cluster(decode=2) as c:
        for engine in c.decode:
            engine.status = 422
        status, answer = await c.ask()
        assert status == 422 and answer["error"]["message"].startswith("decode")
        assert len(c.decode[0].prompts) + len(c.decode[1].prompts) == 1


# ---- Prefill and decode ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_mooncakes_way(stream):
    async with cluster(prefill=2, decode=2, ranks=3) as c:
        for i in range(6):
            if stream:
                assert texts(await c.streamed(f"p{i}")) == expected(f"p{i}")
            else:
                assert (await c.ask(f"p{i}", min_tokens=4, n=2))[0] == 200
        sent = [one for engine in c.prefill for one in engine.prompts]
        got = [one for engine in c.decode for one in engine.prompts]
        assert len(sent) == len(got) == 6
        transfers = {}
        for one in sent:
            assert (one["max_tokens"], one["stream"], one["n"]) == (1, False, 1)
            assert "min_tokens" not in one
            params = one["kv_transfer_params"]
            assert params["do_remote_decode"] is True and params["do_remote_prefill"] is False
            transfers[params["transfer_id"]] = one
        bootstraps = {f"http://127.0.0.1:{engine.bootstrap_port}" for engine in c.prefill}
        for one in got:
            params = one["kv_transfer_params"]
            assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
            assert transfers.pop(params["transfer_id"])["prompt"] == one["prompt"]
            assert params["remote_bootstrap_addr"] in bootstraps
            assert params["remote_engine_id"].startswith("prefill")
        assert len({one["kv_transfer_params"]["remote_engine_id"] for one in got}) > 1


@in_loop
async def test_the_sequential_way_passes_on_what_the_prefiller_says():
    async with cluster(prefill=1, decode=1, way="sequential") as c:
        assert texts(await c.streamed("a")) == expected("a")
        assert "transfer_id" not in c.prefill[0].prompts[0]["kv_transfer_params"]
        assert c.decode[0].prompts[0]["kv_transfer_params"] == {
            "remote_block_ids": [1, 2], "from": "prefill0",
        }  # fmt: skip


@in_loop
async def test_an_engine_that_was_restarted_is_called_by_its_new_id():
    async with cluster(prefill=1, decode=1) as c:
        await c.ask("a")
        c.prefill[0].ids = {"0": {"engine_id": "new", "worker_addr": {}}}
        (instance,) = c.proxy.fleet.of("prefill")
        await until(lambda: instance.engine_ids == {0: "new"})
        assert (await c.ask("b"))[0] == 200
        assert c.decode[0].prompts[-1]["kv_transfer_params"]["remote_engine_id"] == "new"


@in_loop
async def test_a_prefiller_that_fails_is_replaced_and_its_decoder_let_go():
    async with cluster(prefill=2, decode=2) as c:
        c.prefill[0].break_after = 0
        c.prefill[1].gate = asyncio.Event()
        c.prefill[1].gate.set()
        for i in range(4):
            assert texts(await c.streamed(f"p{i}")) == expected(f"p{i}")
        assert len(c.prefill[1].prompts) == 4
        await until(lambda: not any(one.running for one in c.decode))


@in_loop
async def test_without_a_healthy_prefiller_decoders_compute_prompts():
    async with cluster(prefill=1, decode=1) as c:
        await c.prefill[0].stop()
        assert texts(await c.streamed("a")) == expected("a")
        assert "kv_transfer_params" not in c.decode[0].prompts[-1]
        assert await c.metric("mckv_proxy_without_prefill_total") >= 1


@in_loop
async def test_a_prefillers_refusal_is_the_answer():
    async with cluster(prefill=1, decode=1) as c:
        c.prefill[0].status = 400
        for stream in (False, True):
            assert (await c.ask("a", stream=stream))[0] == 400
        await until(lambda: c.decode[0].running == 0)


# ---- Failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_before_the_first_token_another_instance_is_tried(stream):
    for fault in ("break", "error event", "500", "503"):
        if fault == "error event" and not stream:
            continue
        async with cluster(decode=2) as c:
            bad = c.decode[0]
            if fault == "break":
                bad.break_after = 0
            elif fault == "error event":
                bad.first_event = b'data: {"error": {"message": "load failed"}}\n\n'
            else:
                bad.status = int(fault)
            for i in range(3):
                if stream:
                    events = await c.streamed(f"p{i}")
                    assert texts(events) == expected(f"p{i}") and events[-1] is None
                else:
                    assert (await c.ask(f"p{i}"))[0] == 200
            assert len(bad.prompts) >= 1 and len(c.decode[1].prompts) == 3
            assert c.proxy.fleet.in_flight == 0


@in_loop
async def test_after_the_first_token_nothing_is_repeated_and_the_client_is_told():
    async with cluster(decode=2) as c:
        for engine in c.decode:
            engine.break_after = 3
        events = await c.streamed("a")
        assert texts([one for one in events if one and "choices" in one]) == expected("a")[:3]
        assert "the stream broke" in events[-1]["error"]["message"]
        assert len(c.decode[0].prompts) + len(c.decode[1].prompts) == 1
        assert await c.metric("mckv_proxy_broken_streams_total") == 1


@in_loop
async def test_an_instance_that_is_down_gets_nothing_until_it_is_back():
    async with cluster(decode=2) as c:
        down = c.decode[0]
        port = down.port
        await down.stop()
        for i in range(10):
            assert (await c.ask(f"p{i}"))[0] == 200
        assert len(c.decode[1].prompts) == 10
        await down.start(port)
        await until(lambda: all(one.healthy for one in c.proxy.fleet))
        await asyncio.gather(*(c.ask(f"q{i}") for i in range(10)))
        assert down.prompts


@in_loop
async def test_an_instance_that_says_so_gets_nothing():
    async with cluster(decode=2) as c:
        c.decode[0].ready = False
        await until(lambda: not all(one.healthy for one in c.proxy.fleet))
        for i in range(5):
            assert (await c.ask(f"p{i}"))[0] == 200
        assert c.decode[0].prompts == []
        _, text = await c.get("/status")
        assert (await c.get("/status", {"X-API-Key": KEY}))[0] == 200 and "401" in text


@in_loop
async def test_a_slow_instance_is_left_for_another_and_let_go():
    async with cluster(decode=2, first_byte_seconds=0.2, answer_seconds=0.2) as c:
        c.decode[0].gate = asyncio.Event()
        for stream in (True, False):
            before = len(c.decode[0].prompts)
            while len(c.decode[0].prompts) == before:
                assert (await c.ask(f"p{stream}{before}{len(c.decode[1].prompts)}"))[0] == 200
        await until(lambda: c.decode[0].running == 0)
        assert c.decode[0].cancelled >= 2


@in_loop
async def test_a_stream_that_stalls_ends_with_an_error():
    async with cluster(decode=1, idle_seconds=0.2) as c:
        c.decode[0].step = asyncio.Event()
        events = await c.streamed("a")
        assert len(events) == 2 and "in time" in events[-1]["error"]["message"]
        await until(lambda: c.decode[0].running == 0)


@in_loop
async def test_when_all_fail_the_reason_is_said():
    async with cluster(decode=3, retries=2) as c:
        for engine in c.decode:
            engine.status = 500
        status, answer = await c.ask()
        assert status == 502 and "answers 500" in answer["error"]["message"]
        assert sum(len(one.prompts) for one in c.decode) == 3
    async with cluster(decode=3, retries=2) as c:
        for engine in c.decode:
            engine.status = 429
        status, answer = await c.ask()
        assert status == 503 and "answers 429" in answer["error"]["message"]
    async with cluster(decode=1, retries=5) as c:
        c.decode[0].break_after = 0
        status, answer = await c.ask()
        assert status == 502 and "1 known, 1 failed" in answer["error"]["message"]
    async with cluster(decode=0) as c:
        assert (await c.ask())[0] == 503 and (await c.get("/health"))[0] == 503


@in_loop
async def test_a_client_that_goes_away_cancels_upstream():
    async with cluster(prefill=1, decode=1) as c:
        c.decode[0].step = asyncio.Event()
        async with c.stream() as events:
            await anext(events)
            assert c.decode[0].running == 1
        await until(lambda: c.decode[0].cancelled == 1)
        # Before the first token, at both instances.
        for engine in (*c.prefill, *c.decode):
            engine.gate = asyncio.Event()
        task = asyncio.create_task(c.streamed("b"))
        await until(lambda: c.prefill[0].running and c.decode[0].running)
        task.cancel()
        await until(lambda: not c.prefill[0].running and not c.decode[0].running)
        await until(lambda: c.proxy.fleet.in_flight == 0)
        assert await c.metric("mckv_proxy_cancelled_total") == 2


# ---- Limits ------------------------------------------------------------------------------------


@in_loop
async def test_bodies_are_bounded():
    async with cluster(decode=1, max_body_bytes=10_000) as c:
        assert (await c.ask("x" * 9_000))[0] == 200
        status, answer = await c.ask("x" * 10_000)
        assert status == 413 and "10000 bytes" in answer["error"]["message"]
        assert len(c.decode[0].prompts) == 1
    async with cluster(decode=1, max_answer_bytes=1024) as c:
        assert (await c.ask("x", max_tokens=8))[0] == 200
        c.decode[0].name = "long" * 1000
        status, answer = await c.ask("x")
        assert status == 502 and "more than 1024 bytes" in answer["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"5", b"\xff\xfe", b"{}", b'{"prompt": 5}', b'{"prompt": null}',
     b'{"prompt": "a", "stream": "yes"}', b"[" * 100_000],
)  # fmt: skip
@in_loop
async def test_bad_bodies_are_400_with_a_cause(body):
    async with cluster(decode=1) as c:
        for path in ("/v1/completions", "/v1/chat/completions"):
            async with c.session.post(c.url + path, data=body) as answer:
                assert answer.status == 400
                assert len((await answer.json())["error"]["message"]) > 10
        assert c.decode[0].prompts == []


@in_loop
async def test_paths_and_methods_that_are_not_there():
    async with cluster(decode=1) as c:
        assert (await c.get("/other"))[0] == 404
        assert (await c.get("/v1/completions"))[0] == 405


@in_loop
async def test_the_queue_is_bounded_and_in_order():
    async with cluster(decode=1, max_requests_per_instance=1, max_queue=2) as c:
        engine = c.decode[0]
        engine.gate = asyncio.Event()
        tasks = [asyncio.create_task(c.ask("p0"))]
        await until(lambda: engine.running == 1)
        for i in (1, 2):
            tasks.append(asyncio.create_task(c.ask(f"p{i}")))
            await until(lambda i=i: c.proxy.fleet.queued == i)
        assert (await c.ask("p3"))[0] == 429
        engine.gate.set()
        assert [status for status, _ in await asyncio.gather(*tasks)] == [200] * 3
        assert [one["prompt"] for one in engine.prompts] == ["p0", "p1", "p2"]
        assert engine.peak == 1 and c.proxy.fleet.in_flight == c.proxy.fleet.queued == 0


@in_loop
async def test_who_waits_too_long_is_told_and_who_leaves_the_queue_is_forgotten():
    async with cluster(decode=1, max_requests=1, queue_seconds=0.2) as c:
        engine = c.decode[0]
        engine.gate = asyncio.Event()
        running = asyncio.create_task(c.ask("p0"))
        await until(lambda: engine.running == 1)
        status, answer = await c.ask("p1")
        assert status == 503 and "no instance came free" in answer["error"]["message"]
        leaving = asyncio.create_task(c.ask("p2"))
        await until(lambda: c.proxy.fleet.queued == 1)
        leaving.cancel()
        await until(lambda: c.proxy.fleet.queued == 0)
        engine.gate.set()
        assert (await running)[0] == 200
        assert len(engine.prompts) == 1


@in_loop
async def test_200_streams_at_once():
    async with cluster(prefill=2, decode=3) as c:
        for engine in c.decode:
            engine.step = asyncio.Event()
        tasks = [asyncio.create_task(c.streamed(f"p{i}")) for i in range(200)]
        await until(lambda: sum(one.running for one in c.decode) == 200)
        assert c.proxy.fleet.in_flight == 200
        for engine in c.decode:
            engine.step.set()
        for i, events in enumerate(await asyncio.gather(*tasks)):
            assert texts(events) == expected(f"p{i}") and events[-1] is None
        # Each decoder has about an equal share.
        assert min(one.peak for one in c.decode) >= 50
        assert c.proxy.fleet.in_flight == 0
        assert await c.metric("mckv_proxy_in_flight_requests") == 0


# ---- Membership --------------------------------------------------------------------------------


@in_loop
async def test_instances_join_and_leave_at_run_time():
    async with cluster(decode=1) as c:
        new = await Engine("decode", c.wire, "new").start()
        status, answer = await c.admin("add", new)
        assert status == 200 and answer["healthy"] is True
        assert (await c.admin("add", new))[0] == 409
        await asyncio.gather(*(c.ask(f"p{i}") for i in range(10)))
        assert new.prompts and c.decode[0].prompts
        # Running requests of the removed instance end; no new request comes.
        new.step = asyncio.Event()
        c.decode[0].ready = False
        await until(lambda: sum(one.healthy for one in c.proxy.fleet) == 1)
        stream = asyncio.create_task(c.streamed("last"))
        await until(lambda: new.running == 1)
        c.decode[0].ready = True
        assert (await c.admin("remove", new))[1]["requests"] == 1
        assert (await c.admin("remove", new))[0] == 404
        await until(lambda: all(one.healthy for one in c.proxy.fleet))
        count = len(new.prompts)
        for i in range(5):
            assert (await c.ask(f"q{i}"))[0] == 200
        assert len(new.prompts) == count
        new.step.set()
        assert texts(await stream) == expected("last")
        status = json.loads((await c.get("/status", {"X-API-Key": KEY}))[1])
        assert status["decode_node_count"] == 1 and status["decode_nodes"] == [c.decode[0].url]
        await new.stop()


@in_loop
async def test_a_prefiller_joins_with_its_bootstrap_port():
    async with cluster(decode=1) as c:
        await c.ask("a")
        new = await Engine("prefill", c.wire, "new").start()
        assert (await c.admin("add", new))[1]["healthy"] is True
        assert (await c.ask("b"))[0] == 200 and len(new.prompts) == 1
        wrong = await Engine("prefill", c.wire, "wrong").start()
        status, answer = await c.admin("add", wrong, bootstrap_port=new.port)
        assert status == 200 and not answer["healthy"] and "404" in answer["why"]
        await new.stop()
        await wrong.stop()


@in_loop
async def test_only_who_has_the_key_changes_instances():
    async with cluster(decode=1) as c:
        for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": "wrong"}, {"X-API-Key": KEY + "s"}):
            for verb in ("add", "remove"):
                assert (await c.admin(verb, c.decode[0], headers=headers))[0] == 401
            assert (await c.get("/status", headers))[0] == 401
        assert (await c.ask())[0] == 200
    async with cluster(decode=1, admin_key="") as c:
        status, answer = await c.admin("remove", c.decode[0], headers={"X-API-Key": ""})
        assert status == 403 and "ADMIN_API_KEY" in answer["error"]["message"]
        assert (await c.get("/status"))[0] == 200


@pytest.mark.parametrize(
    "body",
    [{}, {"type": "both", "instance": "a:1"}, {"type": "decode"}, {"type": ["decode"]},
     {"type": "decode", "instance": "ftp://a:1"}, {"type": "decode", "instance": "http://a:99999"},
     {"type": "decode", "instance": "http://a/path"}, {"type": "decode", "instance": 5},
     {"type": "decode", "instance": "http://u:p@a:1"}, {"type": "decode", "instance": "a" * 300},
     {"type": "prefill", "instance": "a:1", "bootstrap_port": 0},
     {"type": "prefill", "instance": "a:1", "bootstrap_port": "8998"}],
)  # fmt: skip
@in_loop
async def test_bad_instances_are_400(body):
    async with cluster(decode=0) as c:
        for verb in ("add", "remove"):
            assert (await c.admin(verb, **body))[0] == 400


@in_loop
async def test_a_bearer_token_is_asked_for_where_one_is_set():
    async with cluster(decode=1, api_key="secret") as c:
        for text in ("", "Bearer", "Bearer secrets", "secret", "bearer secret"):
            headers = {"Authorization": text} if text else None
            assert (await c.ask(headers=headers))[0] == 401
            assert (await c.get("/v1/models", headers))[0] == 401
        assert c.decode[0].prompts == []
        assert (await c.ask(headers={"Authorization": "Bearer secret"}))[0] == 200
        assert (await c.get("/health"))[0] == (await c.get("/metrics"))[0] == 200


@in_loop
async def test_an_instance_that_joins_before_it_is_up_counts_once_it_is():
    async with cluster(decode=0, queue_seconds=60) as c:
        late = Engine("decode", c.wire, "late")
        await late.start()
        port = late.port
        await late.stop()
        status, answer = await c.admin("add", type="decode", instance=f"127.0.0.1:{port}")
        assert status == 200 and not answer["healthy"]
        assert (await c.ask())[0] == 503
        await late.start(port)
        await until(lambda: all(one.healthy for one in c.proxy.fleet))
        assert (await c.ask())[0] == 200
        await late.stop()


# ---- Choice ------------------------------------------------------------------------------------


@in_loop
async def test_a_conversation_stays_where_its_prefix_is():
    async with cluster(decode=4) as c:
        talks = [chr(ord("a") + i) * 4000 for i in range(8)]
        for turn in range(4):
            for i, text in enumerate(talks):
                assert (await c.ask(text))[0] == 200
                talks[i] = text + f"turn {turn} " * 100
        for i in range(8):
            start = chr(ord("a") + i) * 4000
            counts = [sum(p["prompt"].startswith(start) for p in one.prompts) for one in c.decode]
            assert sorted(counts) == [0, 0, 0, 4]
        assert all(one.prompts for one in c.decode)
        assert await c.metric("mckv_proxy_matched_blocks_total") > 300


# ---- The program -------------------------------------------------------------------------------


def test_as_processes_a_killed_engine_ends_its_stream(tmp_path):
    """kill -9 in the middle of a stream: the client is told, the proxy goes on, SIGTERM ends it."""
    here = os.path.dirname(__file__)
    engines = [
        subprocess.Popen(
            [sys.executable, os.path.join(here, "engine.py"), "0"],
            stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    ports = [int(one.stdout.readline()) for one in engines]
    proxy = subprocess.Popen(
        [sys.executable, "-m", "mckv", "proxy", "--port=0", "--drain-seconds=0.1", "--decode",
         *(f"127.0.0.1:{port}" for port in ports)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = next(line for line in proxy.stderr if "listening=" in line)
        port = int(line.split("listening=http://127.0.0.1:")[1].split()[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WATCHDOG_S)
        connection.request(
            "POST", "/v1/completions", json.dumps({"prompt": "a", "stream": True, "model": "m"})
        )
        answer = connection.getresponse()
        assert answer.status == 200 and answer.readline().startswith(b'data: {"choices"')
        engines[0].kill()
        engines[0].wait()
        engines[1].kill()
        engines[1].wait()
        rest = answer.read()
        assert b"the stream broke" in rest and b"[DONE]" not in rest
        connection.close()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a"}))
        assert connection.getresponse().status in (502, 503)
    finally:
        proxy.send_signal(signal.SIGTERM)
        said = proxy.communicate(timeout=WATCHDOG_S)[1]
        for one in engines:
            one.kill()
            one.wait()
    assert proxy.returncode == 0, said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prot=5"], "did you mean --port"),
        (["--port=70000"], "0..65535"),
        (["--retries=many"], "no number"),
        (["--decode", "http://a/b"], "HOST:PORT"),
        (["--prefill", "a:1", "b"], "BOOTSTRAP-PORT"),
        (["--way=other"], "mooncake, sequential"),
        (["--log-level=loud"], "debug, info"),
    ],
)
def test_wrong_usage_says_what_would_be_right(arguments, said):
    done = subprocess.run(
        [sys.executable, "-m", "mckv", "proxy", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2 and said in done.stderr


def test_the_environment_is_read_and_flags_go_before_it(monkeypatch):
    from mckv.proxy.options import parse

    monkeypatch.setenv("MCKV_PROXY_RETRIES", "7")
    monkeypatch.setenv("MCKV_PROXY_PORT", "1")
    monkeypatch.setenv("ADMIN_API_KEY", "k")
    settings = parse(
        ["--port=2", "--prefill", "a:1", "99", "--prefill", "b:1", "--decode", "c", "d"]
    )
    assert (settings.retries, settings.port, settings.admin_key) == (7, 2, "k")
    assert settings.instances == [
        ("prefill", "http://a:1", 99), ("prefill", "http://b:1", 8998),
        ("decode", "http://c", 8998), ("decode", "http://d", 8998),
    ]  # fmt: skip
    monkeypatch.setenv("MCKV_PROXY_RETRIES", "x")
    with pytest.raises(SystemExit):
        parse([])
