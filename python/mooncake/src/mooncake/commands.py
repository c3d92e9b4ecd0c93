# SPDX-License-Identifier: Apache-2.0
"""Mooncake's console commands, mapped to mc's programs.

mooncake_master    starts this host's mc-agent unless an agent runs; serves Mooncake's ports
mooncake_client    runs this host's mc-agent with a pool of --global_segment_size
"""

from __future__ import annotations

import contextlib
import difflib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

import mckv

from mooncake import _pool
from mooncake._admin import AdminServer
from mooncake._flags import CLIENT_FLAGS, MASTER_FLAGS, MEANINGFUL
from mooncake._topology import local_topology
from mooncake.http_metadata_server import MetadataServer


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
    for name in sorted(set(values) - MEANINGFUL):
        _say(f"--{name} means nothing here and is ignored")
    return values


def _port(program: str, values: dict[str, str], name: str, default: int) -> int:
    text = values.get(name, str(default))
    if not text.isdecimal() or int(text) > 65535:
        sys.exit(f"{program}: --{name}: not a port: {text}")
    return int(text) or default


def _true(values: dict[str, str], name: str) -> bool:
    return values.get(name, "false").lower() in ("true", "1", "yes")


def _agent_answers() -> bool:
    try:
        with mckv.Client(os.environ.get("MC_AGENT") or None, timeout=0.3):
            return True
    except mckv.McError:
        return False


def _start_agent() -> subprocess.Popen[bytes] | None:
    """Starts this host's agent; None if an agent runs already."""
    if _agent_answers():
        _say("this host's mc-agent runs already and is used")
        return None
    directory = pathlib.Path(os.environ.get("MC_AGENT") or _pool.default_socket()).parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [mckv.program("mc-agent"), f"--runtime-dir={directory}"]
    if os.environ.get("MC_AGENT"):
        command.append(f"--socket={os.environ['MC_AGENT']}")
    agent = subprocess.Popen(command)
    deadline = time.monotonic() + 20
    while not _agent_answers():
        if agent.poll() is not None or time.monotonic() > deadline:
            agent.terminate()
            sys.exit("mooncake_master: mc-agent did not start; its log is above")
        time.sleep(0.05)
    _say(f"started mc-agent (pid {agent.pid}); it owns the pool that engines of this host share")
    return agent


def _hold(host: str, port: int) -> socket.socket:
    """Listens on Mooncake's RPC port; accepts connections and answers nothing."""
    held = socket.create_server((host, port), backlog=64)

    def answer() -> None:
        while True:
            try:
                connection, _ = held.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                connection.close()

    threading.Thread(target=answer, daemon=True).start()
    return held


def mooncake_master() -> None:
    values = _flags("mooncake_master", MASTER_FLAGS, sys.argv[1:])
    for name in ("enable_ha", "enable_oplog", "enable_snapshot", "enable_offload", "enable_cxl"):
        if _true(values, name):
            sys.exit(f"mooncake_master: --{name}: mc has no such thing on one host")
    host = values.get("rpc_address", "0.0.0.0")
    rpc_port = _port("mooncake_master", values, "rpc_port", 50051)
    if "rpc_port" not in values and "port" in values:
        rpc_port = _port("mooncake_master", values, "port", 50051)
    admin_port = _port("mooncake_master", values, "metrics_port", 9003)
    metadata_port = _port("mooncake_master", values, "http_metadata_server_port", 8080)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_hold(host, rpc_port))
            servers: list[Any] = [AdminServer(values.get("metrics_host", "0.0.0.0"), admin_port)]
            if _true(values, "enable_http_metadata_server"):
                metadata_host = values.get("http_metadata_server_host", "0.0.0.0")
                servers.append(MetadataServer(metadata_host, metadata_port))
        except OSError as error:
            sys.exit(f"mooncake_master: cannot listen: {error}")
        agent = _start_agent()
        if agent is not None:
            stack.callback(agent.wait)
            stack.callback(agent.terminate)
        for server in servers:
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        _say(
            f"holding port {rpc_port}; admin and metrics on {admin_port}"
            + (f", metadata on {metadata_port}" if len(servers) > 1 else "")
            + "; objects are the agent's: see mcctl status"
        )
        while not stop.wait(0.5):
            if agent is not None and agent.poll() is not None:
                _say("mc-agent ended")
                sys.exit(1)


def mooncake_client() -> NoReturn:
    values = _flags("mooncake_client", CLIENT_FLAGS, sys.argv[1:])
    for name in ("enable_offload", "start_offload_rpc_server"):
        if _true(values, name):
            sys.exit(f"mooncake_client: --{name}: mc has no disk tier yet")
    from mooncake.mooncake_config import _parse_segment_size

    try:
        pool = _parse_segment_size(values.get("global_segment_size", "4GB"))
    except ValueError:
        sys.exit(f"mooncake_client: --global_segment_size: {values['global_segment_size']!r}")
    directory = pathlib.Path(os.environ.get("MC_AGENT") or _pool.default_socket()).parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = mckv.program("mc-agent")
    _say(f"this is mc-agent with a pool of {pool} bytes; clients find it at {directory}/agent.sock")
    command = [path, f"--runtime-dir={directory}", f"--pool-bytes={pool}"]
    if os.environ.get("MC_AGENT"):
        command.append(f"--socket={os.environ['MC_AGENT']}")
    os.execv(path, command)


def transfer_engine_topology_dump() -> None:
    try:
        print(local_topology())
    except RuntimeError as error:
        sys.exit(str(error))
