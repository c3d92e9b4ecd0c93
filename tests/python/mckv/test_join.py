# SPDX-License-Identifier: Apache-2.0
"""mcctl join: one agent a host and cluster. The memory that processes add to its pool."""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys

import mckv
import pytest
from machine import WATCHDOG_S, free_port, has_ended, run_master, stop_process, until

MiB = 1 << 20
LEAST_POOL = 64 * MiB  # room for other hosts' objects


@pytest.fixture
def master():
    with run_master("team-a") as address:
        yield address


def begin(master, *more):
    return subprocess.Popen(
        [mckv.program("mcctl"), "--json", "--timeout-ms", str(int(WATCHDOG_S * 1000)), "join",
         master, *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def answer(process):
    out, errors = process.communicate(timeout=WATCHDOG_S)
    return process.returncode, json.loads(out), errors


def join(master, *more):
    code, told, errors = answer(begin(master, *more))
    assert code == 0, errors
    return told["socket"]


def contribute(client, size, buffer=0):
    session = client.info()["session_id"]
    return client.ask(
        {"verb": "contribute", "session": session, "bytes": size, "buffer_bytes": buffer}
    )


def pool(client):
    (segment,) = client.ask({"verb": "segments"})["segments"]
    return segment


def test_processes_that_join_at_once_share_one_agent(master, runtime_dir):
    answers = [answer(one) for one in [begin(master) for _ in range(4)]]
    assert {code for code, _, _ in answers} == {0}
    assert {told["cluster"] for _, told, _ in answers} == {"team-a"}
    assert {told["socket"] for _, told, _ in answers} == {str(runtime_dir / "team-a/agent.sock")}
    assert len([told for _, told, _ in answers if told["started"]]) == 1
    page = f"MC_AGENT=$({mckv.program('mcctl')} join {master}) {mckv.program('mcctl')} status"
    subprocess.run(["sh", "-c", page], check=True, stdout=subprocess.DEVNULL)


def test_the_agent_of_an_operator_is_used(master, make_agent, monkeypatch, runtime_dir):
    agent = make_agent(masters=master, cluster_id="team-a", listen="127.0.0.1:0")
    monkeypatch.setenv("MC_AGENT", agent.socket)
    told = answer(begin(master))[1]
    assert told["operated"] and told["socket"] == agent.socket
    with run_master("team-b") as other:
        assert join(other) == str(runtime_dir / "team-b/agent.sock")


def test_a_master_that_is_not_there_is_an_error(runtime_dir):
    done = subprocess.run(
        [mckv.program("mcctl"), "--timeout-ms", "200", "join", f"127.0.0.1:{free_port()}"],
        capture_output=True, text=True, timeout=WATCHDOG_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Connection refused" in done.stderr and "start a master there" in done.stderr
    assert not runtime_dir.exists()


def test_the_pool_is_the_sum_of_what_processes_contribute(master, runtime_dir):
    socket = join(master)
    with mckv.Client(socket) as one:
        assert pool(one)["pool_bytes"] == LEAST_POOL
        with pytest.raises(mckv.NoSpaceError):
            one.put("k", b"v", timeout=0.2)
        assert contribute(one, 48 * MiB)["pool_bytes"] == LEAST_POOL
        one.put("k", b"v")
        with mckv.Client(socket) as two:
            assert contribute(two, 32 * MiB)["pool_bytes"] == 80 * MiB
            assert contribute(two, 64 * MiB)["pool_bytes"] == 112 * MiB
        assert pool(one)["contributed_bytes"] == 48 * MiB, "a goodbye withdraws"
        assert contribute(one, 0)["contributed_bytes"] == 0
        until(lambda: one.ask({"verb": "status"})["namespaces"][0]["objects"] == 0)


def test_a_large_buffer_has_room_for_an_object_of_its_size(master, runtime_dir):
    with mckv.Client(join(master)) as client:
        assert contribute(client, 1 * MiB, 100 * MiB)["pool_bytes"] == 100 * MiB


def test_a_contribution_without_room_changes_nothing(master, runtime_dir):
    with mckv.Client(join(master)) as client:
        contribute(client, 80 * MiB)
        for size in (1 << 50, 1 << 63):
            with pytest.raises(mckv.InvalidArgumentError, match="max_bytes"):
                contribute(client, size)
        for size in (-1, 1.5, "1MiB", None):
            with pytest.raises(mckv.InvalidArgumentError, match="whole numbers"):
                contribute(client, size)
        assert pool(client)["contributed_bytes"] == 80 * MiB
        order = {"verb": "contribute", "session": 1 << 40, "bytes": MiB, "buffer_bytes": 0}
        with pytest.raises(mckv.SessionLostError, match="no such session"):
            client.ask(order)


def test_an_operators_resize_is_a_floor(master, runtime_dir):
    with mckv.Client(join(master)) as client:
        order = {"verb": "resize", "namespace": "default", "pool_bytes": 96 * MiB}
        assert client.ask(order)["own_bytes"] == 96 * MiB
        client.put("k", b"v")  # an own size has room without contributions
        assert contribute(client, 112 * MiB)["pool_bytes"] == 112 * MiB
        with pytest.raises(mckv.InvalidArgumentError, match="processes contribute 112 MiB"):
            client.ask(order)


CONTRIBUTOR = """
import sys, mckv
client = mckv.Client(sys.argv[1])
session = client.info()["session_id"]
order = {"verb": "contribute", "session": session, "bytes": 80 << 20, "buffer_bytes": 0}
client.ask(order)
if "put" in sys.argv:
    client.put("k", b"v")
print("ready", flush=True)
sys.stdin.read()
"""


def contributor(socket, *more):
    process = subprocess.Popen(
        [sys.executable, "-c", CONTRIBUTOR, socket, *more],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_memory_of_a_killed_process_stays_for_its_successor(master, runtime_dir):
    socket = join(master)
    with mckv.Client(socket) as client:
        process = contributor(socket, "put")
        process.kill()
        process.communicate()
        until(lambda: len(client.ask({"verb": "status"})["sessions"]) == 1)
        assert pool(client)["contributed_bytes"] == 80 * MiB
        assert bytes(client.get("k")) == b"v"
        assert contribute(client, 80 * MiB)["contributed_bytes"] == 80 * MiB
        until(lambda: pool(client)["pool_bytes"] == 80 * MiB)
        contribute(client, 0)


def test_the_memory_of_a_killed_process_without_a_call_stays_too(master, runtime_dir):
    socket = join(master)
    with mckv.Client(socket) as client:
        process = contributor(socket)
        process.kill()
        process.communicate()
        until(lambda: len(client.ask({"verb": "status"})["sessions"]) == 1)
        assert pool(client)["contributed_bytes"] == 80 * MiB


def test_the_memory_of_a_killed_process_ends_after_keep_seconds(master, runtime_dir, monkeypatch):
    monkeypatch.setenv("MC_AGENT_KEEP_SECONDS", "1")
    socket = join(master)
    with mckv.Client(socket) as client:
        process = contributor(socket)
        process.kill()
        process.communicate()
        until(lambda: pool(client)["contributed_bytes"] == 0)
        assert pool(client)["pool_bytes"] == LEAST_POOL


def test_contributions_outlive_the_agent(master, runtime_dir):
    socket = join(master)
    process = contributor(socket, "put")
    with mckv.Client(socket) as client:
        contribute(client, 16 * MiB)
        os.kill(client.ask({"verb": "status"})["pid"], signal.SIGKILL)
        until(lambda: join(master) == socket)
        assert pool(client)["contributed_bytes"] == 96 * MiB
        assert bytes(client.get("k")) == b"v"
        process.communicate("")  # goodbye
        until(lambda: pool(client)["contributed_bytes"] == 16 * MiB)


def is_locked(path):
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True


def test_an_agent_that_dies_while_a_process_joins_is_replaced(master, runtime_dir):
    socket = join(master)
    with mckv.Client(socket) as client:
        pid = client.ask({"verb": "status"})["pid"]
    stop_process(pid)  # takes connections, answers none
    process = begin(master)
    until(lambda: is_locked(pathlib.Path(socket).with_name("join.lock")))
    os.kill(pid, signal.SIGKILL)
    code, told, errors = answer(process)
    assert code == 0, errors
    assert told["socket"] == socket and told["started"] not in (0, pid)


def test_an_agent_without_processes_ends(master, runtime_dir, monkeypatch):
    monkeypatch.setenv("MC_AGENT_END_IDLE_SECONDS", "1")
    with mckv.Client(join(master)) as client:
        pid = client.ask({"verb": "status"})["pid"]
    until(lambda: has_ended(pid))
    with mckv.Client(join(master)) as client:
        assert client.ask({"verb": "status"})["pid"] != pid


def test_an_object_of_a_process_without_memory_lies_on_another_host(master, runtime_dir):
    other = join(master, "--runtime-dir", str(runtime_dir / "host2"))
    with mckv.Client(join(master)) as here, mckv.Client(other) as there:
        contribute(here, 32 * MiB)

        def capacities():
            return sorted(node["capacity_bytes"] for node in there.ask({"verb": "nodes"})["nodes"])

        until(lambda: capacities() == [0, 32 * MiB])
        there.put("k", b"v" * 5000)
        found = here.ask({"verb": "where", "namespace": "default", "key": "k"})
        assert [one["self"] for one in found["holders"]] == [True]
        assert bytes(there.get("k")) == b"v" * 5000
