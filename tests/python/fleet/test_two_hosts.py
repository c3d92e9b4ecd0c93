# SPDX-License-Identifier: Apache-2.0
"""Mooncake's commands and stores on two hosts, which are network namespaces."""

import base64
import contextlib
import hashlib
import hmac
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from hosts import child_of, connected_hosts
from machine import TIME_SCALE, WATCHDOG_S, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

MiB = 1 << 20
PORT = 50051


class Machine:
    """A host with a runtime directory and an environment."""

    def __init__(self, host, directory, key):
        self.host, self.address = host, host.address
        self.directory = directory / host.name
        self.directory.mkdir()
        self.environment = {
            **os.environ,
            "MC_RUNTIME_DIR": str(self.directory),
            "MC_CLUSTER_KEY_FILE": key,
            "MC_AGENT_KEEP_SECONDS": str(round(5 * TIME_SCALE)),
        }
        self.environment.pop("MC_AGENT", None)

    def start(self, *words, **environment):
        given = {**self.environment, **environment}
        return subprocess.Popen(
            self.host.command(*words),
            env={name: value for name, value in given.items() if value},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    directory = tmp_path_factory.mktemp("fleet")
    key = directory / "cluster.key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    with connected_hosts("10.79.0.1", "10.79.0.2") as made:
        yield [Machine(host, directory, str(key)) for host in made]


@contextlib.contextmanager
def running_master(host, port=PORT, *more, **environment):
    call = "from mooncake import commands; commands.mooncake_master()"
    ports = [f"--rpc_port={port}", f"--metrics_port={port + 1}"]
    process = host.start(sys.executable, "-c", call, *ports, *more, **environment)
    try:
        until(lambda: process.poll() is not None or host.host.listens(port))
        assert process.poll() is None, process.communicate()
        yield f"{host.address}:{port}"
    finally:
        os.kill(child_of(process), signal.SIGTERM)
        process.communicate(timeout=WATCHDOG_S)


@pytest.fixture(scope="module")
def master(hosts):
    with running_master(hosts[0]) as address:
        yield address


class Store:
    """A process with a store on a host."""

    def __init__(self, host, master, segment, **environment):
        program = str(pathlib.Path(__file__).with_name("store_process.py"))
        self._process = host.start(sys.executable, program, master, str(segment), **environment)
        self.code = self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        assert line, self._process.communicate()
        return json.loads(line)

    def __call__(self, method, *arguments):
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def put(self, key, value):
        return self("put", key, base64.b64encode(value).decode())

    def get(self, key):
        return base64.b64decode(self("get", key))

    def kill(self):
        os.kill(child_of(self._process), signal.SIGKILL)
        self._process.communicate()

    def close(self):
        """What the process has logged."""
        return self._process.communicate(timeout=WATCHDOG_S)[1]


@contextlib.contextmanager
def store(host, master, segment, **environment):
    made = Store(host, master, segment, **environment)
    try:
        yield made
    finally:
        made.close()


def test_each_host_reads_lists_and_removes_the_others_objects(hosts, master, key):
    here, there = hosts
    with store(here, master, 32 * MiB) as a, store(there, master, 32 * MiB) as b:
        assert (a.code, b.code) == (0, 0)
        assert a.put(key("a"), b"of a") == 0 and b.put(key("b"), b"of b" * MiB) == 0
        assert b.get(key("a")) == b"of a" and a.get(key("b")) == b"of b" * MiB
        # A new master waits for reports before it says that there is no object: -900 until then.
        until(lambda: a("batch_is_exist", [key("a"), key("b"), key("c")]) == [1, 1, 0])
        assert a("remove_by_regex", f"^{key}.b$") == 1
        assert b("is_exist", key("b")) == 0 and b("remove_all") == 1
        assert a("is_exist", key("a")) == 0


def test_the_masters_host_may_name_it_by_loopback(hosts, key):
    here, there = hosts
    port = PORT + 20
    with (
        running_master(here, port) as address,
        store(here, f"localhost:{port}", MiB) as a,
        store(there, address, 0) as b,
    ):
        assert a.put(key, b"v") == 0 and b.get(key) == b"v"


def test_a_process_without_memory_stores_on_the_other_host(hosts, master, key):
    here, there = hosts
    with store(here, master, 32 * MiB) as a, store(there, master, 0) as b:
        assert (a.code, b.code) == (0, 0)
        until(lambda: b.put(key, b"v" * 100_000) == 0)
        b.kill()
        assert a.get(key) == b"v" * 100_000


def test_a_store_names_the_other_host_by_address(hosts, master, key):
    here, there = hosts
    with (
        store(here, master, 32 * MiB) as a,
        store(there, master, 32 * MiB, LOCAL_HOSTNAME=there.address) as b,
    ):
        numbers = itertools.count()

        def lies_there():
            """False while this host's agent does not know the other one."""
            name = key(next(numbers))
            assert a("put_on", b("get_hostname"), name, "dmFsdWU=") == 0
            (segment,) = a("segments_of", name)
            return segment.startswith(f"{there.address}:") and a.get(name) == b"value"

        until(lies_there)


def test_a_restarted_process_finds_the_objects_of_the_killed_one(hosts, master, key):
    here, there = hosts
    with store(here, master, 32 * MiB) as a:
        killed = Store(there, master, 32 * MiB)
        assert killed.put(key, b"v") == 0
        killed.kill()
        assert a.get(key) == b"v"
        with store(there, master, 32 * MiB) as again:
            assert again.get(key) == b"v"


def test_a_restarted_master_loses_no_object(hosts, key):
    here, there = hosts
    port = PORT + 10
    with contextlib.ExitStack() as stack:
        with running_master(here, port) as address:
            a = stack.enter_context(store(here, address, 32 * MiB))
            b = stack.enter_context(store(there, address, 32 * MiB))
            assert (a.code, b.code) == (0, 0)
            assert a.put(key("a"), b"of a") == 0 and b.put(key("b"), b"of b") == 0
        with running_master(here, port):
            until(lambda: b.get(key("a")) == b"of a" and a.get(key("b")) == b"of b")
            assert b.put(key("c"), b"later") == 0
            until(lambda: a.get(key("c")) == b"later")


def test_another_key_is_refused_with_the_reason(hosts, master, tmp_path):
    key = tmp_path / "other.key"
    key.write_text("cd" * 32)
    key.chmod(0o600)
    for wrong, reason in ((str(key), "key"), ("", "requires a cluster key")):
        began = time.monotonic()
        refused = Store(hosts[1], master, 0, MC_CLUSTER_KEY_FILE=wrong)
        assert refused.code < 0 and reason in refused.close()
        assert time.monotonic() - began < WATCHDOG_S


FETCH = """import sys, urllib.error, urllib.request
path = sys.argv[3]
for path, key in (("/health", ""), (path, ""), (path, sys.argv[2])):
    request = urllib.request.Request(sys.argv[1] + path, headers={"X-API-Key": key})
    try:
        print(urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def test_the_masters_http_ports_take_the_clusters_token_from_other_hosts(hosts):
    """As KEP-74 starts the master: its own address, for each port."""
    here, there = hosts
    port = PORT + 30
    token = hmac.new(b"ab" * 32, b"mc http", hashlib.sha256).hexdigest()
    ports = [f"--rpc_address={here.address}", f"--http_metadata_server_host={here.address}",
             f"--http_metadata_server_port={port + 2}"]  # fmt: skip

    def codes(number, path):
        url = f"http://{here.address}:{number}"
        asked = there.start(sys.executable, "-c", FETCH, url, token, path)
        return asked.communicate(timeout=WATCHDOG_S)[0].split()

    with running_master(here, port, *ports):
        until(lambda: codes(port + 1, "/get_all_keys")[-1] != "503")  # until the master leads
        assert codes(port + 1, "/get_all_keys") == ["200", "401", "200"]
        assert codes(port + 2, "/metadata?key=k") == ["200", "401", "404"]


def test_a_started_agent_listens_at_the_address_of_the_environment(hosts):
    here, there = hosts
    second = "10.79.0.12"
    there.host.run("ip", "address", "add", f"{second}/24", "dev", "eth0")
    with (
        running_master(here, PORT + 60) as address,
        store(there, address, MiB, MC_TCP_BIND_ADDRESS=second) as b,
    ):
        assert b.code == 0
        logs = list(there.directory.glob(f"*-{PORT + 60}/agent.log"))
        until(lambda: any(f"listen={second}" in log.read_text() for log in logs))


def test_without_a_key_the_processes_of_the_masters_host_share_a_pool(hosts, key):
    """As vLLM: local_hostname is an address that other hosts reach."""
    here, there = hosts
    port = PORT + 70
    without = {"MC_CLUSTER_KEY_FILE": ""}
    with (
        running_master(here, port, **without),
        store(here, f"127.0.0.1:{port}", MiB, LOCAL_HOSTNAME=here.address, **without) as a,
        store(here, f"localhost:{port}", MiB, LOCAL_HOSTNAME=here.address, **without) as b,
    ):
        assert (a.code, b.code) == (0, 0)
        assert a.put(key, b"v") == 0 and b.get(key) == b"v"


def test_a_host_ends_with_all_its_processes():
    """A process that outlives its host would still serve the test's next request."""
    with connected_hosts("10.78.0.1") as (host,):
        held = [
            subprocess.Popen(
                host.command("sh", "-c", "echo ready; exec sleep 1000"), stdout=subprocess.PIPE
            )
            for _ in range(8)
        ]
        assert {process.stdout.readline() for process in held} == {b"ready\n"}
        pids = [child_of(process) for process in held]
        host.end()
        assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
        for process in held:
            process.communicate()


def test_containers_of_a_host_may_share_the_runtime_directory(tmp_path, hosts, key):
    """Containers have separate namespaces; the agent runs in those of the first container."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(connected_hosts("10.78.0.1", "10.78.0.2", "10.78.0.3"))
        cluster_key = hosts[0].environment["MC_CLUSTER_KEY_FILE"]
        first, second, other = (Machine(host, tmp_path, cluster_key) for host in made)
        second.environment["MC_RUNTIME_DIR"] = str(first.directory)
        master = stack.enter_context(running_master(other))
        a = Store(first, master, 32 * MiB)
        b = stack.enter_context(store(second, master, 32 * MiB))
        assert (a.code, b.code) == (0, 0)
        assert a.put(key("a"), b"of a") == 0 and b.put(key("b"), b"of b" * MiB) == 0
        assert b.get(key("a")) == b"of a" and a.get(key("b")) == b"of b" * MiB
        assert b("segments_of", key("a")) == b("segments_of", key("b"))
        a.kill()
        assert b.get(key("a")) == b"of a"
        first.host.end()
        until(lambda: b.put(key("c"), b"of c") == 0)
        assert b.get(key("c")) == b"of c"


def test_a_fleet_without_a_key_is_an_explicit_choice(hosts, key):
    here, there = hosts
    port = PORT + 40
    without = {"MC_CLUSTER_KEY_FILE": ""}
    open_to_all = {**without, "MC_AGENT_INSECURE": "true"}
    with running_master(here, port, "--insecure", **without) as address:
        refused = Store(there, address, 0, **without)
        assert refused.code < 0 and "without a cluster key" in refused.close()
        with (
            store(here, address, MiB, **open_to_all) as a,
            store(there, address, 0, **open_to_all) as b,
        ):
            assert a.put(key, b"v") == 0 and b.get(key) == b"v"
