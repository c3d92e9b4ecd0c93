# SPDX-License-Identifier: Apache-2.0
"""Stores on two hosts of a cluster: removals by pattern, replicas, preferred segments, tasks."""

import time

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
    # A new master knows that an object is nowhere when all hosts have reported.
    until(lambda: not stores[0]._client.ask({"verb": "cluster"})["master"]["recovering"])
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


def segments_of(store, key):
    found = store.get_replica_desc(key)
    return [one.get_memory_descriptor().buffer_descriptor.transport_endpoint for one in found]


def test_an_object_lies_in_its_preferred_segment(two_stores, memory_of, key):
    here, there = two_stores
    config = mooncake.store.ReplicateConfig()
    assert there.put(key("of there"), b"v") == 0 and here.put(key("of here"), b"v") == 0
    (segment,) = segments_of(here, key("of there"))
    (own,) = segments_of(here, key("of here"))
    config.preferred_segment = segment
    config.preferred_segments = [own]  # preferred_segment comes first
    assert here.put(key("a"), b"v" * 100, config) == 0
    assert here.put_batch([key("b"), key("c")], [b"b", b"c"], config) == 0
    memory = memory_of(here)
    assert here.put_from(key("d"), memory.address, 100, config) == 0
    assert here.batch_put_from([key("e")], [memory.address], [100], config) == [0]
    for name in "abcde":
        assert segments_of(there, key(name)) == [segment], name
    assert here.get(key("a")) == b"v" * 100 and there.get(key("d")) == memory.bytes(0, 100)
    assert here.batch_put_session_start([key("f")], [10], config) == [0]
    assert here.batch_put_session_end([key("f")]) == [0]
    assert segments_of(here, key("f")) == [own]


def test_segments_that_no_host_has_are_ignored(two_stores, key):
    here, there = two_stores
    assert there.put(key("of there"), b"v") == 0 and here.put(key("of here"), b"v") == 0
    (segment,) = segments_of(here, key("of there"))
    (own,) = segments_of(here, key("of here"))
    config = mooncake.store.ReplicateConfig()
    config.preferred_segment = "nobody:1"
    assert here.put(key("a"), b"v", config) == 0 and segments_of(here, key("a")) == [own]
    config.preferred_segment = here.get_hostname()
    assert here.put(key("b"), b"v", config) == 0 and segments_of(here, key("b")) == [own]
    config.preferred_segment = ""
    config.preferred_segments = ["nobody:1", segment]
    assert here.put(key("c"), b"v", config) == 0 and segments_of(here, key("c")) == [segment]


def ended(store, task):
    def is_over():
        found, code = store.query_task(task)
        assert code == 0 and found.id == task
        return found.status in (mooncake.store.TaskStatus.SUCCESS, mooncake.store.TaskStatus.FAILED)

    until(is_over)
    return store.query_task(task)[0]


def test_tasks_copy_and_move_an_object(two_stores, key):
    here, there = two_stores
    before = time.time() * 1000 - 1000
    assert there.put(key("of there"), b"v") == 0 and here.put(key("a"), b"v") == 0
    (segment,) = segments_of(here, key("of there"))
    (own,) = segments_of(here, key("a"))
    task, code = here.create_copy_task(key("a"), [segment])
    assert code == 0
    copied = ended(there, task)  # any store knows the task
    assert (copied.type, copied.status, copied.message) == (0, 3, "")
    assert before < copied.created_at_ms_epoch <= copied.last_updated_at_ms_epoch
    assert sorted(segments_of(here, key("a"))) == sorted([own, segment])
    task, code = there.create_move_task(key("of there"), segment, own)
    assert code == 0 and ended(here, task).type == mooncake.store.TaskType.REPLICA_MOVE
    until(lambda: segments_of(here, key("of there")) == [own])
    assert there.get(key("of there")) == b"v"


def test_tasks_that_cannot_begin_have_mooncakes_codes(two_stores, key):
    here, there = two_stores
    assert there.put(key("of there"), b"v") == 0 and here.put(key("a"), b"v") == 0
    (segment,) = segments_of(here, key("of there"))
    (own,) = segments_of(here, key("a"))
    assert here.create_copy_task(key("none"), [segment]) == ((0, 0), -704)
    assert here.create_move_task(key("none"), own, segment) == ((0, 0), -704)
    assert here.create_copy_task(key("a"), ["nobody:1"]) == ((0, 0), -600)
    assert here.create_copy_task(key("a"), []) == ((0, 0), -600)
    assert here.create_move_task(key("a"), segment, own) == ((0, 0), -600)
    assert here.create_move_task(key("a"), own, own) == ((0, 0), -600)
    assert here.query_task((1, 1 << 40)) == (None, -1400)


def test_a_store_clears_another_hosts_segment(two_stores, key):
    """The copies come from tasks: the master would make a copy that replica_num asks for again."""
    here, there = two_stores
    names = [key(i) for i in range(3)]
    assert here.put_batch(names[:2], [b"v"] * 2) == 0 and there.put(names[2], b"v") == 0
    (own,), (other,) = segments_of(here, names[0]), segments_of(here, names[2])
    task, code = here.create_copy_task(names[0], [other])
    assert code == 0 and ended(here, task).status == mooncake.store.TaskStatus.SUCCESS
    assert here.batch_replica_clear(names, other) == [names[0], names[2]]
    until(lambda: [segments_of(here, one) for one in names] == [[own], [own], []])
    assert here.batch_is_exist(names) == [1, 1, 0]


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
