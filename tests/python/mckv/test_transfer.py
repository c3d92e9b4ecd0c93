# SPDX-License-Identifier: Apache-2.0
"""mckv.TransferEngine: two engines of one process, whose ways are those of two processes."""

import gc
import weakref

import mckv
import numpy as np
import pytest


@pytest.fixture(params=[True, False], ids=["same_host", "tcp"])
def engines(request):
    one = mckv.TransferEngine(same_host=request.param, timeout=20)
    other = mckv.TransferEngine(same_host=request.param, timeout=20)
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
    with pytest.raises(mckv.InvalidArgumentError, match="not registered all"):
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
