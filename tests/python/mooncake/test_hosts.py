# SPDX-License-Identifier: Apache-2.0
"""Stores on two hosts of a cluster: removals by pattern, and replicas."""

import mooncake.store
import pytest
from machine import until

pytestmark = pytest.mark.ours_only


@pytest.fixture
def two_stores(hosts_of_module, monkeypatch):
    stores = []
    for agent in hosts_of_module:
        monkeypatch.setenv("MC_AGENT", agent.socket)
        store = mooncake.store.MooncakeDistributedStore()
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", "") == 0
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


def test_replicas_lie_on_both_hosts(two_stores, key):
    here, there = two_stores
    config = mooncake.store.ReplicateConfig()
    config.replica_num = 3  # more than hosts: as many as there are
    assert here.put(key, b"v", config) == 0
    until(lambda: len(there.get_replica_desc(key)) == 2)
    found = there.batch_get_replica_desc([key, key("none")])
    places = [one.get_memory_descriptor().buffer_descriptor for one in found.pop(key)]
    assert [one.size for one in places] == [1, 1] and not found
    assert len({one.transport_endpoint for one in places}) == 2
    assert there.remove(key) == 0 and here.is_exist(key) == 0


def test_a_cleared_segment_loses_its_copies_alone(two_stores, key):
    here, there = two_stores
    config = mooncake.store.ReplicateConfig()
    config.replica_num = 2
    names = [key(f"{i}.*|\u00e4") for i in range(3)]  # with characters of regular expressions
    assert here.put_batch(names[:2], [b"v"] * 2, config) == 0 and there.put(names[2], b"v") == 0
    until(lambda: all(len(one) == 2 for one in there.batch_get_replica_desc(names[:2]).values()))
    assert here.batch_replica_clear(names, "nobody:1") == []
    assert here.batch_replica_clear(names[1:], here.get_hostname()) == names[1:2]
    until(lambda: len(there.get_replica_desc(names[1])) == 1)
    assert len(there.get_replica_desc(names[0])) == 2
    assert here.batch_get_buffer(names).count(None) == 0
    assert here.batch_replica_clear(names) == names and there.batch_is_exist(names) == [0] * 3
