# SPDX-License-Identifier: Apache-2.0
"""is_exist, remove and their batches, by pattern, all; placement."""

import time

import pytest
from machine import WATCHDOG_S


def eventually(call, wanted):
    """Mooncake refuses to remove what was just read (-706) until its lease of 0.2 s ends."""
    deadline = time.monotonic() + WATCHDOG_S
    while (got := call()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return got


def test_is_exist(store, key):
    assert store.is_exist(key) == 0
    store.put(key, b"v")
    assert store.is_exist(key) == 1


def test_batch_is_exist(store, key):
    store.put(key(1), b"v")
    assert store.batch_is_exist([key(1), key(2), "", key(1)]) == [1, 0, 0, 1]
    assert store.batch_is_exist([]) == []


def test_remove(store, key):
    store.put(key, b"v")
    assert store.remove(key) == 0
    assert store.is_exist(key) == 0
    assert store.remove(key) == -704
    store.put(key, b"v")
    store.get(key)
    assert store.remove(key, True) == 0
    store.put(key, b"v")
    assert store.remove(key, force=True) == 0


def test_remove_needs_no_lease_to_end(store, key):
    store.put(key, b"v")
    assert store.get(key) == b"v" and store.is_exist(key) == 1
    assert store.remove(key) == 0


def test_batch_remove(store, key):
    store.put_batch([key(1), key(2)], [b"1", b"2"])
    assert store.batch_remove([key(1), key(3), key(2)]) == [0, -704, 0]
    store.put(key(1), b"1")
    assert store.batch_remove([key(1)], True) == [0]
    assert store.batch_remove([]) == []


def test_remove_by_regex(store, key):
    names = [key(i) for i in range(5)]
    store.put_batch(names, [b"v"] * 5)
    store.put("x" + names[0], b"v")
    escaped = key.replace(".", r"\.")
    assert store.remove_by_regex(f"^{escaped}\\.[0-3]$", True) == 4
    assert store.batch_is_exist([*names, "x" + names[0]]) == [0, 0, 0, 0, 1, 1]
    assert store.remove_by_regex(f"{escaped}\\.[0-4]$", force=True) == 2
    assert store.remove_by_regex("^nothing matches this$") == 0


def test_a_bad_pattern_is_a_bad_parameter(store):
    assert store.remove_by_regex("(") == -600


def test_remove_all_says_how_many(make_store, store, key):
    store.put_batch([key(i) for i in range(3)], [b"v"] * 3)
    assert store.remove_all(True) >= 3
    assert store.batch_is_exist([key(i) for i in range(3)]) == [0, 0, 0]
    assert store.remove_all(force=True) == 0
    assert store.remove_all() == 0


def test_replica_descriptors(store, key):
    import mooncake.store

    store.put(key, b"value")
    (one,) = store.get_replica_desc(key)
    assert one.is_memory_replica()
    assert not one.is_disk_replica() and not one.is_local_disk_replica()
    assert one.status == mooncake.store.ReplicaStatus.COMPLETE
    assert str(one.status) == "ReplicaStatus.COMPLETE"
    assert one.get_memory_descriptor().buffer_descriptor.size == 5
    assert ":" in one.get_memory_descriptor().buffer_descriptor.transport_endpoint
    assert store.get_replica_desc(key("none")) == []
    assert {k: len(v) for k, v in store.batch_get_replica_desc([key, key("none")]).items()} == {
        key: 1
    }


def test_replica_clear_removes(store, key):
    store.put(key, b"v")
    assert store.batch_replica_clear([key, key("none")]) == [key]
    assert store.is_exist(key) == 0


@pytest.mark.ours_only
def test_replica_clear_takes_the_name_of_a_segment(make_store, key):
    store = make_store(32 << 20)
    store.put(key, b"v")
    assert store.batch_replica_clear([key], "nobody:1") == [] and store.is_exist(key) == 1
    cleared = store.batch_replica_clear([key, key("none")], segment_name=store.get_hostname())
    assert cleared == [key]


@pytest.mark.ours_only
def test_a_copy_stays_while_another_store_has_a_segment(make_store, key):
    one, two = make_store(32 << 20), make_store(32 << 20)
    one.put(key, b"v")
    assert one.batch_replica_clear([key, key("none")], one.get_hostname()) == [key]
    assert two.get(key) == b"v"
    assert two.batch_replica_clear([key]) == [key] and one.get(key) == b""


def test_tasks_between_hosts_that_are_not_there(store, key):
    store.put(key, b"v")
    assert store.create_copy_task(key, ["nobody"])[1] == -600
    assert store.create_move_task(key, "nobody", "somebody")[1] == -600
    assert store.query_task((1, 2)) == (None, -1400)
    assert store.get_offload_rpc_read_count() == 0
