# SPDX-License-Identifier: Apache-2.0
"""Objects that leave the pool stay on a disk: gets, views, removals, upserts and restarts."""

import json
import os
import random
import signal

import mckv
import pytest
from command import mcctl
from machine import until

POOL_BYTES = 32 << 20
OBJECT_BYTES = 128 << 10
OBJECTS = 330
AT_ONCE = 4  # objects that the agent may have on their way to the disk


def value_of(key, version=1):
    return random.Random(f"{key} {version}").randbytes(OBJECT_BYTES)


def tier_of(agent):
    shown = mcctl("status", "--json", agent=agent.socket)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)["tier"]


def lost(tier):
    return sum(count for name, count in tier.items() if name.startswith("lost_"))


def ready(agent):
    until(lambda: all(disk["serving"] for disk in tier_of(agent)["disks"]))


def agent_with_a_disk(make_agent, tmp_path, **options):
    agent = make_agent(
        pool_bytes="32MiB",
        tier_paths=str(tmp_path / "disk"),
        tier_bytes="256MiB",
        isolated_allow_same_user="true",
        **options,
    )
    ready(agent)
    return agent


@pytest.fixture
def agent(make_agent, tmp_path, request):
    """An agent that writes nothing at a stop."""
    mode = getattr(request, "param", "direct")
    return agent_with_a_disk(make_agent, tmp_path, mode=mode, tier_stop_seconds="0")


def limbo_bytes(client):
    return client.ask({"verb": "status"})["namespaces"][0]["limbo_bytes"]


def fill(client, name="key"):
    """Puts more than the pool holds, no faster than the disk writes."""
    keys = [f"{name}-{i}" for i in range(OBJECTS)]
    for i, key in enumerate(keys):
        client.put(key, value_of(key))
        if i % AT_ONCE == 0 and i * OBJECT_BYTES > POOL_BYTES * 7 // 8:
            until(lambda: limbo_bytes(client) == 0)
    return keys


def present(client, keys):
    """The keys whose objects are there, with the right bytes."""
    found = []
    for key in keys:
        value = client.get(key, None)
        if value is not None:
            assert value == value_of(key), key
            found.append(key)
    return found


def test_an_evicted_object_is_on_the_disk(agent):
    with mckv.Client(agent.socket) as client:
        keys = fill(client)
        assert lost(tier_of(agent)) == 0
        assert client.exists_batch(keys) == [True] * OBJECTS
        assert client.stat(keys[0]).length == OBJECT_BYTES
        with client.view(keys[0]) as view:
            assert bytes(view) == value_of(keys[0])
        assert client.get_batch(keys[:20]) == [value_of(key) for key in keys[:20]]
        assert len(present(client, keys)) >= OBJECTS - lost(tier_of(agent))
        assert tier_of(agent)["promoted"] > 0
        with pytest.raises(mckv.NotFoundError):
            client.get("no such key")
        # A create of an object on the disk changes nothing.
        key = next(key for key in reversed(keys) if client.exists(key))
        client.put(key, b"other")
        assert client.get(key) == value_of(key)
    table = mcctl("status", agent=agent.socket).stdout
    assert "demoted" in table and "promoted" in table


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_the_objects_on_the_disk_outlive_the_agent(make_agent, tmp_path, signal_number):
    agent = agent_with_a_disk(make_agent, tmp_path, tier_stop_seconds="60")
    with mckv.Client(agent.socket) as client:
        keys = fill(client)
        until(lambda: limbo_bytes(client) == 0)
    on_disk = tier_of(agent)["objects"]
    assert on_disk == tier_of(agent)["demoted"] > 0
    agent.end(signal_number)
    agent.start()
    ready(agent)
    until(lambda: not tier_of(agent)["recovering"])
    # A stopped agent has written its pool to the disk. A killed agent finds the pool in memory.
    wanted = OBJECTS if signal_number == signal.SIGTERM else on_disk
    assert tier_of(agent)["objects"] == wanted
    with mckv.Client(agent.socket) as client:
        assert len(present(client, keys)) >= OBJECTS - lost(tier_of(agent))


def test_a_stop_without_time_for_writes_loses_the_pool(agent):
    with mckv.Client(agent.socket) as client:
        client.put("key", b"value")
    agent.end(signal.SIGTERM)
    agent.start()
    ready(agent)
    with mckv.Client(agent.socket) as client:
        until(lambda: not tier_of(agent)["recovering"])
        assert not client.exists("key")


def test_a_stop_writes_objects_with_a_hard_pin(make_agent, tmp_path):
    agent = agent_with_a_disk(make_agent, tmp_path, tier_stop_seconds="60")
    with mckv.Client(agent.socket) as client:
        client.put("pinned", b"value", pin=mckv.Pin.HARD)
        client.put("key", b"value")
    agent.end(signal.SIGTERM)
    agent.start()
    ready(agent)
    with mckv.Client(agent.socket) as client:
        assert client.get_batch(["pinned", "key"]) == [b"value"] * 2


def test_a_lower_capacity_loses_no_object(agent):
    with mckv.Client(agent.socket) as client:
        keys = [f"key-{i}" for i in range(200)]
        for key in keys:
            client.put(key, value_of(key))
        client.ask({"verb": "set_capacity", "namespace": "default", "capacity_bytes": 4 << 20})
        client.put("after", b"value")
        until(lambda: client.ask({"verb": "status"})["namespaces"][0]["live_bytes"] <= 4 << 20)
        until(lambda: limbo_bytes(client) == 0)
        assert lost(tier_of(agent)) == 0
        assert client.exists_batch(keys) == [True] * len(keys)


@pytest.mark.parametrize("verb", [("evict", "28MiB"), ("segment", "resize", "4MiB")])
def test_an_operator_evicts_no_faster_than_the_disk_writes(agent, verb):
    with mckv.Client(agent.socket) as client:
        keys = [f"key-{i}" for i in range(200)]
        for key in keys:
            client.put(key, value_of(key))
    evicted = mcctl(*verb, agent=agent.socket)
    assert evicted.returncode == 0, evicted.stderr
    tier = tier_of(agent)
    assert lost(tier) == 0 and tier["demoted_bytes"] + tier["demoting_bytes"] > 20 << 20


@pytest.mark.parametrize("agent", ["direct", "isolated"], indirect=True)
def test_a_removed_object_and_a_replaced_value_never_come_back(agent):
    with mckv.Client(agent.socket) as client:
        found = present(client, fill(client))
        removed, replaced = found[0::3], found[1::3]
        for key in removed:
            assert client.remove(key)
        for key in replaced:
            client.put(key, value_of(key, 2), upsert=True)
    # Without a pool, so that only the disk can bring them back.
    agent.end(signal.SIGTERM)
    agent.start()
    ready(agent)
    with mckv.Client(agent.socket) as client:
        for key in removed:
            assert not client.exists(key), key
        for key in replaced:
            assert client.get(key, None) in (None, value_of(key, 2)), key
        for key in found[2::3]:
            assert client.get(key, None) in (None, value_of(key)), key


def test_a_namespace_without_the_tier_loses_what_leaves_its_pool(make_agent, tmp_path):
    config = tmp_path / "agent.toml"
    config.write_text('[[namespace]]\nname = "short"\ntier = false\n')
    agent = make_agent(
        config=str(config),
        pool_bytes="32MiB",
        tier_paths=str(tmp_path / "disk"),
        tier_bytes="64MiB",
    )
    ready(agent)
    with mckv.Client(agent.socket, namespace="short") as client:
        keys = fill(client)
        assert len(present(client, keys)) <= POOL_BYTES // OBJECT_BYTES
    assert tier_of(agent)["demoted"] == 0


def test_a_disk_that_is_refused_makes_no_get_wait(make_agent, tmp_path):
    foreign = tmp_path / "backup.tar"
    foreign.write_bytes(os.urandom(1 << 20) + bytes(64 << 20))
    agent = make_agent(pool_bytes="32MiB", tier_paths=str(foreign), tier_bytes="64MiB")
    until(lambda: tier_of(agent)["disks"][0]["state"] == "refused")
    until(lambda: not tier_of(agent)["recovering"])
    with mckv.Client(agent.socket) as client:
        keys = fill(client)
        assert len(present(client, keys)) <= POOL_BYTES // OBJECT_BYTES
        assert client.remove(keys[-1])
        with pytest.raises(mckv.NotFoundError):
            client.get(keys[-1])
    assert lost(tier_of(agent)) == tier_of(agent)["lost_no_disk"] + tier_of(agent)["lost_busy"]


def test_an_upsert_that_fails_leaves_the_object_on_the_disk(agent):
    with mckv.Client(agent.socket) as client:
        key = fill(client)[0]
        until(lambda: limbo_bytes(client) == 0)
        with pytest.raises(mckv.TooLargeError):
            client.put(key, bytes(2 * POOL_BYTES), upsert=True)
        assert client.get(key) == value_of(key)


@pytest.mark.parametrize("agent", ["direct", "isolated"], indirect=True)
def test_a_batch_of_upserts_replaces_the_objects_on_the_disk(agent):
    with mckv.Client(agent.socket) as client:
        keys = fill(client)[:50]
        statuses = client.put_batch(keys, [value_of(key, 2) for key in keys], upsert=True)
        assert set(statuses) == {mckv.Status.OK}
        for key in keys:
            assert client.get(key, None) in (None, value_of(key, 2)), key
        fill(client)  # the pool's objects leave
        for key in keys:
            assert client.get(key, None) in (None, value_of(key, 2)), key


@pytest.mark.parametrize("agent", ["direct", "isolated"], indirect=True)
def test_a_pin_brings_an_object_of_the_disk_into_the_pool(agent):
    with mckv.Client(agent.socket) as client:
        keys = fill(client)
        until(lambda: limbo_bytes(client) == 0)
        key = keys[0]
        client.set_pin(key, mckv.Pin.HARD)
        fill(client, "other")  # the objects without a pin leave
        assert mcctl("stat", key, agent=agent.socket).stdout.count("hard") == 1
        assert client.get(key) == value_of(key)
        client.set_pin(key, mckv.Pin.NONE)
        with pytest.raises(mckv.NotFoundError):
            client.set_pin("no such key", mckv.Pin.HARD)
