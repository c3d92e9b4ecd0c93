# SPDX-License-Identifier: Apache-2.0
"""mc-agent.service: starts, ends, crashes and changes of a running agent."""

import grp
import itertools
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import stat
import subprocess

import mckv
import pytest
from conftest import Load, run
from machine import TIME_SCALE, WATCHDOG_S, free_port, is_stopped, stop_process, until

SOCKET = "/run/mc/agent.sock"
OBJECTS = {b"key %d" % number: bytes([number]) * 5000 for number in range(100)}


def put_objects(count=None):
    with mckv.Client(SOCKET) as client:
        for key, value in itertools.islice(OBJECTS.items(), count):
            client.put(key, value)


def check_objects(count=None):
    with mckv.Client(SOCKET) as client:
        for key, value in itertools.islice(OBJECTS.items(), count):
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


def test_the_journal_has_the_fields_of_each_line(serving):
    ready = next(entry for entry in serving.journal() if entry.get("MC_EVENT") == "ready")
    assert ready["MESSAGE"] == f"event=ready pid={serving.pid} socket={SOCKET}"
    assert ready["MC_PID"] == str(serving.pid) and ready["MC_SOCKET"] == SOCKET
    assert ready["PRIORITY"] == "6" and ready["SYSLOG_IDENTIFIER"] == "mc-agent"


def test_a_journal_that_hangs_stops_no_client(agent):
    agent.configure('pool_bytes = "64MiB"\nlog_level = "debug"\n')
    agent.do("start")
    journald = int(run("systemctl", "show", "--value", "--property=MainPID", "systemd-journald"))
    stop_process(journald)
    try:
        # The end of a session is a line; the socket of the journal holds some hundred lines.
        for _ in range(2000):
            put_objects(1)
        assert json.loads(run("mcctl", "status", "--json"))["pid"] == agent.pid
    finally:
        os.kill(journald, signal.SIGCONT)
    agent.do("restart")
    check_objects(1)
    assert agent.show("NRestarts") == "0"


@pytest.mark.parametrize(
    ("group", "mode", "listed", "remedy"),
    [
        ("mc", "0660", True, None),
        ("mc", "0660", False, "allow_uids"),
        ("mc", "0600", True, "socket_mode"),
        ("nogroup", "0660", True, "join the group"),
    ],
)
def test_only_listed_users_of_the_group_are_admitted(agent, group, mode, listed, remedy):
    user = pwd.getpwnam("games")
    agent.configure(f'socket_mode = "{mode}"\nallow_uids = [{user.pw_uid if listed else 4711}]\n')
    agent.do("start")
    done = subprocess.run(
        ["mcctl", "put", "key", "/etc/hostname"], user=user.pw_uid, group=group, extra_groups=[],
        capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (remedy is None), done.stdout + done.stderr
    assert remedy is None or remedy in done.stderr


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


@pytest.mark.parametrize(
    ("place", "settings"),
    [("/var/lib/mc", {}), ("/srv/mc-disk", {"ReadWritePaths": "/srv/mc-disk"})],
)
def test_objects_stay_on_a_disk_through_a_stop(agent, place, settings):
    folder = pathlib.Path(place)
    if settings:
        folder.mkdir(mode=0o700)
        shutil.chown(folder, "mc", "mc")
    agent.configure(
        f'pool_bytes = "64MiB"\ntier_paths = "{place}"\ntier_bytes = "128MiB"\n', **settings
    )

    def disk():
        return json.loads(run("mcctl", "status", "--json"))["tier"]["disks"][0]

    try:
        agent.do("start")
        until(lambda: disk()["serving"])
        assert disk()["path"] == f"{place}/mc.tier" and disk()["io"].startswith("io_uring")
        put_objects()
        agent.do("stop")
        agent.do("start")
        until(lambda: not json.loads(run("mcctl", "status", "--json"))["tier"]["recovering"])
        check_objects()
        assert any(
            f"pools_written objects={len(OBJECTS)} lost=0 left=0" in one["MESSAGE"]
            for one in agent.journal()
        )
    finally:
        agent.do("stop")
        (folder / "mc.tier").unlink(missing_ok=True)
        if settings:
            folder.rmdir()


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
    with Load(SOCKET, OBJECTS) as load:
        for _ in range(3):
            load.goes_on()
            serving.do("restart")
        load.goes_on()


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
    serving.try_to("restart")
    until(lambda: "not_started" in serving.events())
    failure = next(entry for entry in serving.journal() if entry.get("MC_EVENT") == "not_started")
    assert failure["PRIORITY"] == "3" and "pool_byts" in failure["MC_CAUSE"]
    serving.configure(good)
    until(serving.is_active)
    check_objects()


def test_an_agent_without_its_port_says_so_and_tries_again(agent):
    agent.try_without_port(
        lambda port: agent.configure(f'listen = "127.0.0.1:{port}"\nmasters = "127.0.0.1:1"\n')
    )


def test_an_agent_whose_metrics_port_is_in_use_serves_without_metrics(agent):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        agent.configure(f'metrics_listen = "127.0.0.1:{port}"\n')
        agent.do("start")
        put_objects()
    until(lambda: "no_metrics" in agent.events())
    assert agent.says(str(port))


def test_an_agent_without_room_in_its_folder_says_so_and_tries_again(agent):
    folder = pathlib.Path(SOCKET).parent
    folder.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs", folder)
    try:
        agent.configure("")
        agent.try_to("start")
        until(lambda: agent.says("No space left on device", str(folder)))
    finally:
        run("umount", "--lazy", folder)
    until(agent.is_active)


def test_an_agent_without_the_devices_of_its_options_names_the_remedy(agent):
    agent.configure(
        f'transports = "rdma"\nmasters = "127.0.0.1:1"\nlisten = "127.0.0.1:{free_port()}"\n'
    )
    agent.try_to("start")
    until(lambda: agent.says("no RDMA device", 'transports = "auto"'))


def test_the_unit_lets_the_agent_use_libfabric(agent):
    agent.configure(
        'transports = "fabric"\nfabric_provider = "tcp;ofi_rxm"\nmasters = "127.0.0.1:1"\n'
        f'listen = "127.0.0.1:{free_port()}"\n'
    )
    agent.do("start")
    until(lambda: "with_fabric" in agent.events())


def test_the_agent_starts_with_the_drop_in_for_devices(agent):
    agent.configure("")
    folder = pathlib.Path("/run/systemd/system/mc-agent.service.d")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy("/usr/share/doc/mc/rdma.conf", folder)
    run("systemctl", "daemon-reload")
    agent.do("start")
    assert agent.show("PrivateDevices") == "no" and agent.is_active()


@pytest.fixture
def activated(agent):
    """An agent that systemd starts for the first client."""
    agent.configure('pool_bytes = "64MiB"\n')
    run("systemctl", "start", "mc-agent.socket")
    yield agent
    run("systemctl", "stop", "mc-agent.socket")


def test_the_first_client_starts_the_agent(activated):
    assert not activated.is_active()
    put_objects()
    assert activated.is_active()
    status = os.stat(SOCKET)
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert grp.getgrgid(status.st_gid).gr_name == "mc"


def test_clients_that_come_while_the_agent_restarts_wait_for_the_agent(activated):
    put_objects()
    for kill in range(5):
        activated.kill()
        check_objects()  # connects at once
        activated.await_restart(kill)
    activated.do("restart")
    check_objects()
    activated.do("stop")
    put_objects()  # a stop of the agent alone: the next client starts the next agent
    check_objects()


def test_an_agent_whose_socket_is_not_that_of_its_socket_unit_says_so(activated):
    activated.configure('socket = "/run/mc/other.sock"\n')
    activated.try_to("start")
    until(lambda: activated.says("/run/mc/other.sock", "mc-agent.socket"))
    activated.configure("")
    until(activated.is_active)
