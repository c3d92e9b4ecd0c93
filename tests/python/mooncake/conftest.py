# SPDX-License-Identifier: Apache-2.0
"""Stores of either implementation: ours (embedded, and in a master's cluster), or Mooncake's wheel.

    pytest tests/python/mooncake            our modules, both ways
    pytest tests/python/mooncake --peer     Mooncake's wheel, which proves the suite itself

differences.py names the tests that Mooncake's wheel does not pass, with the reason: there they
must fail.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from differences import DIFFERENCES  # noqa: E402
from machine import (  # noqa: E402
    TIME_SCALE,
    end_agents,
    free_port,
    run_master,
    until,
)


def pytest_addoption(parser):
    parser.addoption("--peer", action="store_true", help="test Mooncake's wheel instead of ours")


def pytest_generate_tests(metafunc):
    if "place" in metafunc.fixturenames:
        peer = metafunc.config.getoption("--peer")
        metafunc.parametrize("place", ["peer"] if peer else ["embedded", "joined"], scope="session")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--peer"):
        return
    seen = set()
    for item in items:
        name = item.originalname
        seen.add(name)
        if "ours_only" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="not Mooncake's business"))
        elif name in DIFFERENCES:
            item.add_marker(pytest.mark.xfail(strict=True, reason=DIFFERENCES[name]))
    unknown = set(DIFFERENCES) - seen
    if unknown and len(config.args) == 1 and config.args[0].rstrip("/").endswith("mooncake"):
        raise pytest.UsageError(f"differences.py names tests that are not there: {unknown}")


@pytest.fixture(scope="session")
def master(place):
    """The address of a master of either implementation."""
    if place == "embedded":
        yield ""
        return
    if place == "joined":
        with run_master("suite") as address:
            yield address
        return
    import mooncake

    program = os.path.join(os.path.dirname(mooncake.__file__), "mooncake_master")
    os.chmod(program, 0o755)
    port = free_port()
    flags = [f"--rpc_port={port}", f"--metrics_port={free_port()}", "--default_kv_lease_ttl=200"]
    with serving(port, program, *flags) as address:
        yield address


@pytest.fixture(scope="session")
def environment(place):
    """MC_AGENT and MC_RUNTIME_DIR as this place needs them."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.delenv("MC_AGENT", raising=False)
        if place == "embedded":
            patch.setenv("MC_AGENT", "embedded")
        patch.setenv("MC_RUNTIME_DIR", directory)
        if place != "peer":
            patch.setattr("mooncake._pool._PATIENCE_S", 5 * TIME_SCALE)
        yield place
        end_agents(directory)


@contextlib.contextmanager
def stores(master):
    """Makes stores, which are closed with the block: their segments are the machine's memory."""
    import mooncake.store

    with contextlib.ExitStack() as stack:

        def make(segment=256 << 20, **more):
            store = mooncake.store.MooncakeDistributedStore()
            code = store.setup(
                "127.0.0.1", "P2PHANDSHAKE", segment, 64 << 20, "tcp", "", master, **more
            )
            assert code == 0
            stack.callback(store.close)
            return store

        yield make


@pytest.fixture
def make_store(environment, master):
    with stores(master) as make:
        yield make


@pytest.fixture(scope="session")
def store(environment, master):
    with stores(master) as make:
        yield make(64 << 20)


@contextlib.contextmanager
def serving(port, *words):
    """A server on a port of loopback that accepts connections."""
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def accepts():
        assert server.poll() is None, words
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        until(accepts)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def redis_server(tmp_path):
    """host:port of an empty Redis."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with serving(port, "redis-server", *options) as address:
        yield address


@pytest.fixture
def etcd_server(tmp_path):
    """host:port of an empty etcd."""
    port, peer = free_port(), f"http://127.0.0.1:{free_port()}"
    client = f"http://127.0.0.1:{port}"
    options = {"data-dir": tmp_path / "etcd", "listen-client-urls": client,
               "advertise-client-urls": client, "listen-peer-urls": peer,
               "initial-advertise-peer-urls": peer,
               "initial-cluster": f"default={peer}"}  # fmt: skip
    with serving(port, "etcd", *(f"--{name}={value}" for name, value in options.items())) as one:
        yield one


class Memory:
    """64 KiB of this process, registered: addresses by memory + offset."""

    SIZE = 65536

    def __init__(self):
        self.array = ctypes.create_string_buffer(
            bytes(i * 7 % 251 for i in range(self.SIZE)), self.SIZE
        )
        self.address = ctypes.addressof(self.array)

    def __add__(self, offset):
        return self.address + offset

    def bytes(self, offset, size):
        return self.array.raw[offset : offset + size]


@pytest.fixture
def memory_of():
    """Registers memory for a store."""
    registered = []

    def make(store):
        made = Memory()
        assert store.register_buffer(made.address, made.SIZE) == 0
        registered.append((store, made))
        return made

    yield make
    for store, made in registered:
        assert store.unregister_buffer(made.address) == 0


@pytest.fixture
def memory(memory_of, store):
    return memory_of(store)
