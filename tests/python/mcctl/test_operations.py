# SPDX-License-Identifier: Apache-2.0
"""The verbs of mcctl that change or explain an agent, with their effects."""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tarfile
import time

import mckv
import pytest
from command import documents, mcctl
from machine import WATCHDOG_S, free_port, until

MiB = 1 << 20
KiB = 1 << 10


def answer(agent, *words):
    """The JSON of a call that succeeds."""
    done = mcctl("--json", *words, agent=agent.socket)
    assert done.returncode == 0, done.stderr
    (document,) = documents(done.stdout)
    return document


def segment(agent, name="default"):
    found = answer(agent, "segment", "list")["segments"]
    return next(one for one in found if one["namespace"] == name)


def namespace(agent, name="default"):
    found = answer(agent, "namespace", "list")["namespaces"]
    return next((one for one in found if one["name"] == name), None)


def fill(client, size=64 * KiB, bytes_=None):
    """Puts objects until the pool evicts, or so many bytes; their keys."""
    count = (bytes_ or 128 * MiB) // size
    keys = [f"fill {number}" for number in range(count)]
    for key in keys:
        client.put(key, key.encode().ljust(size, b"."))
    return keys


def resident_bytes(pid):
    """Memory of all memory files of a process, as the kernel counts it."""
    files = {}
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:" in os.readlink(fd):
                stat = os.stat(fd)
                files[stat.st_ino] = stat.st_blocks * 512
    return sum(files.values())


def kill_and_start(agent):
    agent.end(signal.SIGKILL)
    agent.start()


# ---- the wait for the agent


def test_a_verb_waits_for_an_agent_that_restarts(make_agent):
    agent = make_agent(pool_bytes="16MiB")
    agent.end(signal.SIGKILL)
    asked = subprocess.Popen(
        [mckv.program("mcctl"), "--agent", agent.socket, "--timeout-ms", f"{WATCHDOG_S * 1000:.0f}",
         "segment", "list"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        agent.start()
        listed, error = asked.communicate(timeout=WATCHDOG_S)
    finally:
        asked.kill()
    assert asked.returncode == 0, error
    assert "TARGET" in listed


# ---- segment resize


def test_a_shrink_gives_the_pages_back_to_the_system(make_agent):
    agent = make_agent(pool_bytes="64MiB")
    with mckv.Client(agent.socket) as client:
        keys = fill(client)
        before = resident_bytes(agent.pid)
        told = answer(agent, "segment", "resize", "16MiB")
        assert told["settled"] and told["reserved_bytes"] == 16 * MiB
        assert told["resident_bytes"] <= 16 * MiB
        assert before - resident_bytes(agent.pid) >= 40 * MiB
        left = [key for key, there in zip(keys, client.exists_batch(keys), strict=True) if there]
        assert left
        for key in left:
            assert client.get(key) == key.encode().ljust(64 * KiB, b".")


def test_a_shrink_that_waits_for_a_reader_ends_in_its_time_and_names_the_reader(make_agent):
    agent = make_agent(pool_bytes="32MiB")
    with mckv.Client(agent.socket) as client:
        keys = fill(client, bytes_=24 * MiB)
        views = [client.view(key) for key in keys]
        late = mcctl("segment", "resize", "8MiB", "--timeout-ms", "300", agent=agent.socket)
        assert late.returncode == 1
        assert "that clients are reading" in late.stderr, late.stderr
        assert mcctl("segment", "resize", "8MiB", "--wait", "0.2s", agent=agent.socket).returncode
        for view in views:
            view.release()
    until(lambda: segment(agent)["settled"])
    assert segment(agent)["resident_bytes"] <= 8 * MiB


def test_a_resize_on_a_terminal_shows_a_bar(make_agent):
    agent = make_agent(pool_bytes="32MiB")
    with mckv.Client(agent.socket) as client:
        views = [client.view(key) for key in fill(client, bytes_=24 * MiB)]
        terminal, inner = pty.openpty()
        process = subprocess.Popen(
            [mckv.program("mcctl"), "--agent", agent.socket, "segment", "resize", "8MiB"],
            stdin=inner, stdout=inner, stderr=inner,
        )  # fmt: skip
        try:
            os.close(inner)
            seen = read_until(terminal, rb"resizing default +\[.*\] +\d+%")
            assert b"of 8.00 MiB" in seen
            for view in views:
                view.release()
            assert b"now 8.00 MiB" in read_until(terminal, rb"now 8.00 MiB, target 8.00 MiB")
            assert process.wait(WATCHDOG_S) == 0
        finally:
            process.kill()
            process.wait()
            os.close(terminal)


def read_until(terminal, pattern):
    seen = b""
    deadline = time.monotonic() + WATCHDOG_S
    while not re.search(pattern, seen):
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096)
    return seen


# ---- namespaces


def test_a_namespace_is_made_used_kept_over_a_kill_and_deleted(make_agent):
    agent = make_agent(pool_bytes="16MiB")
    made = answer(agent, "namespace", "create", "chat", "--size", "8MiB", "--policy", "lru")
    assert made["target_bytes"] == 8 * MiB
    again = mcctl("namespace", "create", "chat", "--size", "8MiB", agent=agent.socket)
    assert again.returncode == 2 and "exists already" in again.stderr
    with mckv.Client(agent.socket, namespace="chat") as client:
        client.put("key", b"value")
    kill_and_start(agent)
    kept = namespace(agent, "chat")
    assert (kept["configured"], kept["policy"], kept["objects"]) == (False, "lru", 1)
    refused = mcctl("namespace", "delete", "chat", agent=agent.socket)
    assert refused.returncode == 2 and "with 1 objects" in refused.stderr
    with mckv.Client(agent.socket, namespace="chat") as client:
        assert client.get("key") == b"value"
        told = answer(agent, "namespace", "delete", "chat", "--yes")
        assert told == {"deleted": "chat", "objects": 1, "sessions_ended": 1}
        assert namespace(agent, "chat") is None
        with pytest.raises(mckv.McError):
            client.put("other", b"value")
    missing = mcctl("namespace", "delete", "chat", "--yes", agent=agent.socket)
    assert missing.returncode == 1 and "no namespace 'chat'" in missing.stderr


def test_a_namespace_of_the_configuration_is_not_deleted(make_agent):
    agent = make_agent()
    refused = mcctl("namespace", "delete", "default", "--yes", agent=agent.socket)
    assert refused.returncode == 2
    assert "the configuration defines this namespace" in refused.stderr


def test_a_quota_evicts_at_once_and_outlives_a_kill(make_agent):
    agent = make_agent(pool_bytes="32MiB")
    with mckv.Client(agent.socket) as client:
        fill(client, bytes_=16 * MiB)
        assert answer(agent, "namespace", "quota", "default", "4MiB")["capacity_bytes"] == 4 * MiB
        until(lambda: namespace(agent)["live_bytes"] <= 4 * MiB)
        fill(client, bytes_=16 * MiB)
        assert namespace(agent)["live_bytes"] <= 4 * MiB
    kill_and_start(agent)
    assert namespace(agent)["capacity_bytes"] == 4 * MiB
    assert answer(agent, "namespace", "quota", "default", "none")["capacity_bytes"] == 0
    with mckv.Client(agent.socket) as client:
        fill(client, bytes_=16 * MiB)
    assert namespace(agent)["live_bytes"] > 4 * MiB
    kill_and_start(agent)
    assert namespace(agent)["capacity_bytes"] == 0


def test_a_configured_quota_replaces_the_quota_of_an_operator(make_agent):
    agent = make_agent(pool_bytes="32MiB")
    answer(agent, "namespace", "quota", "default", "4MiB")
    agent.end(signal.SIGKILL)
    agent._options["capacity_bytes"] = "8MiB"
    agent.start()
    assert namespace(agent)["capacity_bytes"] == 8 * MiB
    answer(agent, "namespace", "quota", "default", "2MiB")
    kill_and_start(agent)
    assert namespace(agent)["capacity_bytes"] == 2 * MiB


# ---- evict and pin


def test_evict_makes_room_and_leaves_hard_pins(make_agent):
    agent = make_agent(pool_bytes="32MiB")
    with mckv.Client(agent.socket) as client:
        pinned = fill(client, bytes_=8 * MiB)
        pins = answer(agent, "pin", *pinned, "--pin", "hard")
        assert pins == {"keys": pinned, "pin": "hard"}
        assert answer(agent, "stat", pinned[0])["pin"] == "hard"
        for number in range(256):
            client.put(f"loose {number}", b"." * 64 * KiB)
        told = answer(agent, "evict", "16MiB")
        assert told["free_bytes"] >= 16 * MiB and told["evicted"] > 0
        assert answer(agent, "evict", "16MiB")["evicted"] == 0
        too_much = mcctl("evict", "30MiB", agent=agent.socket)
        assert too_much.returncode == 1
        assert "no other object can be evicted" in too_much.stderr
        assert all(client.exists_batch(pinned))
        answer(agent, "pin", *pinned, "--pin", "none")
    # The session and its reservations have ended.
    assert answer(agent, "evict", "32MiB")["free_bytes"] == 32 * MiB
    assert namespace(agent)["evictions_for"]["operator"] > 0
    beyond = mcctl("evict", "1GiB", agent=agent.socket)
    assert beyond.returncode == 2 and "the size of the pool" in beyond.stderr


def test_evict_ends_while_clients_fill_the_pool(make_agent):
    agent = make_agent(pool_bytes="32MiB")
    filler = (
        "import sys, mckv\n"
        "with mckv.Client(sys.argv[1]) as client:\n"
        "    print('fills', flush=True)\n"
        "    for number in range(1 << 40):\n"
        "        client.put(f'key {number}', b'.' * 65536)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", filler, agent.socket], stdout=subprocess.PIPE, text=True
    )
    try:
        process.stdout.readline()
        until(lambda: namespace(agent)["evictions"] > 0)
        done = mcctl("evict", "30MiB", agent=agent.socket)
        assert done.returncode in (0, 1), done.stderr
        assert not done.returncode or "clients fill the pool" in done.stderr, done.stderr
        assert namespace(agent)["evictions_for"]["operator"] <= 2 * (30 * MiB // (64 * KiB))
    finally:
        process.kill()
        process.communicate()


def test_objects_that_are_read_count_as_evicted(make_agent):
    agent = make_agent(pool_bytes="16MiB")
    with mckv.Client(agent.socket) as client:
        for number in range(300):
            client.put(f"small {number}", b"." * 100)
        views = [client.view(f"small {number}") for number in range(300)]
        told = answer(agent, "evict", "15MiB")
        assert told["evicted"] == 0
        # The client's reservations stay.
        assert mcctl("evict", "16MiB", agent=agent.socket).returncode == 1
        assert namespace(agent)["objects"] == 0
        for view in views:
            assert bytes(view) == b"." * 100
            view.release()
    until(lambda: answer(agent, "evict", "15MiB")["waiting_for_readers_bytes"] == 0)


def test_pin_names_a_key_without_an_object(make_agent):
    agent = make_agent()
    with mckv.Client(agent.socket) as client:
        client.put("here", b"value")
    done = mcctl("pin", "here", "missing", agent=agent.socket)
    assert done.returncode == 3
    assert done.stdout == "here: pin soft\n"
    assert "no object with the key missing" in done.stderr


# ---- trace


def test_trace_tells_why_an_object_is_gone(make_agent):
    agent = make_agent(pool_bytes="16MiB")
    with mckv.Client(agent.socket) as client:
        for key in ("evicted", "removed", "here"):
            client.put(key, b"value")
        client.remove("removed")
        found = answer(agent, "trace", "here")
        assert found["here"]["here"] and "departure" not in found["here"]
        assert found["get"]["status"] == "MC_OK" and found["get"]["from"] == "this host"
        assert found["cluster"] is None
    answer(agent, "evict", "16MiB")
    for key, reason in (("evicted", "evicted by an operator"), ("removed", "removed")):
        done = mcctl("--json", "trace", key, agent=agent.socket)
        assert done.returncode == 3
        (told,) = documents(done.stdout)
        assert told["here"]["departure"]["reason"] == reason
        assert told["get"]["status"] == "MC_NOT_FOUND"
        lines = mcctl("trace", key, agent=agent.socket).stdout.splitlines()
        assert f"one was {reason}" in lines[1]
        assert [line.split()[0] for line in lines] == ["key", "this", "cluster", "a"]
    never = mcctl("trace", "never", agent=agent.socket)
    assert never.returncode == 3 and "none has left in the last" in never.stdout


def test_trace_tells_the_cost_of_a_fetch_and_the_reason_of_a_miss(hosts_of_module):
    first, second = hosts_of_module
    with mckv.Client(second.socket) as client:
        client.put("traced", b"." * 64 * KiB)
    told = answer(first, "trace", "traced")
    assert not told["here"]["here"]
    assert [one["self"] for one in told["cluster"]["holders"]] == [False]
    assert told["get"]["from"] == "another host"
    assert {"locate_ns", "read_ns"} <= set(told["get"]["stages"])
    missing = mcctl("--json", "trace", "nowhere", agent=first.socket)
    assert missing.returncode == 3
    (told,) = documents(missing.stdout)
    assert told["cluster"]["found"] is False and told["get"]["miss"] == "nobody"


# ---- events


def test_events_follow_an_agent_over_a_restart(make_agent):
    agent = make_agent(pool_bytes="16MiB")
    known = [
        one["fields"] for one in documents(mcctl("--json", "events", agent=agent.socket).stdout)
    ]
    assert any(fields.get("event") == "ready" for fields in known)
    follower = subprocess.Popen(
        [mckv.program("mcctl"), "--agent", agent.socket, "--json", "events", "--follow",
         "--limit", "1", "--timeout-ms", "200"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:

        def following(name):
            for line in follower.stdout:
                event = json.loads(line)
                if event["fields"].get("event") == name:
                    return event["fields"]
            raise AssertionError(f"no event {name}: {follower.stderr.read()}")

        answer(agent, "segment", "resize", "24MiB")
        assert following("pool_resized")["to_bytes"] == str(24 * MiB)
        kill_and_start(agent)
        assert following("pool_recovered")["namespace"] == "default"
        answer(agent, "namespace", "create", "made", "--size", "2MiB")
        assert following("namespace_created")["namespace"] == "made"
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()
        follower.stderr.close()


def test_events_are_limited_and_filtered(make_agent):
    agent = make_agent(pool_bytes="16MiB")
    with mckv.Client(agent.socket) as client:
        for size in range(17, 100):  # more than an answer of the agent has
            client.ask({"verb": "resize", "namespace": "default", "pool_bytes": size * MiB})
    lines = mcctl("events", "--limit", "70", agent=agent.socket).stdout.splitlines()
    assert len(lines) == 70
    assert any(line.endswith(f"to_bytes={99 * MiB}") for line in lines)


def test_events_of_a_level_leave_out_the_others(make_agent):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        agent = make_agent(metrics_listen=f"127.0.0.1:{taken.getsockname()[1]}")
    answer(agent, "segment", "resize", "64MiB")
    warnings = mcctl("--json", "events", "--level", "warn", agent=agent.socket)
    assert [one["fields"]["event"] for one in documents(warnings.stdout)] == ["no_metrics"]
    latest = mcctl("--json", "events", "--level", "warn", "--limit", "1", agent=agent.socket)
    assert latest.stdout == warnings.stdout
    assert mcctl("events", "--level", "error", agent=agent.socket).stdout == ""


# ---- support-bundle


def test_a_support_bundle_has_facts_and_no_secrets(make_agent, tmp_path):
    secrets = {"cluster.key": "5e" * 32, "http.token": "token-that-nobody-may-see"}
    files = {}
    for name, secret in secrets.items():
        files[name] = tmp_path / name
        files[name].touch(mode=0o600)
        files[name].write_text(secret + "\n")
    secrets["store"] = "a-password-of-the-store"
    agent = make_agent(
        cluster_key_file=files["cluster.key"], http_token_file=files["http.token"],
        cluster_store=f"redis://mc:{secrets['store']}@127.0.0.1:{free_port()}",
        metrics_listen="off",
    )  # fmt: skip
    with mckv.Client(agent.socket, label="an engine") as client:
        client.put("key-of-a-prompt", b"bytes-of-a-prompt")
        told = answer(agent, "support-bundle", str(tmp_path / "bundle.tar.gz"))
    with tarfile.open(told["file"]) as bundle:
        names = {pathlib.Path(name).name for name in bundle.getnames()}
        texts = [bundle.extractfile(one).read().decode() for one in bundle if one.isfile()]
    assert told["files"] + 1 == len(texts)
    assert os.stat(told["file"]).st_mode & 0o777 == 0o600
    assert {"status.json", "config.json", "events.json", "README.txt", "memory.txt"} <= names
    whole = "\n".join(texts)
    assert "redis://mc:***@127.0.0.1" in whole
    assert "event=ready" in whole or '"event": "ready"' in whole
    assert "an engine" in whole and str(files["cluster.key"]) in whole
    for secret in (*secrets.values(), "key-of-a-prompt", "bytes-of-a-prompt"):
        assert secret not in whole


def test_a_support_bundle_needs_no_agent_and_says_why_it_is_incomplete(tmp_path):
    nowhere = str(tmp_path / "no.sock")
    done = mcctl("--json", "support-bundle", str(tmp_path / "a.tar.gz"), agent=nowhere)
    assert done.returncode == 0, done.stderr
    (told,) = documents(done.stdout)
    assert "status.json" in told["incomplete"] and "memory.txt" not in told["incomplete"]
    with tarfile.open(told["file"]) as bundle:
        status = bundle.extractfile("mc-support/status.json").read().decode()
    assert nowhere in status
    refused = mcctl("support-bundle", "/proc/a.tar.gz", agent=nowhere)
    assert refused.returncode == 1 and "try: " in refused.stderr


# ---- drain and undrain


def test_an_undrained_host_takes_objects_again(hosts_of_module):
    first, _ = hosts_of_module
    nodes = answer(first, "nodes")["nodes"]
    other = next(one["address"] for one in nodes if not one["self"])

    def state():
        return next(one["state"] for one in answer(first, "nodes")["nodes"] if not one["self"])

    assert answer(first, "drain", other)["done"]
    assert state() == "draining"
    answer(first, "undrain", other)
    assert state() == "ok"
    unknown = mcctl("undrain", "10.9.8.7:1", agent=first.socket)
    assert unknown.returncode == 2 and "no member has" in unknown.stderr
