# SPDX-License-Identifier: Apache-2.0
"""Mooncake's environment variables: what each does here, or one warning with the reason."""

import logging
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import mckv
import pytest
from machine import TIME_SCALE, WATCHDOG_S, free_port, run_master, stop_process, until
from mooncake import _environment, engine
from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore

pytestmark = pytest.mark.ours_only
ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As in a new process without Mooncake's variables."""
    for name in os.environ:
        if name in _environment.MEANINGFUL or _environment._reason_of(name):
            monkeypatch.delenv(name)
    monkeypatch.setattr(_environment, "_warned", False)
    yield
    logging.getLogger("mooncake").setLevel(logging.NOTSET)


def said(caplog):
    return [one.getMessage() for one in caplog.records]


def test_the_page_names_each_variable():
    """python/mooncake/README.md is the users' table."""
    page = (ROOT / "python/mooncake/README.md").read_text()
    section = page.partition("## Environment variables")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z][A-Z0-9_]+\*?)`", section))
    meaningless = {one for names in _environment.MEANINGLESS.values() for one in names.split()}
    ours = {one for one in named if re.match(r"MC_(AGENT|CLUSTER|RUNTIME|HTTP)", one)}
    assert named - ours == _environment.MEANINGFUL | _environment.OF_OTHERS | meaningless


def test_each_variable_of_mooncake_is_known():
    """tests/data/mooncake_variables.txt lists the variables of Mooncake 0.3.13's documents."""
    names = (ROOT / "tests/data/mooncake_variables.txt").read_text().split()
    unknown = [
        one
        for one in names
        if one not in _environment.MEANINGFUL
        and not _environment._is_one_of(one, _environment.OF_OTHERS)
        and not _environment._reason_of(one)
    ]
    assert len(names) > 150 and unknown == []


def test_variables_without_a_meaning_are_named_once(monkeypatch, caplog):
    monkeypatch.setenv("MC_IB_TC", "106")
    monkeypatch.setenv("MC_GID_INDEX", "3")
    monkeypatch.setenv("MOONCAKE_OFFLOAD_USE_URING", "1")
    monkeypatch.setenv("MC_FORCE_TCP", "1")
    with caplog.at_level(logging.WARNING):
        _environment.begin()
        _environment.begin()
    rdma, disk = said(caplog)
    assert "MC_GID_INDEX, MC_IB_TC" in rdma and "--rdma-devices" in rdma
    assert "MOONCAKE_OFFLOAD_USE_URING" in disk and "needs no tuning" in disk


@pytest.mark.parametrize(("text", "level"), [("ERROR", 40), ("trace", 10), ("1", 30)])
def test_the_log_has_the_level_of_the_environment(monkeypatch, text, level):
    monkeypatch.setenv("MC_LOG_LEVEL", text)
    _environment.begin()
    assert logging.getLogger("mooncake").level == level


def options_of(protocol="tcp", devices=""):
    return _environment.agent_options(protocol, devices)


def test_an_agent_gets_the_users_devices_and_transports(monkeypatch):
    assert options_of("rdma") == {} and options_of("tcp", "mlx5_0") == {}
    assert options_of("rdma", "mlx5_0,mlx5_1") == {"MC_AGENT_RDMA_DEVICES": "mlx5_0,mlx5_1"}
    monkeypatch.setenv("MC_MS_FILTERS", "mlx5_2")
    assert options_of("rdma") == {"MC_AGENT_RDMA_DEVICES": "mlx5_2"}
    monkeypatch.setenv("MC_FORCE_TCP", "1")
    assert options_of("rdma", "mlx5_0") == {"MC_AGENT_TRANSPORTS": "tcp"}


def agent_log(runtime_dir):
    (log,) = pathlib.Path(runtime_dir).glob("*/agent.log")
    return log.read_text()


def test_a_started_agent_has_the_options(runtime_dir, monkeypatch):
    """The agent says in its log that it uses TCP alone for want of the device."""
    with run_master("options") as master:
        store = MooncakeDistributedStore()
        more = ("rdma", "mlx5_77", master)
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 1 << 20, *more) == 0
        until(lambda: "there is no RDMA device mlx5_77" in agent_log(runtime_dir))
        assert store.close() == 0


def free_huge_pages():
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"HugePages_Free: +(\d+)", text)[1])


@pytest.mark.parametrize("embedded", [False, True])
def test_huge_pages_are_strict(runtime_dir, monkeypatch, caplog, embedded):
    """The pool has huge pages, or setup() fails with the remedy."""
    monkeypatch.setenv("MC_STORE_USE_HUGEPAGE", "1")
    enough = free_huge_pages() >= 32
    with run_master("huge") as master:
        if embedded:
            monkeypatch.setenv("MC_AGENT", "embedded")
        store = MooncakeDistributedStore()
        code = store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 1 << 20, "tcp", "", master)
        if enough:
            (segment,) = store._client.ask({"verb": "segments"})["segments"]
            assert code == 0 and segment["huge_pages"] and store.close() == 0
        else:
            assert code < 0 and any("vm.nr_hugepages" in one for one in said(caplog)), said(caplog)


def test_a_running_agent_without_huge_pages_is_refused(runtime_dir, monkeypatch):
    monkeypatch.setenv("MC_AGENT_HUGE_PAGES", "off")
    with run_master("huge") as master:
        first = MooncakeDistributedStore()
        arguments = ("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", master)
        assert first.setup(*arguments) == 0
        done = subprocess.run(
            [sys.executable, "-c",
             "import sys, mooncake.store; store = mooncake.store.MooncakeDistributedStore()\n"
             f"sys.exit(store.setup(*{arguments!r}) != -1012)"],
            env={**os.environ, "MC_STORE_USE_HUGEPAGE": "true"}, capture_output=True, text=True,
            timeout=WATCHDOG_S,
        )  # fmt: skip
        assert done.returncode == 0 and "--huge-pages=require" in done.stderr, done
        assert first.close() == 0


def test_huge_pages_have_one_size(monkeypatch):
    monkeypatch.setenv("MC_STORE_HUGEPAGE_SIZE", "1GB")
    assert not _environment.needs_huge_pages()
    monkeypatch.setenv("MC_STORE_USE_HUGEPAGE", "yes")
    with pytest.raises(mckv.UnsupportedError, match="2 MiB"):
        options_of()
    monkeypatch.setenv("MC_STORE_HUGEPAGE_SIZE", "2MB")
    assert options_of() == {"MC_AGENT_HUGE_PAGES": "require"}


def test_setup_tries_again_and_waits_as_long_as_the_environment_says(
    runtime_dir, monkeypatch, caplog
):
    monkeypatch.setenv("MC_RPC_CONNECT_TIMEOUT_MS", "200")
    monkeypatch.setenv("MC_STORE_CLIENT_SETUP_RETRIES", "2")
    store = MooncakeDistributedStore()
    began = time.monotonic()
    where = ("tcp", "", f"127.0.0.1:{free_port()}")
    with caplog.at_level(logging.WARNING):
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, *where) == -900
    assert time.monotonic() - began < 5 * TIME_SCALE
    assert sum("1 more tries" in one for one in said(caplog)) == 1


def test_a_call_ends_at_the_deadline_of_the_environment(runtime_dir, monkeypatch):
    """-901 within a second from an agent that stands still; the usual deadline is 5 s."""
    monkeypatch.setenv("MC_RPC_TIMEOUT_MS", "200")
    with run_master("deadline") as master:
        store = MooncakeDistributedStore()
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 1 << 20, "tcp", "", master) == 0
        until(lambda: "event=ready" in agent_log(runtime_dir))
        agent = int(re.search(r"event=ready pid=(\d+)", agent_log(runtime_dir))[1])
        stop_process(agent)
        try:
            began = time.monotonic()
            assert store.put("k", b"v") == -901
            assert time.monotonic() - began < 4 * TIME_SCALE
        finally:
            os.kill(agent, signal.SIGCONT)
        assert store.close() == 0


def test_a_transfer_ends_at_the_deadline_of_the_environment(monkeypatch):
    assert engine._timeout([10**9, 10**9]) == 32.0
    for text, seconds in (("7", 7.0), ("1", 5.0), ("soon", 30.0)):
        monkeypatch.setenv("MC_TRANSFER_TIMEOUT", text)
        assert engine._timeout([]) == seconds


def test_numbers_that_are_none_are_named(monkeypatch, caplog):
    monkeypatch.setenv("MC_RPC_TIMEOUT_MS", "soon")
    assert _environment.call_timeout_s(5.0) == 5.0 and "MC_RPC_TIMEOUT_MS=soon" in said(caplog)[0]
    monkeypatch.setenv("MC_RPC_TIMEOUT_MS", "250")
    assert _environment.call_timeout_s(5.0) == 0.25


def test_a_store_without_a_port_gets_one_of_the_range(monkeypatch):
    assert 12300 <= _environment.client_port() < 14300
    monkeypatch.setenv("MC_STORE_CLIENT_MIN_PORT", "20000")
    monkeypatch.setenv("MC_STORE_CLIENT_MAX_PORT", "20001")
    assert _environment.client_port() == 20000


def test_an_engine_logs_in_to_redis_as_the_environment_says(redis_server, monkeypatch, caplog):
    host, port = redis_server.split(":")
    with socket.create_connection((host, int(port)), WATCHDOG_S) as redis:
        redis.sendall(b"ACL SETUSER ana on >p@ss:w/rd ~* +@all\r\n")
        assert redis.recv(100).startswith(b"+OK")
        redis.sendall(b"ACL SETUSER default off\r\n")
        redis.recv(100)
    url = f"redis://{redis_server}"
    assert _environment.redis_url("etcd://a") == "etcd://a"
    assert _environment.redis_url("redis://u:p@a") == "redis://u:p@a"
    assert TransferEngine().initialize("127.0.0.1:7", url, "tcp", "") == -1
    monkeypatch.setenv("MC_REDIS_USERNAME", "ana")
    monkeypatch.setenv("MC_REDIS_PASSWORD", "p@ss:w/rd")
    monkeypatch.setenv("MC_REDIS_DB_INDEX", "3")
    monkeypatch.setenv("MC_METADATA_CLUSTER_ID", "fleet-a")
    first = TransferEngine()
    assert first.initialize("127.0.0.1:7", url, "tcp", "") == 0, said(caplog)
    other = TransferEngine()
    assert other.initialize("127.0.0.1:8", url, "tcp", "") == 0
    assert other.send_probe("127.0.0.1:7") == 0
    monkeypatch.setenv("MC_METADATA_CLUSTER_ID", "fleet-b")
    stranger = TransferEngine()
    assert stranger.initialize("127.0.0.1:9", url, "tcp", "") == 0
    assert stranger.send_probe("127.0.0.1:7") != 0
