# SPDX-License-Identifier: Apache-2.0
"""Mooncake's SSD offload: evicted objects on a disk, through restarts of all processes."""

import ctypes
import logging
import os
import random
import subprocess
import sys

import pytest
from machine import WATCHDOG_S, end_agents, run_master, until
from mooncake import _offload
from mooncake.store import MooncakeDistributedStore

pytestmark = pytest.mark.ours_only

SEGMENT = 64 << 20
OBJECT_BYTES = 256 << 10
OBJECTS = 320  # more than the pool has room for
DISK_BYTES = 256 << 20


def value_of(i):
    return random.Random(i).randbytes(OBJECT_BYTES)


def names_of(count=OBJECTS):
    return [f"block-{i}" for i in range(count)]


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setenv("MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES", str(DISK_BYTES))


@pytest.fixture(params=["embedded", "joined"])
def chosen_master(request, runtime_dir, monkeypatch):
    if request.param == "embedded":
        monkeypatch.setenv("MC_AGENT", "embedded")
        yield ""
        return
    with run_master("disks") as master:
        yield master


def open_store(master, folder, **more):
    store = MooncakeDistributedStore()
    where = ("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 4 << 20, "tcp", "", master)
    assert store.setup(*where, enable_ssd_offload=True, ssd_offload_path=str(folder), **more) == 0
    return store


def status_of(store):
    return store._client.ask({"verb": "status"})


def fill(store):
    """Puts no faster than the disk writes."""
    for i, name in enumerate(names_of()):
        assert store.put(name, value_of(i)) == 0
        until(lambda: status_of(store)["tier"]["demoting_bytes"] < SEGMENT // 64)
    tier = status_of(store)["tier"]
    assert sum(count for name, count in tier.items() if name.startswith("lost_")) == 0
    assert tier["demoted"] > OBJECTS // 8


def test_evicted_objects_stay_on_the_disk(chosen_master, tmp_path, limit):
    store = open_store(chosen_master, tmp_path / "disk")
    assert os.listdir(tmp_path / "disk") == ["mc.tier"]
    fill(store)
    names = names_of()
    assert store.batch_is_exist(names) == [1] * OBJECTS
    assert store.get_size(names[0]) == OBJECT_BYTES
    for i, name in enumerate(names):
        assert store.get(name) == value_of(i), name
    assert store.get_offload_rpc_read_count() > 0
    assert bytes(store.get_buffer(names[0])) == value_of(0)
    memory = ctypes.create_string_buffer(OBJECT_BYTES)
    address = ctypes.addressof(memory)
    assert store.batch_get_into([names[1]], [address], [OBJECT_BYTES]) == [OBJECT_BYTES]
    assert memory.raw == value_of(1)
    assert store.remove(names[0]) == 0 and store.get(names[0]) == b""
    assert store.upsert(names[1], b"later") == 0 and store.get(names[1]) == b"later"
    assert store.close() == 0


def test_a_descriptor_tells_a_disk_from_memory(runtime_dir, tmp_path, limit):
    with run_master("disks") as master:
        store = open_store(master, tmp_path)
        fill(store)
        found = store.batch_get_replica_desc(names_of())
        assert len(found) == OBJECTS
        on_disk = [one.is_local_disk_replica() for (one,) in found.values()]
        assert any(on_disk) and not all(on_disk)
        for (one,) in found.values():
            assert one.is_memory_replica() != one.is_local_disk_replica()
            assert not one.is_disk_replica()
        first = next(one for (one,) in found.values() if one.is_local_disk_replica())
        with pytest.raises(RuntimeError, match="local disk"):
            first.get_memory_descriptor()
        assert store.close() == 0


def test_the_objects_outlive_all_processes(runtime_dir, tmp_path, limit):
    """Also the master: its process and the agents end, and nothing stays in memory."""
    with run_master("disks") as master:
        store = open_store(master, tmp_path / "disk")
        fill(store)
        assert store.close() == 0  # the pool shrinks
        end_agents(runtime_dir)
        port = int(master.rpartition(":")[2])
    with run_master("disks", port) as master:
        store = open_store(master, tmp_path / "disk")
        until(lambda: not status_of(store)["tier"]["recovering"])
        until(lambda: store._client.exists_batch(["nowhere"]) == [False])
        names = names_of()
        assert store.batch_is_exist(names) == [1] * OBJECTS
        for i, name in enumerate(names):
            assert store.get(name) == value_of(i), name
        assert store.close() == 0


def test_another_host_reads_the_disk(runtime_dir, tmp_path, limit, monkeypatch):
    with run_master("disks") as master:
        store = open_store(master, tmp_path / "disk")
        fill(store)
        read = status_of(store)["tier"]["read"]
        script = (
            "import sys, mooncake.store\n"
            "store = mooncake.store.MooncakeDistributedStore()\n"
            f"where = ('127.0.0.1', 'P2PHANDSHAKE', 64 << 20, 1 << 20, 'tcp', '', {master!r})\n"
            "assert store.setup(*where) == 0\n"
            f"for name in {names_of(OBJECTS // 8)!r}:\n"
            f"    assert store.get_size(name) == {OBJECT_BYTES}\n"
            f"    assert len(store.get(name)) == {OBJECT_BYTES}, name\n"
        )
        there = tmp_path / "there"
        try:
            done = subprocess.run(
                [sys.executable, "-c", script], env={**os.environ, "MC_RUNTIME_DIR": str(there)},
                capture_output=True, text=True, timeout=WATCHDOG_S,
            )  # fmt: skip
        finally:
            end_agents(there)
        assert done.returncode == 0, done
        assert status_of(store)["tier"]["read"] > read
        assert store.close() == 0


@pytest.mark.parametrize(
    ("path", "reason"),
    [("disk", "absolute"), ("/data/../etc", "absolute"), ("/tmp/a,/tmp/b", "commas"),
     ("FILE", "File exists"), ("FILE/below", "Not a directory")],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_named(chosen_master, tmp_path, caplog, path, reason):
    file = tmp_path / "a file"
    file.write_text("no folder")
    store = MooncakeDistributedStore()
    where = ("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 1 << 20, "tcp", "", chosen_master)
    path = path.replace("FILE", str(file))
    assert store.setup(*where, enable_ssd_offload=True, ssd_offload_path=path) == -600
    assert "ssd_offload_path" in caplog.text and reason in caplog.text
    assert store.health_check() == 1


def test_a_disk_with_other_data_is_named(chosen_master, tmp_path, limit, caplog):
    (tmp_path / "mc.tier").write_bytes(b"other data" * 10_000_000)
    store = open_store(chosen_master, tmp_path)
    assert "enable_ssd_offload has no effect" in caplog.text and "other data" in caplog.text
    assert store.put("key", b"value") == 0 and store.get("key") == b"value"
    assert store.close() == 0
    assert (tmp_path / "mc.tier").read_bytes() == b"other data" * 10_000_000


def test_an_agent_without_disks_is_named(runtime_dir, tmp_path, caplog):
    with run_master("disks") as master:
        first = MooncakeDistributedStore()
        where = ("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 1 << 20, "tcp", "", master)
        assert first.setup(*where) == 0
        second = open_store(master, tmp_path)
        assert "started without disks" in caplog.text and "tier_paths" in caplog.text
        # The folder cannot be used, and the agent has no disk: the user has to correct the path.
        third = MooncakeDistributedStore()
        assert third.setup(*where, enable_ssd_offload=True, ssd_offload_path="here") == -600
        for store in (first, second, third):
            assert store.close() == 0


def test_an_agent_keeps_its_disks(runtime_dir, tmp_path, limit, caplog):
    """A later process names another folder, or one that this process may not use."""
    with run_master("disks") as master:
        first = open_store(master, tmp_path / "one")
        with caplog.at_level(logging.WARNING):
            second = open_store(master, tmp_path / "two")
            third = open_store(master, "relative")
        assert str(tmp_path / "one") in caplog.text and "two has no effect" in caplog.text
        for store in (first, second, third):
            assert store.close() == 0


def test_a_backend_without_local_files_is_refused(runtime_dir, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("MC_AGENT", "embedded")
    monkeypatch.setenv("MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR", "nvme_kv_storage_backend")
    store = MooncakeDistributedStore()
    where = ("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 1 << 20, "tcp", "", "")
    assert store.setup(*where, enable_ssd_offload=True, ssd_offload_path=str(tmp_path)) == -1012
    assert "nvme_kv_storage_backend" in caplog.text


def test_the_environment_names_the_folder_and_the_size(tmp_path, monkeypatch):
    monkeypatch.setenv("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", str(tmp_path))
    for name in _offload._LIMITS:
        monkeypatch.delenv(name, raising=False)
    free = _offload.wish("").bytes
    system = os.statvfs(tmp_path)
    assert 0.8 < free / min(2 << 40, system.f_bavail * system.f_frsize * 0.9) < 1.2
    file = tmp_path / "mc.tier"
    with file.open("wb") as out:
        out.truncate(128 << 20)
    assert _offload.wish("").bytes == 0  # the size that the file has
    monkeypatch.setenv("MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE", str(256 << 20))
    assert _offload.wish("").bytes == 256 << 20
    monkeypatch.setenv("MOONCAKE_OFFLOAD_BUCKET_MAX_PHYSICAL_BYTES", str(64 << 20))
    assert _offload.wish("").bytes == 64 << 20
    monkeypatch.setenv("MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE", "0")
    monkeypatch.setenv("MOONCAKE_OFFLOAD_BUCKET_MAX_PHYSICAL_BYTES", "4096")
    assert "a limit of 4096 bytes" in _offload.wish("").problem
    monkeypatch.setenv("MC_AGENT_TIER_PATHS", "/dev/nvme1n1")
    assert _offload.wish("").options() == {}
