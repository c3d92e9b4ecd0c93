# SPDX-License-Identifier: Apache-2.0
"""Stores on two hosts of a cluster: removals by pattern reach the other host."""

import time

import mckv
import mooncake.store
import pytest
from machine import WATCHDOG_S, free_port

pytestmark = pytest.mark.ours_only


@pytest.fixture
def two_stores(make_agent, monkeypatch):
    master = f"127.0.0.1:{free_port()}"
    agents = [
        make_agent(listen=f"127.0.0.1:{free_port()}", **{option: master})
        for option in ("master_listen", "masters")
    ]
    with mckv.Client(agents[0].socket) as client:
        deadline = time.monotonic() + WATCHDOG_S
        while client.ask({"verb": "status"})["cluster"]["members"] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    stores = []
    for agent in agents:
        monkeypatch.setenv("MC_AGENT", agent.socket)
        store = mooncake.store.MooncakeDistributedStore()
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", master) == 0
        stores.append(store)
    yield stores
    for store in stores:
        store.close()


def test_removals_reach_the_other_host(two_stores, key):
    here, there = two_stores
    names = [key(i) for i in range(20)]
    assert here.put_batch(names[::2], [b"v"] * 10) == 0
    assert there.put_batch(names[1::2], [b"v"] * 10) == 0
    assert here.remove_by_regex(f"{key}.[0-3]$") == 4
    assert there.batch_is_exist(names) == [0] * 4 + [1] * 16
    assert here.remove_by_regex("a(?!b)") == -600
    assert there.remove_all() == 16
    assert here.batch_is_exist(names) == [0] * 20
