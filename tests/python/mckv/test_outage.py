# SPDX-License-Identifier: Apache-2.0
"""Without a master, no call says that there is no object, and this host's objects are served."""

import asyncio

import mckv
import mooncake.store
import pytest
from machine import run_master, until
from mckv._engine_pool import Pool


@pytest.fixture
def alone(make_agent, tmp_path):
    """An agent whose master has ended."""
    with run_master("outage") as master:
        agent = make_agent(masters=master, cluster_id="outage")
        with mckv.Client(agent.socket) as client:
            # A new master waits for reports before it says that there is no object.
            until(lambda: client.exists_batch(["nowhere"]) == [False])
            client.put("here", b"v")
    with mckv.Client(agent.socket, timeout=2) as client:
        until(lambda: not client.ask({"verb": "status"})["cluster"]["master_ready"])
        yield agent, client


def test_without_a_master_a_key_of_no_object_here_is_unknown(alone):
    _, client = alone
    for call in (
        lambda: client.get("nowhere"),
        lambda: client.get("nowhere", None),
        lambda: client.view("nowhere", None),
        lambda: client.exists("nowhere"),
        lambda: client.stat("nowhere"),
        lambda: client.get_into("nowhere", bytearray(1)),
    ):
        with pytest.raises(mckv.NoMasterError, match="mcctl cluster status"):
            call()
    names = ["here", "nowhere"]
    assert client.exists_batch(names) == [True, None]
    assert client.get_batch(names) == [b"v", None]
    assert [view is not None for view in client.view_batch(names)] == [True, False]
    assert client.get_into_batch(names, [bytearray(1), bytearray(1)]) == [
        1,
        -mckv.Status.NO_MASTER,
    ]
    assert client.remove_batch(["nowhere"], timeout=0.2) == [mckv.Status.NO_MASTER]

    async def get():
        async with mckv.AsyncClient(client) as pool:
            assert await pool.get("here") == b"v"
            await pool.get("nowhere", None)

    with pytest.raises(mckv.NoMasterError):
        asyncio.run(get())


def test_an_engine_goes_on_with_what_this_host_has(alone, caplog):
    agent, _ = alone
    pool = Pool(agent.socket, None, "engine", 2)
    names = [b"here", b"nowhere", b"here"]
    assert pool.leading(names) == 1 and pool.exists(names) == [True, False, True]
    assert pool.missing(names) == [False, True, False]
    assert [view is not None for view in pool.views(names)] == [True, False, True]
    assert caplog.text.count("no master answers") == 1
    pool.close()


def test_mooncake_names_answer_that_no_master_is_there(alone, monkeypatch):
    agent, _ = alone
    monkeypatch.setenv("MC_AGENT", agent.socket)
    store = mooncake.store.MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", "") == 0
    assert store.batch_is_exist(["here", "nowhere"]) == [1, -900]
    assert store.is_exist("nowhere") == 0  # callers use the result as a truth value
    assert store.get("here") == b"v" and store.get("nowhere") == b""
    assert store.get_size("nowhere") == -900
    assert store.get_into("nowhere", 0, 0) < 0
    store.close()
