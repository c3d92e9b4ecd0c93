# SPDX-License-Identifier: Apache-2.0
"""Agents with a tier on files: what mcctl shows of the disks, also after a restart or a refusal."""

import json
import os
import pathlib
import signal

import mckv
import pytest
from command import mcctl
from machine import until

DISK_BYTES = 64 << 20


def disks_of(agent):
    """The disks of the agent's tier, once none of them starts; in the order of tier_paths."""
    disks = []

    def settled():
        shown = mcctl("status", "--json", agent=agent.socket)
        assert shown.returncode == 0, shown.stderr
        disks[:] = json.loads(shown.stdout)["tier"]["disks"]
        return all(disk["state"] not in ("opening", "recovering") for disk in disks)

    until(settled)
    return disks


def log_of(agent):
    return (agent.directory / "agent.log").read_text()


def put_and_get(agent):
    with mckv.Client(agent.socket) as client:
        client.put("key", b"x" * 4096)
        assert client.get("key") == b"x" * 4096


def test_an_agent_shows_its_disks_and_keeps_them_over_a_restart(make_agent, tmp_path):
    (tmp_path / "folder").mkdir()
    paths = [tmp_path / "file", tmp_path / "folder"]
    agent = make_agent(tier_paths=",".join(map(str, paths)), tier_bytes="64MiB")
    first, second = disks_of(agent)
    assert first["path"] == str(paths[0]) and second["path"] == f"{paths[1]}/mc.tier"
    for disk in (first, second):
        assert disk["state"] == "serving" and "problem" not in disk
        assert disk["bytes"] >= DISK_BYTES - (4 << 20) and disk["free_segments"] > 0
        assert os.stat(disk["path"]).st_size == DISK_BYTES
    put_and_get(agent)

    table = mcctl("status", agent=agent.socket).stdout
    assert "WRITTEN/PUT" in table and f"{paths[1]}/mc.tier" in table
    assert "0 objects on disks" in table

    agent.end(signal.SIGKILL)
    agent.start()
    for disk in disks_of(agent):
        assert disk["state"] == "serving" and "problem" not in disk
    assert "state=refused" not in log_of(agent) and "state=failed" not in log_of(agent)


def test_a_disk_with_other_data_is_named_and_not_written(make_agent, tmp_path):
    foreign = tmp_path / "backup.tar"
    data = os.urandom(1 << 20) + bytes(DISK_BYTES)
    foreign.write_bytes(data)
    missing = tmp_path / "none" / "disk"
    own = tmp_path / "own"
    agent = make_agent(tier_paths=f"{foreign},{missing},{own}", tier_bytes="64MiB")
    refused, absent, served = disks_of(agent)
    assert refused["state"] == "refused" and "other data" in refused["problem"]
    assert str(foreign) in refused["problem"] and "another path" in refused["problem"]
    assert absent["state"] == "refused" and "create the directory" in absent["problem"]
    assert served["state"] == "serving"
    assert pathlib.Path(foreign).read_bytes() == data
    put_and_get(agent)

    table = mcctl("status", agent=agent.socket).stdout
    assert refused["problem"] in table
    until(lambda: log_of(agent).count("event=tier_disk") >= 3)
    assert f'disk="{foreign}" state=refused cause=' in log_of(agent)


def test_top_and_stat_tell_of_objects_on_disks(make_agent, tmp_path):
    agent = make_agent(tier_paths=tmp_path / "disk", tier_bytes="64MiB", pool_bytes="16MiB")
    disks_of(agent)
    with mckv.Client(agent.socket) as client:
        client.put("key", b"x" * 4096)
    assert mcctl("evict", "16MiB", agent=agent.socket).returncode == 0
    until(lambda: disks_of(agent)[0]["puts"] == 1)
    sample = mcctl("top", "--once", "--interval", "0.1", agent=agent.socket)
    assert sample.returncode == 0 and ", 1 objects; demoted " in sample.stdout
    stat = mcctl("stat", "key", agent=agent.socket)
    assert stat.returncode == 0 and "pool      no: a disk of this host" in stat.stdout


def test_a_disk_has_one_agent(make_agent, tmp_path):
    path = tmp_path / "disk"
    owner = make_agent(tier_paths=path, tier_bytes="64MiB")
    assert disks_of(owner)[0]["state"] == "serving"
    other = make_agent(tier_paths=path, tier_bytes="64MiB")
    (disk,) = disks_of(other)
    assert disk["state"] == "refused" and "another agent has the tier's disk" in disk["problem"]
    put_and_get(other)
    # The disk is free as soon as its agent has ended.
    owner.end()
    other.end()
    other.start()
    assert disks_of(other)[0]["state"] == "serving"


def test_listings_and_removals_by_pattern_concern_the_objects_on_disks(make_agent, tmp_path):
    agent = make_agent(tier_paths=str(tmp_path / "file"), tier_bytes="64MiB", pool_bytes="16MiB")
    disks_of(agent)
    with mckv.Client(agent.socket) as client:
        for i in range(600):
            client.put(f"key-{i:03}", b"x" * 50_000)
            if i % 5 == 0:
                until(lambda: client.ask({"verb": "status"})["namespaces"][0]["limbo_bytes"] == 0)
        tier = client.ask({"verb": "status"})["tier"]
        assert tier["objects"] > 100
        names = list(client.keys("key-"))
        assert len(set(names)) == len(names) > 400
        assert client.exists_batch(names) == [True] * len(names)
        # Objects come back into the pool.
        for name in names[:50]:
            client.get(name)
            client.get(name)
        for cursor in ("1.2.3", "x", "99999999999999999999", "1.2", "1.2.3.4", "..", 7):
            error = mckv.BusyError if cursor == "1.2.3" else mckv.InvalidArgumentError
            with pytest.raises(error):
                client.ask({"verb": "ls", "namespace": "default", "cursor": cursor})
        # Objects that move meanwhile may come twice.
        assert len(set(client.keys())) >= len(names)
    lines = mcctl("ls", "--keys", agent=agent.socket)
    assert lines.returncode == 0 and len(lines.stdout.split()) > 400
    agent.end(signal.SIGTERM)
    agent.start()
    disks_of(agent)
    with mckv.Client(agent.socket) as client:
        on_disks = sorted(client.keys())
        assert len(on_disks) > 100
        doomed = [name for name in on_disks if name.startswith(b"key-1")]
        assert doomed
        assert client.remove_matching("key-1") == (len(doomed), 0)
        kept = [name for name in on_disks if name not in doomed]
        assert sorted(client.keys()) == kept
    removed = mcctl("rm", "--prefix", "key-2", "--yes", agent=agent.socket)
    assert removed.returncode == 0, removed.stderr
    agent.end(signal.SIGTERM)
    agent.start()
    disks_of(agent)
    with mckv.Client(agent.socket) as client:
        assert sorted(client.keys()) == [name for name in kept if not name.startswith(b"key-2")]
