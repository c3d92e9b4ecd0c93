# SPDX-License-Identifier: Apache-2.0
"""mc-agent.service: starts, ends, crashes and changes of a running agent."""

import grp
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time

import mckv
import pytest
from conftest import run
from machine import TIME_SCALE, WATCHDOG_S, is_stopped, until

SOCKET = "/run/mc/agent.sock"
OBJECTS = {b"key %d" % number: bytes([number]) * 5000 for number in range(100)}


def put_objects():
    with mckv.Client(SOCKET) as client:
        for key, value in OBJECTS.items():
            client.put(key, value)


def check_objects():
    with mckv.Client(SOCKET) as client:
        for key, value in OBJECTS.items():
            assert client.get(key) == value


@pytest.fixture
def serving(agent):
    """An agent with objects."""
    agent.configure('pool_bytes = "64MiB"\nsocket_mode = "0660"\n')
    agent.do("start")
    put_objects()
    return agent


def test_the_agent_starts_as_its_user_with_a_socket_for_its_group(serving):
    assert serving.is_active()
    status = os.stat(SOCKET)
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert pwd.getpwuid(status.st_uid).pw_name == "mc"
    assert grp.getgrgid(status.st_gid).gr_name == "mc"
    assert json.loads(run("mcctl", "status", "--json"))["pid"] == serving.pid
    said = [one["MESSAGE"] for one in serving.journal() if one["SYSLOG_IDENTIFIER"] == "mc-agent"]
    assert any("event=ready" in line for line in said)


@pytest.mark.parametrize(
    ("group", "listed", "admitted"),
    [("mc", True, True), ("mc", False, False), ("nogroup", True, False)],
)
def test_only_listed_users_of_the_group_are_admitted(agent, group, listed, admitted):
    user = pwd.getpwnam("games")
    agent.configure(f'socket_mode = "0660"\nallow_uids = [{user.pw_uid if listed else 4711}]\n')
    agent.do("start")
    done = subprocess.run(
        ["mcctl", "put", "key", "/etc/hostname"], user=user.pw_uid, group=group, extra_groups=[],
        capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == admitted, done.stdout + done.stderr


def test_a_killed_agent_is_back_with_all_objects_and_views_stay_intact(serving):
    with mckv.Client(SOCKET) as client:
        view = client.view(b"key 7")
        serving.kill()
        assert bytes(view) == OBJECTS[b"key 7"]
        serving.await_restart(0)
        for key, value in OBJECTS.items():
            assert client.get(key) == value
        assert bytes(view) == OBJECTS[b"key 7"]
        client.put("after", b"restart")
    check_objects()


def test_objects_stay_through_ten_kills_in_a_row(serving):
    for kill in range(10):
        serving.kill()
        serving.await_restart(kill)
    check_objects()


def test_objects_stay_through_a_restart_and_end_with_a_stop(serving):
    before = serving.pid
    serving.do("restart")
    assert serving.pid != before
    check_objects()
    serving.do("stop")
    serving.do("start")
    with mckv.Client(SOCKET) as client:
        assert not any(client.exists_batch(list(OBJECTS)))


def test_the_watchdog_restarts_an_agent_that_hangs(serving):
    serving.set(WatchdogSec="2s")
    serving.do("restart")
    pid = serving.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid))
    serving.await_restart(0)
    assert any("watchdog" in entry["MESSAGE"].lower() for entry in serving.journal())
    check_objects()


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_resized_pool_keeps_its_size(serving, end):
    run("mcctl", "segment", "resize", "96MiB")
    if end == "restart":
        serving.do("restart")
    else:
        serving.kill()
        serving.await_restart(0)
    pool = json.loads(run("mcctl", "status", "--json"))["namespaces"][0]
    assert pool["pool_bytes"] == 96 << 20
    check_objects()


def test_gets_go_on_while_the_agent_is_restarted_under_load(serving):
    """The gap is the longest get; no get fails and no byte is wrong."""
    ended = threading.Event()
    longest_s, gets, wrong = 0.0, 0, []

    def load():
        nonlocal longest_s, gets
        with mckv.Client(SOCKET, timeout=WATCHDOG_S) as client:
            while not ended.is_set():
                for key, value in OBJECTS.items():
                    begun = time.monotonic()
                    if client.get(key) != value:
                        wrong.append(key)
                    longest_s = max(longest_s, time.monotonic() - begun)
                    gets += 1
                client.put(b"put %d" % gets, b"x" * 5000)

    def works():
        before = gets
        until(lambda: gets > before + 1000 or not thread.is_alive())
        assert thread.is_alive()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(3):
            works()
            serving.do("restart")
        works()
    finally:
        ended.set()
        thread.join(WATCHDOG_S)
    assert not thread.is_alive() and not wrong
    print(f"{gets} gets, the longest took {longest_s * 1e3:.0f} ms")


def test_a_thousand_clients_stay_through_a_restart(agent):
    agent.configure('pool_bytes = "64MiB"\nmax_sessions_per_user = 1024\n')
    agent.do("start")
    put_objects()
    clients = [mckv.Client(SOCKET, timeout=30 * TIME_SCALE) for _ in range(1000)]
    try:
        views = [client.view(b"key %d" % (at % 100)) for at, client in enumerate(clients)]
        agent.do("restart")
        status = json.loads(run("mcctl", "status", "--json"))
        assert status["sessions_open"] >= 1000
        for at, client in enumerate(clients):
            key = b"key %d" % (at % 100)
            assert bytes(views[at]) == OBJECTS[key] and client.get(key) == OBJECTS[key]
            client.put(b"of %d" % at, b"x")
        views.clear()
    finally:
        for client in clients:
            client.close()


def test_a_wrong_configuration_is_named_in_the_journal_and_costs_no_object(serving):
    good = open("/etc/mc/agent.toml").read()
    serving.configure(good + "pool_byts = 7\n")
    subprocess.run(["systemctl", "restart", "mc-agent"], timeout=WATCHDOG_S, check=False)
    until(lambda: any("pool_byts" in entry["MESSAGE"] for entry in serving.journal()))
    serving.configure(good)
    until(serving.is_active)
    check_objects()


def test_an_agent_without_its_port_says_so_and_tries_again(agent):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        agent.configure(f'listen = "127.0.0.1:{port}"\nmasters = "127.0.0.1:1"\n')
        subprocess.run(["systemctl", "start", "mc-agent"], timeout=WATCHDOG_S, check=False)
        until(lambda: any(str(port) in entry["MESSAGE"] for entry in agent.journal()))
        assert not agent.is_active()
    until(agent.is_active)


def test_the_agent_starts_with_the_drop_in_for_devices(agent):
    agent.configure("")
    folder = pathlib.Path("/run/systemd/system/mc-agent.service.d")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy("/usr/share/doc/mc/rdma.conf", folder)
    run("systemctl", "daemon-reload")
    agent.do("start")
    assert agent.show("PrivateDevices") == "no" and agent.is_active()
