# SPDX-License-Identifier: Apache-2.0
"""mooncake.engine between two processes: returns and conventions, ours and Mooncake's alike.

Every test runs over both of our ways (from process to process, and TCP alone), or with --peer
against Mooncake's wheel over TCP.
"""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from machine import WATCHDOG_S, free_port

SIZE = 1 << 20

# The other process: an engine over an array, told what to do line by line.
PEER = """
import sys
import numpy as np
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
array = np.full(int(sys.argv[1]), 0x5A, np.uint8)
address = array.ctypes.data
assert engine.register_memory(address, array.nbytes) == 0
print("READY", engine.get_rpc_port(), address, flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "count":
        answer = int((array == int(words[1])).sum())
    elif words[0] == "unregister":
        answer = engine.unregister_memory(address)
    elif words[0] == "register":
        answer = engine.register_memory(address, array.nbytes)
    elif words[0] == "notifies":
        got = []
        while not got:
            got = engine.get_notifies()
        answer = [(n.name, n.msg, int((array == array[0]).sum())) for n in got]
    elif words[0] == "bytes":
        answer = engine.read_bytes_from_buffer(int(words[1]), int(words[2]))
    elif words[0] == "managed":
        answer = engine.allocate_managed_buffer(int(words[1]))
    print("ANSWER", answer, flush=True)
"""


class Peer:
    def __init__(self, size=SIZE):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, str(size)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        port, self.address = map(int, self._line("READY").split()[1:])
        self.session = f"127.0.0.1:{port}"

    def _line(self, start):
        for line in self.process.stdout:
            if line.startswith(start):
                return line
        raise RuntimeError("the peer is gone")

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._line("ANSWER").split(maxsplit=1)[1].strip()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def pytest_generate_tests(metafunc):
    if "way" in metafunc.fixturenames:
        peer = metafunc.config.getoption("--peer")
        ways = ["wheel"] if peer else ["same_host", "tcp"]
        metafunc.parametrize("way", ways, scope="module")


@pytest.fixture(scope="module")
def engine(way):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MC_FORCE_TCP", "1" if way == "tcp" else "0")
        patch.setenv("GLOG_minloglevel", "3")
        from mooncake.engine import TransferEngine

        engine = TransferEngine()
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
        yield engine


@pytest.fixture(scope="module")
def peer(way):
    peer = Peer()
    yield peer
    peer.end()


@pytest.fixture
def local(engine):
    array = np.arange(SIZE, dtype=np.uint32).astype(np.uint8)
    assert engine.register_memory(array.ctypes.data, array.nbytes) == 0
    yield array
    assert engine.unregister_memory(array.ctypes.data) == 0


def test_a_port_is_told(engine):
    assert 0 < engine.get_rpc_port() < 65536


@pytest.mark.parametrize("size", [1, 4096, 100_000, SIZE])
def test_writes_and_reads(engine, peer, local, size):
    start = local.ctypes.data
    assert engine.transfer_sync_write(peer.session, start, peer.address, size) == 0
    back = np.zeros(size, np.uint8)
    assert engine.register_memory(back.ctypes.data, size) == 0
    assert engine.transfer_sync_read(peer.session, back.ctypes.data, peer.address, size) == 0
    assert (back == local[:size]).all()
    assert engine.unregister_memory(back.ctypes.data) == 0


def test_the_generic_forms(engine, peer, local):
    from mooncake.engine import TransferOpcode

    start = local.ctypes.data
    local[:10] = 77
    args = (peer.session, start, peer.address, 10)
    assert engine.transfer_sync(*args, TransferOpcode.Write) == 0
    local[:10] = 0
    assert engine.transfer_sync(*args, TransferOpcode.Read) == 0
    assert (local[:10] == 77).all()
    lists = (peer.session, [start], [peer.address], [10])
    assert engine.batch_transfer_sync(*lists, TransferOpcode.Write) == 0
    assert engine.TransferOpcode.Read == TransferOpcode.Read
    assert (int(TransferOpcode.Read), int(TransferOpcode.Write)) == (0, 1)


def test_batches_of_many(engine, peer, local):
    start, count, size = local.ctypes.data, 1000, 256
    local[:] = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
    kept = local.copy()
    sources = [start + i * size for i in range(count)]
    targets = [peer.address + (count - 1 - i) * size for i in range(count)]
    assert engine.batch_transfer_sync_write(peer.session, sources, targets, [size] * count) == 0
    local[:] = 0
    assert engine.batch_transfer_sync_read(peer.session, sources, targets, [size] * count) == 0
    assert (local[: count * size] == kept[: count * size]).all()


def test_lists_of_other_lengths_are_refused(engine, peer, local):
    start = local.ctypes.data
    assert engine.batch_transfer_sync_write(peer.session, [start, start], [peer.address], [1]) < 0


def test_nothing_to_do_is_done(engine, peer, local):
    assert engine.batch_transfer_sync_write(peer.session, [], [], []) == 0
    assert engine.transfer_sync_write(peer.session, local.ctypes.data, peer.address, 0) == 0


def test_outside_registered_memory_is_refused(engine, peer, local):
    start = local.ctypes.data
    assert engine.transfer_sync_write(peer.session, start, peer.address + 1, SIZE) == -1
    assert engine.transfer_sync_write(peer.session, start, peer.address + SIZE, 1) == -1
    assert engine.transfer_sync_read(peer.session, start, 4096, 1) == -1


def test_an_unknown_peer_is_refused(engine, local):
    start = local.ctypes.data
    assert engine.transfer_sync_write("127.0.0.1:1", start, start, 1) == -1
    assert engine.batch_transfer_async_write("127.0.0.1:1", [start], [start], [1]) == 0
    assert engine.transfer_submit_write("127.0.0.1:1", start, start, 1) == 0
    assert engine.get_first_buffer_address("127.0.0.1:1") == 0


def test_registration_returns(engine, local):
    start = local.ctypes.data
    assert engine.register_memory(start, SIZE) == -7
    assert engine.register_memory(start + 10, 1) == -7
    assert engine.register_memory(1 << 40, 0) == -1
    assert engine.unregister_memory(start + 1) == -3
    more = np.zeros(8192, np.uint8).ctypes.data
    assert engine.batch_register_memory([more, more + 4096], [4096, 4096]) == 0
    assert engine.batch_unregister_memory([more, more + 4096]) == 0
    assert engine.batch_register_memory([], []) == 0
    assert engine.batch_unregister_memory([]) == 0


def test_local_memory_need_not_be_registered(engine, peer):
    array = np.full(100, 3, np.uint8)
    assert engine.transfer_sync_write(peer.session, array.ctypes.data, peer.address, 100) == 0


def wait_for(engine, batch):
    deadline = time.monotonic() + WATCHDOG_S
    while time.monotonic() < deadline:
        if status := engine.transfer_check_status(batch):
            return status
    return 0


def test_submitted_ones_are_checked(engine, peer, local):
    start = local.ctypes.data
    assert wait_for(engine, engine.transfer_submit_write(peer.session, start, peer.address, 9)) == 1
    lists = (peer.session, [start, start + 9], [peer.address, peer.address + 9], [9, 9])
    assert wait_for(engine, engine.batch_transfer_async_write(*lists)) == 1
    assert wait_for(engine, engine.batch_transfer_async_read(*lists)) == 1
    bad = engine.transfer_submit_write(peer.session, start, peer.address + SIZE, 9)
    assert bad > 0 and wait_for(engine, bad) == -1


def test_batches_are_waited_for(engine, peer, local):
    from mooncake.engine import TransferOpcode

    start = local.ctypes.data
    lists = (peer.session, [start], [peer.address], [SIZE])
    batches = [engine.batch_transfer_async_write(*lists) for _ in range(4)]
    batches.append(engine.batch_transfer_async(*lists, TransferOpcode.Read))
    assert all(batch > 0 for batch in batches) and len(set(batches)) == 5
    assert engine.get_batch_transfer_status(batches) == 0
    assert engine.get_batch_transfer_status([]) == 0
    bad = engine.batch_transfer_async_write(peer.session, [start], [peer.address + SIZE], [1])
    assert engine.get_batch_transfer_status([bad]) == -1


def test_a_notification_follows_its_batch(engine, peer, local):
    from mooncake.engine import TransferNotify, TransferOpcode

    for byte in (7, 8):
        local[:] = byte
        result = engine.batch_transfer_sync(
            peer.session, [local.ctypes.data], [peer.address], [SIZE], TransferOpcode.Write,
            notify=TransferNotify("layer", str(byte)),
        )  # fmt: skip
        assert result == 0
        assert peer.tell("notifies") == str([("layer", str(byte), SIZE)])
    assert (TransferNotify().name, TransferNotify().msg) == ("", "")
    assert engine.get_notifies() == []


def test_a_single_transfer_notifies_too(engine, peer, local):
    from mooncake.engine import TransferNotify, TransferOpcode

    local[:] = 9
    assert engine.transfer_sync(
        peer.session, local.ctypes.data, peer.address, SIZE, TransferOpcode.Write,
        notify=TransferNotify("one", "9"),
    ) == 0  # fmt: skip
    assert peer.tell("notifies") == str([("one", "9", SIZE)])


def test_probes(engine, peer):
    assert engine.send_probe(peer.session) == 0
    assert engine.send_probe("127.0.0.1:1") == -102


def test_managed_buffers(engine):
    address = engine.allocate_managed_buffer(1000)
    assert address > 0
    assert engine.write_bytes_to_buffer(address, "hello", 5) == 0
    assert engine.read_bytes_from_buffer(address, 5) == b"hello"
    assert engine.free_managed_buffer(address, 1000) == 0


def test_the_first_buffer_of_a_peer_can_be_written(engine, peer, local):
    first = engine.get_first_buffer_address(peer.session)
    assert first != 0
    local[:5] = np.frombuffer(b"there", np.uint8)
    assert engine.transfer_sync_write(peer.session, local.ctypes.data, first, 5) == 0
    local[:5] = 0
    assert engine.transfer_sync_read(peer.session, local.ctypes.data, first, 5) == 0
    assert local[:5].tobytes() == b"there"


def test_managed_buffers_are_registered(engine, peer, local):
    managed = int(peer.tell("managed 4096"))
    local[:5] = np.frombuffer(b"there", np.uint8)
    assert engine.transfer_sync_write(peer.session, local.ctypes.data, managed, 5) == 0
    assert peer.tell(f"bytes {managed} 5") == str(b"there")


def test_topology_is_json(engine):
    import json

    topology = json.loads(engine.get_local_topology())
    assert all(len(nics) == 2 for nics in topology.values())


def test_opaque_handles(engine):
    assert engine.get_engine() is not None
    assert engine.get_engine_ptr() > 0


def test_ten_threads_at_once(engine, peer, local):
    wrong = []

    def work(number):
        size = 50_000
        own = np.full(size, number, np.uint8)
        back = np.zeros(size, np.uint8)
        at = peer.address + number * size
        for _ in range(20):
            results = (
                engine.transfer_sync_write(peer.session, own.ctypes.data, at, size),
                engine.transfer_sync_read(peer.session, back.ctypes.data, at, size),
            )
            if results != (0, 0) or not (own == back).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_while_one_waits(engine, peer, local):
    start = local.ctypes.data
    done = threading.Event()
    turns = 0

    def work():
        for _ in range(200):
            engine.batch_transfer_sync_write(peer.session, [start], [peer.address], [SIZE])
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 100


def test_memory_that_is_registered_again_is_found(engine, peer, local):
    args = (peer.session, local.ctypes.data, peer.address, 10)
    assert engine.transfer_sync_write(*args) == 0
    assert peer.tell("unregister") == "0"
    assert engine.transfer_sync_write(*args) == -1
    assert peer.tell("register") == "0"
    assert engine.transfer_sync_write(*args) == 0


def test_a_peer_that_dies_is_an_error_soon(engine, way, local):
    peer = Peer()
    args = (peer.session, local.ctypes.data, peer.address, SIZE)
    assert engine.transfer_sync_write(*args) == 0
    peer.end()
    assert engine.transfer_sync_write(*args) == -1
    assert engine.send_probe(peer.session) == -102


@pytest.mark.ours_only  # Mooncake's logs by itself
def test_what_is_said_of_a_dead_peer_sends_nobody_to_an_agent(engine, local, caplog):
    peer = Peer()
    args = (peer.session, local.ctypes.data, peer.address, SIZE)
    assert engine.transfer_sync_write(*args) == 0
    peer.end()
    for _ in range(2):  # a peer that was known, and one that does not answer
        caplog.clear()
        assert engine.transfer_sync_write(*args) == -1
        assert "see that the peer's process runs" in caplog.text
        assert "mc-agent" not in caplog.text


@pytest.mark.ours_only  # Mooncake's ends the process
def test_calls_before_initialize_are_errors(way):
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    assert engine.register_memory(4096, 1) == -1
    assert engine.unregister_memory(4096) == -1
    assert engine.transfer_sync_write("127.0.0.1:1", 4096, 4096, 1) == -1
    assert engine.get_batch_transfer_status([1]) == -1
    assert engine.transfer_check_status(1) == -1
    assert engine.get_notifies() == []
    assert engine.get_rpc_port() == 0


@pytest.mark.ours_only  # Mooncake's ends the process
def test_a_number_of_no_batch_is_an_error(engine):
    assert engine.transfer_check_status(0) == -1
    assert engine.transfer_check_status(12345) == -1


def test_a_protocol_that_is_not_there_is_an_error(way):
    from mooncake.engine import TransferEngine

    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "pigeon", "") == -1


def test_rdma_is_taken_as_users_say_it(way):
    from mooncake.engine import TransferEngine

    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0") == 0


def test_others_reach_nothing_without_a_key(way, monkeypatch):
    from mooncake.engine import TransferEngine

    monkeypatch.delenv("MC_CLUSTER_KEY_FILE", raising=False)
    assert TransferEngine().initialize("10.255.255.1", "P2PHANDSHAKE", "tcp", "") == -1


def test_an_address_that_is_no_memory_is_an_error(engine, peer):
    assert engine.transfer_sync_write(peer.session, 4096, peer.address, 100) == -1
    assert engine.transfer_sync_read(peer.session, 4096, peer.address, 100) == -1


def test_names_in_a_store(way, redis_server):
    """Two engines that find each other in Redis, under names with ports as users write them."""
    if way == "wheel":
        pytest.skip("Mooncake's wheel is built without Redis")
    from mooncake.engine import TransferEngine

    one, other = TransferEngine(), TransferEngine()
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    server = f"redis://{redis_server}"
    assert one.initialize(here, server, "tcp", "") == 0
    assert other.initialize_ext(there, redis_server, "tcp", "", "redis") == 0
    array = np.full(100, 4, np.uint8)
    assert other.register_memory(array.ctypes.data, 100) == 0
    back = np.zeros(100, np.uint8)
    where = (there, back.ctypes.data, array.ctypes.data, 100)
    assert one.transfer_sync_read(*where) == 0
    assert (back == 4).all()
    del one, other  # they take their names back while the store is there


def test_an_engine_sends_the_token_to_its_metadata_server(way, monkeypatch, tmp_path):
    if way == "wheel":
        pytest.skip("Mooncake's wheel sends no token")
    from mooncake.engine import TransferEngine
    from mooncake.http_metadata_server import KVBootstrapServer

    monkeypatch.setenv("ADMIN_API_KEY", "secret")
    server = KVBootstrapServer(0, "127.0.0.1")
    server.run()
    try:
        url = f"http://127.0.0.1:{server.port}/metadata"
        assert TransferEngine().initialize(f"127.0.0.1:{free_port()}", url, "tcp", "") == 0
        token = tmp_path / "token"
        token.write_text("secret\r\nanother line\n")
        monkeypatch.setenv("ADMIN_API_KEY", "other")
        monkeypatch.setenv("MC_HTTP_TOKEN_FILE", str(token))
        assert TransferEngine().initialize(f"127.0.0.1:{free_port()}", url, "tcp", "") == 0
        monkeypatch.delenv("MC_HTTP_TOKEN_FILE")
        assert TransferEngine().initialize(f"127.0.0.1:{free_port()}", url, "tcp", "") == -1
    finally:
        server.close()
