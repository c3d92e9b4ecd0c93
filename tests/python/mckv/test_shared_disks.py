# SPDX-License-Identifier: Apache-2.0
"""Objects of a cluster on the disks of their hosts: gets, removals, upserts and restarts."""

import json
import random
import signal

import mckv
import pytest
from command import mcctl
from machine import free_port, run_master, until

POOL_BYTES = 16 << 20
OBJECT_BYTES = 40 << 10  # does not fit into an answer of a holder
SMALL_BYTES = 5000  # comes with the answer
OBJECTS = 600
AT_ONCE = 9  # objects that the agent may have on their way to the disk


def bytes_of(i):
    return SMALL_BYTES if i % 4 == 0 else OBJECT_BYTES


def value_of(key, version=1):
    return random.Random(f"{key} {version}").randbytes(bytes_of(int(key.rsplit("-")[-1])))


def status_of(agent, part):
    shown = mcctl("status", "--json", agent=agent.socket)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)[part]


def lost(agent):
    tier = status_of(agent, "tier")
    return sum(count for name, count in tier.items() if name.startswith("lost_"))


def ready(agent, members):
    """The disks are read, and the masters know all objects."""
    until(lambda: all(disk["serving"] for disk in status_of(agent, "tier")["disks"]))
    until(lambda: not status_of(agent, "tier")["recovering"])
    with mckv.Client(agent.socket) as client:
        until(lambda: client.ask({"verb": "status"})["cluster"]["members"] == members)
        until(lambda: client.exists_batch([b"nowhere"]) == [False])


class Hosts:
    """A master, a host with a disk and a host without one."""

    def __init__(self, make, master, disk):
        self.common = {"cluster_id": "disks", "masters": master}
        self.disk = disk
        self.address = f"127.0.0.1:{free_port()}"
        self.holder = make(
            listen=self.address,
            pool_bytes="16MiB",
            tier_paths=str(disk),
            tier_bytes="256MiB",
            tier_stop_seconds="0",
            **self.common,
        )
        self.other = make(listen=f"127.0.0.1:{free_port()}", pool_bytes="64MiB", **self.common)
        ready(self.holder, 2)

    def fill(self):
        """Puts more than the holder's pool has room for, no faster than the disk writes."""
        keys = [f"key-{i}" for i in range(OBJECTS)]
        with mckv.Client(self.holder.socket) as client:
            for i, key in enumerate(keys):
                client.put(key, value_of(key))
                if i % AT_ONCE == 0 and i * OBJECT_BYTES * 3 // 4 > POOL_BYTES * 7 // 8:
                    until(lambda: pool_of(client)["limbo_bytes"] == 0)
        return keys

    def restart(self, number=signal.SIGTERM):
        """Without a pool, if the signal is SIGTERM: only the disk has objects then."""
        self.holder.end(number)
        self.holder.start()
        ready(self.holder, 2)


def pool_of(client):
    return client.ask({"verb": "status"})["namespaces"][0]


def present(agent, keys, versions=(1,)):
    """The keys whose objects are there, with the right bytes."""
    found = []
    with mckv.Client(agent.socket) as client:
        for key in keys:
            value = client.get(key, None)
            if value is not None:
                assert value in [value_of(key, version) for version in versions], key
                found.append(key)
    return found


@pytest.fixture
def hosts(make_agent, tmp_path):
    with run_master("disks") as master:
        yield Hosts(make_agent, master, tmp_path / "disk")


def test_another_host_gets_the_objects_on_a_disk(hosts):
    keys = hosts.fill()
    assert status_of(hosts.holder, "tier")["demoted"] > OBJECTS // 10
    with mckv.Client(hosts.other.socket) as client:
        assert client.exists_batch(keys) == [True] * OBJECTS
    # A read that needs room may evict an object faster than the disk writes.
    assert len(present(hosts.other, keys)) >= OBJECTS - lost(hosts.holder)
    assert len(present(hosts.holder, keys)) >= OBJECTS - lost(hosts.holder)
    assert status_of(hosts.holder, "tier")["promoted"] > 0


def tiers_of(key, agent):
    """Where each holder of the object has it: in its pool or on a disk."""
    where = json.loads(mcctl("where", key, "--json", agent=agent.socket).stdout)
    return [holder["tier"] for holder in where["holders"]]


def test_a_pin_brings_an_object_of_the_disk_into_the_pool(hosts):
    key = hosts.fill()[0]
    assert tiers_of(key, hosts.other) == ["disk"]
    with mckv.Client(hosts.holder.socket) as client:
        client.set_pin(key, mckv.Pin.HARD)
    until(lambda: tiers_of(key, hosts.other) == ["pool"])
    with mckv.Client(hosts.other.socket) as client, pytest.raises(mckv.NotFoundError):
        client.set_pin("key-1", mckv.Pin.HARD)  # the holder's


def test_a_removal_of_all_objects_reaches_the_disks(hosts):
    keys = hosts.fill()
    assert tiers_of(keys[0], hosts.other) == ["disk"]
    assert "disk" in mcctl("where", keys[0], agent=hosts.other.socket).stdout
    removed = mcctl("rm", "--all", "--yes", agent=hosts.other.socket)
    assert removed.returncode == 0, removed.stderr
    assert present(hosts.other, keys) == []
    hosts.restart()
    assert present(hosts.other, keys) == []
    assert status_of(hosts.holder, "tier")["objects"] == 0


@pytest.mark.parametrize("regex", [False, True])
def test_a_removal_by_pattern_leaves_the_other_objects_on_the_disk(hosts, regex):
    hosts.fill()
    hosts.restart()
    with mckv.Client(hosts.other.socket) as client:
        before = [key.decode() for key in client.keys("key-")]
        assert len(before) > OBJECTS // 10
        assert before == sorted(before)
        assert present(hosts.other, before) == before
        doomed = [key for key in before if key.startswith("key-1")]
        kept = [key for key in before if key not in doomed]
        assert doomed and kept
        # Some of them are in the pool again by now.
        removed = client.remove_matching(**({"regex": "^key-1"} if regex else {"prefix": "key-1"}))
        assert removed == (len(doomed), 0)
        assert [key.decode() for key in client.keys()] == kept
    hosts.restart()
    assert present(hosts.other, doomed) == []
    found = present(hosts.other, kept)
    assert len(found) >= len(kept) - lost(hosts.holder)
    with mckv.Client(hosts.holder.socket) as client:
        assert sorted(key.decode() for key in client.keys(local=True)) == found


def test_the_objects_on_a_disk_outlive_their_host(hosts):
    keys = hosts.fill()
    node = status_of(hosts.holder, "node_id")
    on_disk = status_of(hosts.holder, "tier")["objects"]
    hosts.restart()
    assert status_of(hosts.holder, "node_id") == node
    found = present(hosts.other, keys)
    assert len(found) >= on_disk - lost(hosts.holder)
    assert present(hosts.holder, found) == found


@pytest.mark.parametrize("away", [False, True])
def test_a_removed_object_and_a_replaced_value_never_come_back(hosts, away):
    found = present(hosts.other, hosts.fill())
    removed, replaced, kept = found[0::3], found[1::3], found[2::3]
    if away:
        hosts.holder.end(signal.SIGTERM)
        with mckv.Client(hosts.other.socket) as client:
            until(lambda: client.ask({"verb": "status"})["cluster"]["members"] == 1)
    with mckv.Client(hosts.other.socket) as client:
        for key in removed:
            if away:
                with pytest.raises(mckv.HolderAwayError):
                    client.remove(key)
            elif client.exists(key):
                assert client.remove(key)
        for key in replaced:
            client.put(key, value_of(key, 2), upsert=True)
    if away:
        hosts.holder.start()
        ready(hosts.holder, 2)
    else:
        hosts.restart()
    for agent in (hosts.holder, hosts.other):
        assert present(agent, removed) == []
        assert present(agent, replaced, versions=[2]) == replaced
        assert present(agent, kept)


def test_a_drain_moves_the_objects_on_a_disk(hosts):
    keys = hosts.fill()
    drained = mcctl("drain", hosts.address, agent=hosts.other.socket)
    assert drained.returncode == 0, drained.stderr
    assert "drained" in drained.stdout
    until(lambda: status_of(hosts.holder, "tier")["objects"] == 0)
    with mckv.Client(hosts.holder.socket) as client:
        assert pool_of(client)["live_bytes"] == 0
    kept = OBJECTS - lost(hosts.holder)
    hosts.holder.end(signal.SIGTERM)
    assert len(present(hosts.other, keys)) >= kept


def test_replicate_copies_an_object_of_a_disk(hosts):
    key = hosts.fill()[0]
    assert tiers_of(key, hosts.other) == ["disk"]
    done = mcctl("replicate", key, "--replicas", "2", agent=hosts.holder.socket)
    assert done.returncode == 0, done.stderr
    until(lambda: sorted(tiers_of(key, hosts.other)) == ["pool", "pool"])


def disks_of(agent):
    return {disk["path"]: disk for disk in status_of(agent, "tier")["disks"]}


@pytest.fixture
def foreign(hosts, make_agent, tmp_path):
    """A disk of another node of the cluster, which has ended."""
    disk = tmp_path / "foreign"
    agent = make_agent(
        listen=f"127.0.0.1:{free_port()}", tier_paths=str(disk), tier_bytes="256MiB", **hosts.common
    )
    ready(agent, 3)
    agent.end(signal.SIGTERM)
    with mckv.Client(hosts.other.socket) as client:
        until(lambda: client.ask({"verb": "status"})["cluster"]["members"] == 2)
    return disk


def refused(agent, disk):
    until(lambda: disks_of(agent)[str(disk)]["state"] == "refused")
    problem = disks_of(agent)[str(disk)]["problem"]  # what mcctl status shows
    assert "the disk belongs to node" in problem
    assert "take over that node with its disks" in problem
    assert "zero the first 2 MiB" in problem
    with mckv.Client(agent.socket) as client:
        until(lambda: client.ask({"verb": "status"})["cluster"]["members"] == 2)


def know(agent, keys):
    """The masters have the holder's report, and know all objects."""
    with mckv.Client(agent.socket) as client:
        return all(client.exists_batch(keys))


def test_a_disk_of_another_node_is_refused_and_the_agent_serves(hosts, foreign):
    with mckv.Client(hosts.holder.socket) as client:
        client.put("key-1", value_of("key-1"))
    node = status_of(hosts.holder, "node_id")
    before = foreign.stat()
    hosts.holder.end(signal.SIGKILL)  # the keeper has the node's identity and its pool
    hosts.holder.change(tier_paths=str(foreign))
    hosts.holder.start()
    refused(hosts.holder, foreign)
    assert status_of(hosts.holder, "node_id") == node
    assert "refused" in mcctl("status", agent=hosts.holder.socket).stdout
    with mckv.Client(hosts.holder.socket) as client:
        client.put("key-2", value_of("key-2"))
    until(lambda: present(hosts.other, ["key-1", "key-2"]) == ["key-1", "key-2"])
    with mckv.Client(hosts.other.socket) as client:
        assert client.remove("key-1")
    assert present(hosts.holder, ["key-1", "key-2"]) == ["key-2"]
    hosts.holder.end(signal.SIGTERM)
    after = foreign.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_disk_of_another_node_listed_first_leaves_the_own_disk(hosts, foreign):
    keys = hosts.fill()
    with mckv.Client(hosts.holder.socket) as client:
        until(lambda: pool_of(client)["limbo_bytes"] == 0)
    on_disk = status_of(hosts.holder, "tier")["objects"]
    assert on_disk > 0
    hosts.holder.end(signal.SIGKILL)
    hosts.holder.change(tier_paths=f"{foreign},{hosts.disk}")
    hosts.holder.start()
    refused(hosts.holder, foreign)
    until(lambda: disks_of(hosts.holder)[str(hosts.disk)]["serving"])
    until(lambda: not status_of(hosts.holder, "tier")["recovering"])
    assert status_of(hosts.holder, "tier")["objects"] >= on_disk - lost(hosts.holder)
    until(lambda: know(hosts.other, keys))
    assert len(present(hosts.other, keys)) >= OBJECTS - lost(hosts.holder)
