# SPDX-License-Identifier: Apache-2.0
"""Mooncake's console commands, mapped to mc's programs.

mooncake_master    becomes mc-master at Mooncake's address, with Mooncake's HTTP ports
mooncake_client    adds --global_segment_size to the cluster, and serves setup_dummy()
"""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import os
import re
import signal
import socket
import sys
import threading

import mckv

from mooncake import _environment
from mooncake._client_port import ClientPort
from mooncake._flags import CLIENT_FLAGS, MASTER_FLAGS, MEANINGFUL
from mooncake._http import default_host, has_cluster_key
from mooncake._topology import local_topology
from mooncake.store import MooncakeDistributedStore


def _say(text: str) -> None:
    print(f"mc: {text}", file=sys.stderr, flush=True)


def _flags(program: str, known: dict[str, str], arguments: list[str]) -> dict[str, str]:
    """gflags: --name=value, -name=value, --name value, --switch, --noswitch. Exits with 1."""
    values: dict[str, str] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word in ("--help", "-h"):
            print(f"{program}: Mooncake's flags; those that mean something to mc: "
                  + ", ".join(f"--{name}" for name in sorted(MEANINGFUL & set(known))))  # fmt: skip
            sys.exit(0)
        if not word.startswith("-"):
            sys.exit(f"{program}: not a flag: {word}")
        name, has_value, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name not in known and name.startswith("no") and name[2:] in known:
            name, has_value, value = name[2:], "=", "false"
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean --{near[0]}?" if near else ""
            sys.exit(f"{program}: unknown flag --{name}{hint}")
        if not has_value:
            switch = known[name] in ("true", "false")
            value = "true" if switch or not left else left.pop(0)
        values[name] = value
    if path := values.get("config_path"):
        values = {**_file_flags(program, known, path), **values}
    for name in sorted(set(values) - MEANINGFUL):
        _say(f"--{name} means nothing here and is ignored")
    return values


def _file_flags(program: str, known: dict[str, str], path: str) -> dict[str, str]:
    """Flags in a file: a JSON object, or lines "name: value" of YAML. Exits with 1."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.lstrip().startswith("{"):
            pairs = {str(name): value for name, value in json.loads(text).items()}
        else:
            lines = (line.partition(" #")[0].strip() for line in text.splitlines())
            pairs = {}
            for line in lines:
                if not line or line.startswith("#") or line == "---":
                    continue
                name, colon, value = line.partition(":")
                if not colon:
                    raise ValueError(f"not 'name: value': {line}")
                pairs[name.strip()] = value.strip().strip("'\"")
    except (OSError, ValueError) as error:
        sys.exit(f"{program}: --config_path={path}: {error}")
    for name, value in pairs.items():
        if name not in known:
            sys.exit(f"{program}: --config_path={path}: unknown flag {name}")
        if isinstance(value, dict | list):
            sys.exit(f"{program}: --config_path={path}: {name} is no single value")
        pairs[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return pairs


def _port(program: str, values: dict[str, str], name: str, default: int) -> int:
    text = values.get(name, str(default))
    if not text.isdecimal() or int(text) > 65535:
        sys.exit(f"{program}: --{name}: not a port: {text}")
    return int(text) or default


def _true(values: dict[str, str], name: str) -> bool:
    return values.get(name, "false").lower() in ("true", "1", "yes")


def _own_address(values: dict[str, str]) -> str:
    """The address to listen on. Without a key, only processes of this host may connect."""
    if "rpc_address" in values:
        return values["rpc_address"]
    if has_cluster_key() or _true(values, "insecure"):
        return MASTER_FLAGS["rpc_address"]
    _say(
        "listening on 127.0.0.1 for this host alone; for other hosts, create a key with "
        "'openssl rand -hex 32 > cluster.key; chmod 600 cluster.key' and set MC_CLUSTER_KEY_FILE"
    )
    return "127.0.0.1"


def _reachable(host: str) -> str:
    """An address by which other processes reach a master that listens on host."""
    if host not in ("0.0.0.0", "::"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _store_arguments(values: dict[str, str], port: int) -> list[str]:
    """The options of mc-master for its cluster store and cluster."""
    if not _true(values, "enable_ha") and "cluster_id" in values:
        return [f"--cluster-id={values['cluster_id']}"]
    if not _true(values, "enable_ha"):
        name = re.sub("[^A-Za-z0-9._-]", "-", socket.gethostname())[:48]
        return [f"--cluster-id={name}-{port}"]
    kind = values.get("ha_backend_type", MASTER_FLAGS["ha_backend_type"])
    where = values.get("ha_backend_connstring") or values.get("etcd_endpoints", "")
    if kind not in ("etcd", "redis"):
        sys.exit(f"mooncake_master: --ha_backend_type={kind}: mc keeps its state in etcd or redis")
    if not where:
        sys.exit("mooncake_master: --enable_ha needs --ha_backend_connstring or --etcd_endpoints")
    hosts = [one.split("://")[-1].strip("/") for one in re.split("[;,]", where) if one]
    cluster = values.get("cluster_id", MASTER_FLAGS["cluster_id"])
    return [f"--cluster-store={kind}://{','.join(hosts)}", f"--cluster-id={cluster}"]


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listening(program: str, host: str, port: int) -> str:
    """The IP address of a name or address, and the port."""
    try:
        where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0][4]
    except OSError as error:
        sys.exit(f"{program}: {host} is not an address of this host: {error}")
    return _with_port(str(where[0]), port)


def _http_arguments(values: dict[str, str]) -> list[str]:
    """The options of mc-master for its HTTP ports and the line with metrics."""
    program = "mooncake_master"
    admin_port = _port(program, values, "metrics_port", 9003)
    metadata_port = _port(program, values, "http_metadata_server_port", 8080)
    try:
        host = default_host(_true(values, "insecure"))
    except OSError as error:
        sys.exit(f"{program}: no token: {error}")
    admin = _listening(program, values.get("metrics_host") or host, admin_port)
    arguments = [f"--http-listen={admin}"]
    wanted = "http_metadata_server_port" in values  # as KEP-74 starts the master
    if wanted or _true(values, "enable_http_metadata_server"):
        metadata_host = values.get("http_metadata_server_host") or host
        metadata = _listening(program, metadata_host, metadata_port)
        arguments.append(f"--metadata-listen={metadata}")
    if _true({**MASTER_FLAGS, **values}, "enable_metric_reporting"):
        log_format = values.get("log_format", MASTER_FLAGS["log_format"])
        if log_format not in ("0.3.6", "0.3.13"):
            sys.exit(f"{program}: --log_format={log_format}: use 0.3.6 or 0.3.13")
        arguments.append(f"--metrics-log={log_format}")
    return arguments


def mooncake_master() -> None:
    values = _flags("mooncake_master", MASTER_FLAGS, sys.argv[1:])
    _environment.begin()
    for name in ("enable_oplog", "enable_snapshot", "enable_cxl"):
        if _true(values, name):
            sys.exit(f"mooncake_master: --{name}: mc has no such thing")
    if _true(values, "enable_offload"):
        _say(
            "--enable_offload: a host keeps evicted objects on a disk if its processes have "
            "enable_ssd_offload (setup(), mooncake_client --enable_offload)"
        )
    port = _port("mooncake_master", values, "rpc_port", 50051)
    if "rpc_port" not in values and "port" in values:
        port = _port("mooncake_master", values, "port", 50051)
    host = _own_address(values)
    words = [
        mckv.program("mc-master"),
        f"--listen={_listening('mooncake_master', host, port)}",
        f"--advertise={_with_port(_reachable(host.strip('[]')), port)}",
        *_store_arguments(values, port),
        *_http_arguments(values),
    ]
    if _true(values, "insecure"):
        words.append("--insecure=true")
    os.execv(words[0], words)


def mooncake_client() -> None:
    values = _flags("mooncake_client", CLIENT_FLAGS, sys.argv[1:])
    given = {**CLIENT_FLAGS, **values}
    config = {
        "local_hostname": given["host"] or socket.gethostname(),
        "metadata_server": given["metadata_server"],
        "global_segment_size": given["global_segment_size"],
        "local_buffer_size": given["local_buffer_size"],
        "protocol": given["protocol"],
        "rdma_devices": given["device_names"],
        "master_server_addr": given["master_server_address"],
        "tenant_id": given["tenant_id"],
        "enable_ssd_offload": given["enable_offload"],
        "enable_client_http_server": given["enable_http_server"],
        "client_http_port": given["http_port"],
    }
    port = _port("mooncake_client", values, "port", 50052)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    store = MooncakeDistributedStore()
    with contextlib.ExitStack() as stack:
        stack.callback(store.close)
        if code := store.setup(config):
            sys.exit(f"mooncake_client: setup() has returned {code}; the reason is above")
        pool = store._pool
        assert pool is not None
        try:  # dummies are processes of this host
            server = ClientPort("127.0.0.1", port, pool.agent, pool.tenant)
        except OSError as error:
            sys.exit(f"mooncake_client: cannot listen on port {port}: {error}")
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _say(f"setup_dummy() finds this client on port {port}; the agent is at {pool.agent}")
        stop.wait()


def transfer_engine_topology_dump() -> None:
    try:
        print(local_topology())
    except RuntimeError as error:
        sys.exit(str(error))
