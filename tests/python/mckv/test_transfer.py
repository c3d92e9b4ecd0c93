# SPDX-License-Identifier: Apache-2.0
"""mckv.TransferEngine: two engines of one process, whose ways are those of two processes."""

import contextlib
import ctypes.util
import gc
import re
import subprocess
import sys
import weakref

import mckv
import numpy as np
import pytest
from machine import WATCHDOG_S, stop_process, until


@pytest.fixture(params=[True, False], ids=["same_host", "tcp"])
def engines(request):
    one = mckv.TransferEngine(same_host=request.param, timeout=WATCHDOG_S)
    other = mckv.TransferEngine(same_host=request.param, timeout=WATCHDOG_S)
    yield one, other
    one.close()
    other.close()


def test_bytes_move_both_ways(engines, request):
    one, other = engines
    there = bytearray(100_000)
    remote = other.register(there)
    segment = one.open(other.name)
    here = np.arange(100_000, dtype=np.uint8)
    one.write(segment, [here.ctypes.data], [remote], [here.nbytes])
    assert there == here.tobytes()
    back = np.zeros_like(here)
    one.read(segment, [back.ctypes.data], [remote], [back.nbytes])
    assert (back == here).all()
    assert one.regions(segment) == [(remote, 100_000, True, True)]
    counters = one.counters()
    assert counters["written_bytes"] >= 100_000 and counters["read_bytes"] >= 100_000
    assert one.is_local(segment) == (counters["same_host_bytes"] > 0)


def test_libfabric_carries_registered_memory_beside_tcp():
    """Over a provider of this host's TCP; with RDMA: tests/rdma/engine_test.cc."""
    ways = {"transports": "fabric", "fabric_provider": "tcp;ofi_rxm", "same_host": False}
    if ctypes.util.find_library("fabric") is None:
        pytest.skip("libfabric.so.1 is not on this host; ctl/install-deps test installs libfabric")
    one = mckv.TransferEngine(timeout=WATCHDOG_S, **ways)
    other = mckv.TransferEngine(timeout=WATCHDOG_S, **ways)
    with contextlib.closing(one), contextlib.closing(other):
        here, there = bytearray(b"x" * 65536), bytearray(65536)
        local, remote = one.register(here), other.register(there, location="cpu:0")
        segment = one.open(other.name)

        def by_fabric():
            one.read(segment, [local], [remote], [1])
            return one.counters()["direct_bytes"] > 0

        until(by_fabric)
        here[:] = b"y" * 65536
        one.write(segment, [local], [remote], [65536], checksum=True, priority=2)
        assert there == here
        assert one.counters()["direct_bytes"] >= 65536
        assert one.transport == "fabric" and f"{other.name}: fabric" in one.describe()


def test_a_transport_that_is_named_and_not_there_is_an_error():
    with pytest.raises(mckv.UnsupportedError, match="none0"):
        mckv.TransferEngine(transports="rdma", devices="none0")
    with pytest.raises(mckv.InvalidArgumentError, match="pigeon"):
        mckv.TransferEngine(transports="pigeon")
    with contextlib.closing(mckv.TransferEngine(devices="none0")) as engine:
        assert engine.transport == "" and "tcp alone; " in engine.describe()


def test_a_batch_is_polled_waited_for_and_freed(engines):
    one, other = engines
    there = bytearray(4096)
    remote = other.register(there)
    segment = one.open(other.name)
    here = np.full(4096, 7, np.uint8)
    local = here.ctypes.data
    batch = one.submit(True, segment, [local, local], [remote, remote + 10], [5, 5])
    one.wait(batch)
    assert one.poll(batch, 2) == (True, [0, 0])
    one.free(batch)
    with pytest.raises(mckv.InvalidArgumentError):
        one.poll(batch)
    assert there[:16] == b"\7" * 5 + b"\0" * 5 + b"\7" * 5 + b"\0"


def test_errors_are_exceptions_with_a_cause(engines):
    one, other = engines
    remote = other.register(b"only to be read", write=False)
    segment = one.open(other.name)
    here = bytearray(20)
    local = one.register(here)
    one.read(segment, [local], [remote], [4])
    assert here[:4] == b"only"
    with pytest.raises(mckv.AccessDeniedError, match="did not register"):
        one.write(segment, [local], [remote], [4])
    with pytest.raises(mckv.InvalidArgumentError, match="not registered that whole range"):
        one.read(segment, [local], [remote], [20])
    with pytest.raises(mckv.InvalidArgumentError, match="as many"):
        one.read(segment, [local], [remote], [1, 2])
    with pytest.raises(mckv.InvalidArgumentError, match="overlaps"):
        one.register(here)
    with pytest.raises(mckv.AgentUnavailableError):
        one.open("127.0.0.1:1")
    with pytest.raises(mckv.InvalidArgumentError, match="not an address"):
        one.open("nowhere")
    with pytest.raises(mckv.InvalidArgumentError, match="cluster key"):
        mckv.TransferEngine("10.255.255.1:0")


def test_notifications(engines):
    one, other = engines
    there = bytearray(10)
    remote = other.register(there)
    segment = one.open(other.name)
    here = bytearray(b"0123456789")
    local = one.register(here)
    one.write(segment, [local], [remote], [10], notify=(b"name", b"message"))
    one.notify(segment, b"second", b"")
    got = []
    while len(got) < 2:
        got += other.notifications()
    assert got == [(b"name", b"message"), (b"second", b"")] and there == here


def test_a_registered_buffer_is_held_until_it_is_unregistered(engines):
    one, _ = engines

    class Memory(bytearray):
        pass

    memory = Memory(100)
    gone = weakref.ref(memory)
    address = one.register(memory)
    del memory
    gc.collect()
    assert gone() is not None
    one.unregister([address])
    gc.collect()
    assert gone() is None
    with pytest.raises(mckv.NotFoundError):
        one.unregister([address])


def test_a_closed_engine_says_so(engines):
    one, _ = engines
    one.close()
    one.close()
    with pytest.raises(mckv.ClosedError):
        one.open("127.0.0.1:1")


def other_key(engine, tmp_path):
    key = tmp_path / "another.key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    with_key = mckv.TransferEngine(key_file=str(key), timeout=5)
    try:
        with_key.open(engine.name)
    finally:
        with_key.close()


WRONG = {
    "no memory there": (lambda e, *_: e.read(e.open(e.name), [e.own], [1 << 40], [1]),
                        mckv.InvalidArgumentError, "correct the argument"),
    "no rights": (lambda e, *_: e.write(e.open(e.name), [e.own], [e.fixed], [1]),
                  mckv.AccessDeniedError, "rights that are used"),
    "not registered": (lambda e, *_: e.unregister([12345]), mckv.NotFoundError, r"regions\(\)"),
    "no name": (lambda e, *_: e.open("127.0.0.1:1\0", timeout=5), mckv.InvalidArgumentError,
                "correct the argument"),
    "nobody there": (lambda e, *_: e.open("127.0.0.1:1", timeout=5),
                     mckv.AgentUnavailableError, "start the peer's engine"),
    "another key": (other_key, mckv.WrongKeyError, "one key_file"),
    "not ended": (lambda e, *_: e.free(e.slow()), mckv.BusyError, "free batches that ended"),
    "no time": (lambda e, *_: e.wait(e.slow(), timeout=0), mckv.DeadlineError, "longer timeout"),
    "closed": (lambda e, *_: (e.close(), e.name), mckv.ClosedError, "open a new TransferEngine"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_errors_tell_cause_and_remedy_of_this_engine(what, tmp_path):
    call, kind, remedy = WRONG[what]

    class Engine(mckv.TransferEngine):
        def slow(self):
            """A batch to a peer that does not take its bytes, being stopped."""
            segment = self.open(peer.name)
            stop_process(peer.pid)
            return self.submit(
                True, segment, [self.own], [peer.address], [1 << 20], timeout=WATCHDOG_S
            )

    engine = Engine(timeout=WATCHDOG_S, same_host=False)
    memory = bytearray(1 << 20)
    engine.own, engine.fixed = engine.register(memory), engine.register(b"fixed", write=False)
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)
        if what in ("not ended", "no time"):
            peer = stack.enter_context(Peer())
        with pytest.raises(kind) as caught:
            call(engine, tmp_path)
    error = caught.value
    assert error.cause and re.search(remedy, error.remedy)
    assert error.cause in str(error) and error.remedy in str(error)
    assert "mc-agent" not in str(error) and "pool" not in error.remedy


class Peer:
    """An engine in a process of its own, with a megabyte to be written."""

    TEXT = """
import mckv
engine = mckv.TransferEngine(same_host=False)
print(engine.name, engine.register(bytearray(1 << 20)), flush=True)
input()
"""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.TEXT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.name, address = self._process.stdout.readline().split()
        self.address = int(address)
        return self

    def __exit__(self, *args):
        self._process.kill()
        self._process.communicate()


@pytest.mark.parametrize("given", [
    {"listen": "nowhere"}, {"listen": "0.0.0.0:0"}, {"listen": "127.0.0.1:99999"},
    {"metadata": "ftp://x"}, {"metadata": "memory://", "name": "a\0b"}, {"key_file": "/no/such"},
    {"timeout": -1}, {"timeout": float("nan")}, {"lanes": 17}, {"cluster": "a\0b"},
])  # fmt: skip
def test_options_that_cannot_be_are_refused_with_cause_and_remedy(given):
    with pytest.raises((mckv.McError, ValueError)) as caught:
        mckv.TransferEngine(**given).close()
    error = caught.value
    assert isinstance(error, mckv.McError) and error.cause and error.remedy
    assert "mc-agent" not in error.remedy
