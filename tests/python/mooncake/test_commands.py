# SPDX-License-Identifier: Apache-2.0
"""Mooncake's console commands: they hold its ports, and say what they map to."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import mckv
import mooncake.store
import pytest
from machine import WATCHDOG_S, free_port, run_master, until
from mooncake.store import MooncakeDistributedStore

pytestmark = pytest.mark.ours_only


def start(call, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", f"from mooncake import commands; commands.{call}()", *arguments],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(port, process):
    deadline = time.monotonic() + WATCHDOG_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)


def fetch(url, method="GET", data=None, headers=None):
    try:
        request = urllib.request.Request(url, method=method, data=data, headers=headers or {})
        with urllib.request.urlopen(request, timeout=WATCHDOG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextlib.contextmanager
def running(call, *arguments, **environment):
    process = start(call, *arguments, **environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.said = process.communicate(timeout=WATCHDOG_S)[1]
        assert process.returncode == 0, process.said


def test_the_master_serves_mooncakes_ports(runtime_dir):
    rpc, admin, metadata = (free_port() for _ in range(3))
    with running(
        "mooncake_master", f"--rpc_port={rpc}", "-metrics_port", str(admin),
        "--metrics_host=127.0.0.1",
        "--enable_http_metadata_server=true", "--eviction_ratio=0.1",
        "--http_metadata_server_host=127.0.0.1", f"--http_metadata_server_port={metadata}",
        "--nologtostderr",
    ) as master:  # fmt: skip
        for port in (rpc, admin, metadata):
            wait_for(port, master)
        store = MooncakeDistributedStore()
        address = f"127.0.0.1:{rpc}"
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 1 << 20, "tcp", "", address) == 0
        assert store.put("listed", b"value") == 0
        base = f"http://127.0.0.1:{admin}"
        assert json.loads(fetch(f"{base}/health")[1])["role"] == "leader"

        def segment():
            return json.loads(fetch(f"{base}/get_segments_detail")[1])["segments"][0]

        until(lambda: segment()["size_bytes"] >= 16 << 20)  # with the agent's next heartbeat
        assert fetch(f"{base}/get_all_segments") == (200, segment()["segment_name"] + "\n")
        until(lambda: fetch(f"{base}/query_key?key=listed")[0] == 200)
        (replica,) = json.loads(fetch(f"{base}/query_key?key=listed")[1])["data"]
        assert replica["size_"] == 5
        assert replica["transport_endpoint_"] == segment()["te_endpoint"]
        assert fetch(f"{base}/get_all_keys") == (200, "listed\n")
        assert "\nmaster_key_count 1\n" in fetch(f"{base}/metrics")[1]
        agent, client = store._pool.agent, store._pool.client
        client.ask({"verb": "create_namespace", "name": "tenant", "pool_bytes": 1 << 20,
                    "clustered": True})  # fmt: skip
        with mckv.Client(agent, namespace="tenant") as tenant:
            tenant.put("of the tenant", b"value")
            code, removed = fetch(f"{base}/api/v1/remove_all?tenant_id=tenant", "POST", b"")
            assert code == 200 and json.loads(removed)["removed_count"] == 1
            # A new master waits for reports before it says that there is no object.
            until(lambda: tenant.exists_batch(["of the tenant"]) == [False])
            assert store.is_exist("listed") == 1
            tenant.put("of the tenant", b"value")
            code, removed = fetch(f"{base}/api/v1/remove_all", "POST", b"")
            assert code == 200 and json.loads(removed)["removed_count"] == 2
            assert not tenant.exists("of the tenant") and store.is_exist("listed") == 0
        url = f"http://127.0.0.1:{metadata}/metadata?key=k"
        assert fetch(url, "PUT", b"1") == (200, "metadata updated") and fetch(url) == (200, "1")
        assert store.close() == 0
    assert "event=ready" in master.said and "listening on 127.0.0.1 for this host" in master.said
    assert master.said.count("--eviction_ratio means nothing here") == 1


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_master_listens_on_ipv6(runtime_dir, host):
    rpc = free_port()
    ports = (f"--rpc_port={rpc}", f"--metrics_port={free_port()}", f"--metrics_host={host}")
    with running("mooncake_master", f"--rpc_address={host}", *ports):
        store = MooncakeDistributedStore()
        master = f"[::1]:{rpc}"
        until(lambda: store.setup("::1", "P2PHANDSHAKE", 16 << 20, 1 << 20, "tcp", "", master) == 0)
        assert store.put("k", b"v") == 0 and store.get("k") == b"v" and store.close() == 0


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ((), r"Master Admin Metrics: role=(standby|leader), .*master=\{Mem Storage: 0 B / 0 B"),
        (("--log_format=0.3.6",), r"Master Metrics: Storage: 0 B / 0 B \| Keys: 0\n"),
    ],
)
def test_the_master_logs_its_metrics(runtime_dir, flags, line):
    rpc = free_port()
    with running("mooncake_master", f"--rpc_port={rpc}", f"--metrics_port={free_port()}", *flags
                 ) as master:  # fmt: skip
        said = ""
        while "Metrics: " not in said:
            said = master.stderr.readline()
            assert said, master.communicate()
        assert re.search(line, said), said


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_masters_flags_may_stand_in_a_file(runtime_dir, tmp_path, form):
    """A flag of the command line comes before the file's."""
    rpc, admin = free_port(), free_port()
    file = tmp_path / "master"
    values = {"rpc_port": 1, "metrics_port": admin, "enable_metric_reporting": False}
    lines = f"---\n# ports\nrpc_port: 1\nmetrics_port: '{admin}'  # of HTTP\n"
    lines += "enable_metric_reporting: false\n"
    file.write_text(json.dumps(values) if form == "json" else lines)
    with running("mooncake_master", f"--config_path={file}", f"--rpc_port={rpc}") as master:
        wait_for(admin, master)
        assert fetch(f"http://127.0.0.1:{admin}/role")[0] == 200
    assert "Metrics:" not in master.said
    for text, reason in (("rpc_prot: 1", "unknown flag rpc_prot"), ("{", "Expecting"),
                         ("rpc_port", "not 'name: value'"),
                         ('{"rpc_port": [1]}', "no single value")):  # fmt: skip
        file.write_text(text)
        refused = start("mooncake_master", f"--config_path={file}")
        assert reason in refused.communicate(timeout=WATCHDOG_S)[1] and refused.returncode == 1


def test_the_page_names_the_flags_with_an_effect():
    from mooncake import _flags

    page = (pathlib.Path(__file__).parents[3] / "python/mooncake/README.md").read_text()
    section = page.partition("## Flags of the commands")[2].partition("\n## ")[0]
    named = {one.replace("-", "_") for one in re.findall(r"`--([a-z_]+)`", section)}
    assert named == _flags.MEANINGFUL


@pytest.mark.parametrize("kind", ["redis", "etcd"])
def test_masters_with_ha_share_a_cluster(kind, runtime_dir, request, monkeypatch):
    """The second master stands by; stores name the masters' store."""
    server = request.getfixturevalue(f"{kind}_server")
    ports = [free_port(), free_port()]
    monkeypatch.setenv("MC_STORE_CLUSTER_ID", "fleet-7")
    flags = ["--enable_ha=true", f"--ha_backend_type={kind}", "--metrics_host=127.0.0.1",
             "--cluster_id=fleet-7",
             f"--ha_backend_connstring={server}", "--rpc_address=127.0.0.1"]  # fmt: skip
    with contextlib.ExitStack() as stack:
        masters = []
        for port in ports:
            more = [f"--rpc_port={port}", f"--metrics_port={free_port()}"]
            masters.append(stack.enter_context(running("mooncake_master", *flags, *more)))
            wait_for(port, masters[-1])
        store = MooncakeDistributedStore()
        where = f"{kind}://{server}"
        assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 1 << 20, "tcp", "", where) == 0
        assert store.put("k", b"v") == 0
        masters[0].send_signal(signal.SIGTERM)
        masters[0].wait(WATCHDOG_S)
        until(lambda: store.put("after", b"v", mooncake.store.ReplicateConfig()) == 0)
        assert store.get("k") == b"v" and store.close() == 0


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--rpc_prot=1", "did you mean --rpc_port"),
        ("--enable_ha=true", "--ha_backend_connstring"),
        ("--enable_ha=true --ha_backend_type=k8s", "etcd or redis"),
        ("--enable_oplog", "enable_oplog"),
        ("--enable_cxl", "enable_cxl"),
        ("--rpc_port=many", "not a port"),
        ("--rpc_address=192.0.2.1", "without a cluster key"),
        ("--metrics_host=0.0.0.0", "MC_HTTP_TOKEN_FILE or ADMIN_API_KEY"),
        ("--metrics_host=no.such.host.invalid", "not an address of this host"),
        ("--log_format=1", "0.3.6 or 0.3.13"),
        ("file", "not a flag"),
    ],
)
def test_the_master_refuses_what_it_cannot_do(flag, said):
    done = start("mooncake_master", *flag.split())
    _, text = done.communicate(timeout=WATCHDOG_S)
    assert done.returncode == 1 and said in text


def test_the_client_serves_dummies(runtime_dir):
    port = free_port()
    with (
        run_master("m") as master,
        running(
            "mooncake_client", "--global_segment_size=64MB", f"--port={port}",
            f"--master_server_address={master}",
        ) as client,
    ):  # fmt: skip
        wait_for(port, client)
        store = MooncakeDistributedStore()
        assert store.setup_dummy(1 << 20, 1 << 20, f"127.0.0.1:{port}") == 0
        (segment,) = store._client.ask({"verb": "segments"})["segments"]
        assert segment["contributed_bytes"] == 64 << 20
        assert store.put("k", b"v") == 0 and store.get("k") == b"v"
        at = store.alloc_from_mem_pool(4096)
        assert at and store.register_buffer(at, 4096) == 0 and store.get_into("k", at, 4096) == 1
        assert store.close() == 0


def test_a_client_and_a_master_with_offload_keep_objects_on_a_disk(runtime_dir, tmp_path):
    rpc, admin, port = (free_port() for _ in range(3))
    environment = {
        "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH": str(tmp_path / "disk"),
        "MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE": str(128 << 20),
    }
    master = running(
        "mooncake_master", f"--rpc_port={rpc}", "--enable_offload=true",
        "--offload_on_evict=true", f"--metrics_port={admin}", "--metrics_host=127.0.0.1",
    )  # fmt: skip
    client = running(
        "mooncake_client", "--global_segment_size=64MB", f"--port={port}", "--enable_offload=true",
        "--start_offload_rpc_server=true", f"--master_server_address=127.0.0.1:{rpc}",
        **environment,
    )  # fmt: skip
    with master as leader:
        wait_for(rpc, leader)
        with client as lender:
            wait_for(port, lender)
            store = MooncakeDistributedStore()
            assert store.setup_dummy(1 << 20, 1 << 20, f"127.0.0.1:{port}") == 0
            (disk,) = store._client.ask({"verb": "status"})["tier"]["disks"]
            assert disk["path"] == str(tmp_path / "disk/mc.tier")
            assert (tmp_path / "disk/mc.tier").stat().st_size == 128 << 20
            assert store.close() == 0
    assert "enable_ssd_offload" in leader.said and "--offload_on_evict" in leader.said


def test_a_client_without_a_master_says_so(runtime_dir):
    client = start("mooncake_client", f"--master_server_address=127.0.0.1:{free_port()}")
    said = client.communicate(timeout=WATCHDOG_S)[1]
    assert client.returncode == 1 and "start a master there" in said and "-900" in said


def test_the_topology_is_dumped():
    done = start("transfer_engine_topology_dump")
    assert "cpu:0" in json.loads(done.communicate(timeout=WATCHDOG_S)[0])


def test_the_topology_has_the_rdma_nics_near_and_far(tmp_path, monkeypatch):
    from mooncake import _topology

    tree = pathlib.Path(__file__).parents[2] / "data/topology/two-socket.tree"
    elsewhere = tmp_path / "mcctl"
    elsewhere.write_text(f'#!/bin/sh\nexec {mckv.program("mcctl")} "$@" --from {tree}\n')
    elsewhere.chmod(0o755)
    monkeypatch.setattr(mckv, "program", lambda name: str(elsewhere))
    found = json.loads(_topology.local_topology())
    assert found["cpu:0"] != found["cpu:1"]
    near, far = found["cpu:0"]
    assert near and far and not set(near) & set(far)
    assert json.loads(_topology.local_topology(near[0]))["cpu:0"] == [[near[0]], []]
    monkeypatch.setattr(mckv, "program", lambda name: str(tmp_path / "missing"))
    with pytest.raises(RuntimeError, match="mcctl topo"):
        _topology.local_topology()


def test_the_transfer_bench_moves_bytes():
    call = "from mooncake.transfer_engine_bench import main; main()"
    bench = [sys.executable, "-c", call]
    target = subprocess.Popen(
        [*bench, "--mode=target", "--buffer_size=4194304"], stdout=subprocess.PIPE, text=True
    )
    try:
        flag = next(w for w in target.stdout.readline().split() if w.startswith("--segment_id"))
        done = subprocess.run(
            [*bench, flag.rstrip(";"), "-operation=write", "--threads=2", "--batch_size=8",
             "--duration=1", "--buffer_size=4194304", "--protocol=tcp"],
            capture_output=True, text=True, timeout=WATCHDOG_S,
        )  # fmt: skip
        assert done.returncode == 0 and "GB/s" in done.stdout, done
    finally:
        target.send_signal(signal.SIGTERM)
        target.communicate(timeout=WATCHDOG_S)
    assert target.returncode == 0


def test_a_token_closes_every_path_but_health(monkeypatch, tmp_path):
    from mooncake.http_metadata_server import KVBootstrapServer

    file = tmp_path / "token"
    file.write_text("of-the-file\r\nanother line\n")
    monkeypatch.setenv("ADMIN_API_KEY", "of-the-environment")
    for token in ("of-the-environment", "of-the-file"):
        if token == "of-the-file":
            monkeypatch.setenv("MC_HTTP_TOKEN_FILE", str(file))
        server = KVBootstrapServer(0, "127.0.0.1")
        server.run()
        try:
            url = f"http://127.0.0.1:{server.port}/metadata?key=a"
            assert fetch(f"http://127.0.0.1:{server.port}/health")[0] == 200
            for headers in ({}, {"X-API-Key": "other"}, {"Authorization": f"Basic {token}"}):
                assert fetch(url, "PUT", b"1", headers)[0] == 401
            assert fetch(url, "PUT", b"1", {"X-API-Key": token})[0] == 200
            assert fetch(url, headers={"Authorization": f"Bearer {token}"}) == (200, "1")
        finally:
            server.close()


def test_a_server_that_others_reach_needs_a_token(monkeypatch):
    from mooncake.http_metadata_server import MetadataServer

    for name in ("MC_HTTP_TOKEN_FILE", "ADMIN_API_KEY", "MC_CLUSTER_KEY_FILE", "MC_CLUSTER_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OSError, match="set MC_HTTP_TOKEN_FILE"):
        MetadataServer("0.0.0.0", 0)
    monkeypatch.setenv("MC_CLUSTER_KEY", "ab" * 32)
    with MetadataServer("0.0.0.0", 0) as server:
        assert not server.access.allows("PUT", "/metadata", {})
        # As python/mooncake/README.md says, and as libmc/auth computes it.
        page = """printf 'mc http' | openssl dgst -sha256 -hmac "$MC_CLUSTER_KEY\""""
        said = subprocess.run(["sh", "-c", page], capture_output=True, text=True, check=True)
        token = said.stdout.split()[-1]
        assert server.access.allows("PUT", "/metadata", {"X-API-Key": token})


def test_the_metadata_servers_memory_is_bounded(monkeypatch):
    from mooncake import http_metadata_server as made

    monkeypatch.setattr(made, "MAX_KEYS", 3)
    monkeypatch.setattr(made, "MAX_BYTES", 100)
    with made.MetadataServer("127.0.0.1", 0) as server:
        assert server.store("a", b"1" * 60)
        assert not server.store("b", b"1" * 60) and server.store("a", b"1" * 90)
        assert server.forget("a") == b"1" * 90 and server.forget("a") is None
        assert all(server.store(str(i), b"") for i in range(3))
        assert not server.store("4", b"") and server.store("2", b"1" * 90)


def test_the_metadata_server():
    from mooncake.http_metadata_server import KVBootstrapServer

    server = KVBootstrapServer(0, "127.0.0.1")
    server.run()
    try:
        base = f"http://127.0.0.1:{server.port}"
        url = f"{base}/metadata?key=mooncake%2Fram%2Fa"
        assert fetch(url)[0] == 404
        assert fetch(url, "PUT", b'{"a": 1}')[0] == 200
        assert fetch(url) == (200, '{"a": 1}')
        assert fetch(url, "DELETE")[0] == 200 and fetch(url, "DELETE")[0] == 404
        assert fetch(f"{base}/metadata?key=%20k%20", "PUT", b"1")[0] == 200
        assert fetch(f"{base}/metadata?key=k") == (200, "1")
        for bad in ("/metadata", "/metadata?key=", "/metadata?key=%20"):
            assert fetch(base + bad)[0] == 400
        assert fetch(f"{base}/other")[0] == 404
        # Too long a value is refused before sending.
        for length in ("1048577", "-5", "much"):
            head = f"PUT /metadata?key=a HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
            with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
                connection.sendall(head.encode())
                assert b" 413 " in connection.recv(100)
    finally:
        server.close()
