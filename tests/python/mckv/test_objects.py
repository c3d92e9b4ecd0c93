# SPDX-License-Identifier: Apache-2.0
"""Putting, getting, asking, removing; what bad input raises."""

import array
import os
import sys

import mckv
import pytest


def test_get_returns_what_was_put(client, key):
    for size in (1, 100, 4096, 8192, 8193, 1 << 20):
        value = os.urandom(size)
        client.put(key(size), value)
        assert client.get(key(size)) == value
        buffer = bytearray(size + 10)
        assert client.get_into(key(size), buffer) == size
        assert buffer[:size] == value and buffer[size:] == bytes(10)


@pytest.mark.parametrize(
    "value",
    [b"bytes", bytearray(b"bytearray"), memoryview(b"a view"), array.array("d", [1.0, 2.0])],
    ids=lambda value: type(value).__name__,
)
def test_any_buffer_can_be_put(client, key, value):
    client.put(key, value)
    assert client.get(key) == bytes(value)


def test_memory_of_the_host_needs_no_registration(client, key):
    memory = bytearray(1 << 20)
    client.register_memory(memory)
    client.put(key, memory)
    client.unregister_memory(memory)
    client.unregister_memory(memory)
    with pytest.raises(TypeError):
        client.register_memory(7)
    with pytest.raises(mckv.InvalidArgumentError):
        client.register_memory(b"")


def test_numpy_arrays_are_values_and_buffers(client, key):
    numpy = pytest.importorskip("numpy")
    given = numpy.arange(1000, dtype="f4")
    client.put(key, given)
    taken = numpy.zeros(1000, dtype="f4")
    assert client.get_into(key, taken) == 4000
    assert (taken == given).all()
    with pytest.raises((BufferError, ValueError)):
        client.put(key(1), given[::2])
    assert not client.exists(key(1))
    taken.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        client.get_into(key, taken)


def test_pieces_are_stored_one_after_the_other(client, key):
    client.put(key, [b"one", bytearray(b"two"), memoryview(b"three")])
    assert client.get(key) == b"onetwothree"


def test_a_second_put_changes_nothing_unless_it_is_an_upsert(client, key):
    client.put(key, b"first")
    client.put(key, b"second!")
    assert client.get(key) == b"first"
    version = client.stat(key).version
    client.put(key, b"second!", upsert=True)
    assert client.get(key) == b"second!"
    assert client.stat(key).version != version


def test_a_miss_raises_or_gives_the_default(client, key):
    with pytest.raises(mckv.NotFoundError) as caught:
        client.get(key)
    assert isinstance(caught.value, KeyError)
    assert caught.value.status == mckv.Status.NOT_FOUND
    assert caught.value.remedy in str(caught.value)
    assert client.get(key, None) is None
    assert client.view(key, default=5) == 5
    for ask in (client.view, client.stat):
        with pytest.raises(mckv.NotFoundError):
            ask(key)
    with pytest.raises(mckv.NotFoundError):
        client.get_into(key, bytearray(5))
    assert client.remove(key) is False


def test_ranges(client, key):
    client.put(key, bytes(range(100)))
    buffer = bytearray(10)
    assert client.get_into(key, buffer, 20, 5) == 5
    assert buffer == bytes(range(20, 25)) + bytes(5)
    assert client.get_into(key, buffer, 95) == 5
    for bad in (dict(offset=101), dict(offset=95, length=6), dict(length=0)):
        with pytest.raises(mckv.InvalidArgumentError):
            client.get_into(key, buffer, **bad)
    with pytest.raises(mckv.BufferTooSmallError, match="100 bytes"):
        client.get_into(key, buffer)
    assert buffer[:5] == bytes(range(95, 100))


def test_batches(client, key):
    names = [key(i) for i in range(2500)]
    values = [b"%d" % i for i in range(2500)]
    assert client.put_batch(names, values) == [mckv.Status.OK] * 2500
    assert client.get_batch(names) == values
    assert client.exists_batch([*names, key]) == [True] * 2500 + [False]
    buffers = [bytearray(10) for _ in names]
    assert client.get_into_batch(names, buffers) == [len(value) for value in values]
    assert all(buffer.startswith(value) for buffer, value in zip(buffers, values, strict=True))
    got = client.get_into_batch(
        [names[0], key, names[1]], [bytearray(1), bytearray(1), bytearray(9)]
    )
    assert got == [1, -mckv.Status.NOT_FOUND, 1]
    assert [one and one.length for one in client.stat_batch([names[0], key])] == [1, None]
    removed = client.remove_batch([*names, key])
    assert removed == [mckv.Status.OK] * 2500 + [mckv.Status.NOT_FOUND]
    assert client.get_batch([]) == [] and client.put_batch([], []) == []


def test_one_bad_item_of_a_batch_harms_no_other(client, key):
    assert client.put_batch([key(1), "", key(2)], [b"1", b"x", b"2"]) == [0, 1, 0]
    assert client.get_batch([key(1), key(2)]) == [b"1", b"2"]


@pytest.mark.parametrize("bad", [None, 5, 1.5, bytearray(b"k"), memoryview(b"k"), ["k"]])
def test_a_key_of_the_wrong_type_raises(client, bad):
    for call in (
        lambda: client.put(bad, b"v"),
        lambda: client.get(bad),
        lambda: client.view(bad),
        lambda: client.exists(bad),
        lambda: client.remove(bad),
        lambda: client.get_into(bad, bytearray(1)),
        lambda: client.exists_batch([bad]),
        lambda: client.put_batch([bad], [b"v"]),
    ):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("bad", ["", b"", "k" * 1025, "ü" * 513, b"k" * 5000])
def test_a_key_of_the_wrong_length_raises(client, bad):
    for call in (
        lambda: client.put(bad, b"v"),
        lambda: client.get(bad),
        lambda: client.view(bad),
        lambda: client.exists(bad),
        lambda: client.remove(bad),
        lambda: client.stat(bad),
    ):
        with pytest.raises(mckv.InvalidArgumentError, match="1 to 1024 bytes"):
            call()


def test_a_key_that_is_no_text_raises(client):
    with pytest.raises(UnicodeEncodeError):
        client.put("\ud800", b"v")


def test_keys_may_be_any_bytes(client, key):
    name = key.encode() + b"\0\xff"
    client.put(name, b"v")
    assert client.get(name) == b"v" and name in client
    client.put("ключ" + key, b"w")
    assert client.get(("ключ" + key).encode()) == b"w"


@pytest.mark.parametrize("bad", [None, 5, "text", object(), [None], [b"x", 5]])
def test_a_value_without_bytes_raises(client, key, bad):
    with pytest.raises(TypeError):
        client.put(key, bad)
    with pytest.raises(TypeError):
        client.put_batch([key], [bad])
    assert not client.exists(key)


def test_an_empty_value_raises(client, key):
    for empty in (b"", [], [b"", b""]):
        with pytest.raises(mckv.InvalidArgumentError):
            client.put(key, empty)


def test_a_buffer_that_cannot_be_written_raises(client, key):
    client.put(key, b"v")
    for bad in (b"bytes", memoryview(b"ro"), "text", None, 5):
        with pytest.raises((TypeError, BufferError)):
            client.get_into(key, bad)


@pytest.mark.parametrize("bad", [-1, float("nan"), 3601, "soon", object()])
def test_a_timeout_that_is_none_raises(client, key, bad):
    with pytest.raises((mckv.InvalidArgumentError, TypeError)):
        client.put(key, b"v", timeout=bad)
    assert not client.exists(key)


def test_pins(client, key):
    client.put(key, b"v", pin=mckv.Pin.SOFT, pin_ttl=60)
    stat = client.stat(key)
    assert stat.pin is mckv.Pin.SOFT and 0 < stat.pin_left <= 60
    client.set_pin(key, mckv.Pin.HARD)
    assert client.stat(key).pin is mckv.Pin.HARD
    client.set_pin(key, mckv.Pin.NONE)
    for bad in (3, -1, 1 << 70, "hard"):
        with pytest.raises((mckv.InvalidArgumentError, TypeError, OverflowError)):
            client.set_pin(key, bad)
    with pytest.raises(mckv.NotFoundError):
        client.set_pin(key(1), mckv.Pin.HARD)


def test_parents(client, key):
    client.put(key(0), b"root")
    client.put(key(1), b"leaf", parent=key(0))
    assert client.stat(key(1)).parent_hash != 0
    assert client.stat(key(0)).parent_hash == 0
    client.put_batch([key(2), key(3)], [b"a", b"b"], parents=[key(1), None])
    assert client.stat(key(2)).parent_hash != 0 and client.stat(key(3)).parent_hash == 0
    with pytest.raises(mckv.InvalidArgumentError):
        client.put_batch([key(4)], [b"a"], parents=[])


def test_groups_commit_together_or_not_at_all(client, key):
    with client.group() as group:
        group.put(key(1), b"1")
        group.put(key(2), b"2")
        assert not client.exists(key(1))
    assert client.get_batch([key(1), key(2)]) == [b"1", b"2"]
    assert client.stat(key(1)).group == client.stat(key(2)).group != 0
    with pytest.raises(RuntimeError, match="mine"), client.group() as group:
        group.put(key(3), b"3")
        raise RuntimeError("mine")
    assert not client.exists(key(3))
    group.abort()
    with pytest.raises(mckv.InvalidArgumentError):
        group.put(key(3), b"3")
    with pytest.raises(mckv.InvalidArgumentError):
        group.commit()


def test_reservations_are_written_in_place(client, key):
    reservation = client.reserve(5000)
    assert len(reservation) == 5000
    memory = memoryview(reservation)
    assert not memory.readonly
    memory[:] = b"r" * 5000
    with pytest.raises(BufferError):
        reservation.commit(key)
    memory.release()
    reservation.commit(key, 4999)
    assert client.get(key) == b"r" * 4999
    assert not reservation.open
    with pytest.raises(mckv.InvalidArgumentError):
        reservation.commit(key)
    with pytest.raises(BufferError):
        memoryview(reservation)
    reservation.abandon()


def test_a_reservation_that_is_not_committed_is_given_back(client, key):
    with client.reserve(100) as reservation:
        pass
    assert not reservation.open
    for length in (0, 101, -1):
        reservation = client.reserve(100)
        with pytest.raises((mckv.InvalidArgumentError, OverflowError)):
            reservation.commit(key, length)
    for size in (0, 1 << 60, -1):
        with pytest.raises((mckv.McError, OverflowError, TypeError)):
            client.reserve(size)


def test_session_buffers(client, key):
    buffer = client.alloc(4096)
    memory = memoryview(buffer)
    memory[:3] = b"abc"
    client.put(key, memory[:3])
    assert client.get(key) == b"abc"
    assert buffer.address > 0 and len(buffer) == 4096
    del buffer
    memory[3:6] = b"def"  # the memoryview keeps it
    for size in (0, 1 << 50):
        with pytest.raises(mckv.McError):
            client.alloc(size)


def test_addresses(client, key):
    import ctypes

    memory = ctypes.create_string_buffer(bytes(range(256)), 256)
    at = ctypes.addressof(memory)
    assert client.put_addresses([key(1), key(2)], [at, [at, at + 100]], [10, [5, 5]]) == [0, 0]
    assert client.get(key(1)) == bytes(range(10))
    assert client.get(key(2)) == bytes(range(5)) + bytes(range(100, 105))
    into = ctypes.create_string_buffer(256)
    to = ctypes.addressof(into)
    got = client.get_addresses([key(2), key(3)], [[to + 8, to], [to]], [[5, 5], [1]])
    assert got == [10, -mckv.Status.NOT_FOUND]
    assert into.raw[:13] == bytes(range(100, 105)) + bytes(3) + bytes(range(5))
    assert client.get_address(key(1), to, 256) == 10
    assert client.get_address(key(3), to, 256) == -mckv.Status.NOT_FOUND
    assert client.get_address(key(1), to, 5) == -mckv.Status.BUFFER_TOO_SMALL
    ranges = mckv._native.AddressRanges()
    assert client.get_address(key(1), 16, 256, ranges) == -mckv.Status.INVALID_ARGUMENT
    for bad in ("x", None, -1, 1 << 64, 1.5):
        with pytest.raises((TypeError, OverflowError)):
            client.get_address(key(1), bad, 5)
        with pytest.raises((TypeError, OverflowError)):
            client.get_address(key(1), to, bad)
    assert client.get_addresses([key(1)], [to], [3], [4]) == [3]
    assert into.raw[:3] == bytes([4, 5, 6])
    for keys, addresses, sizes in (
        ([key], [], []),
        ([key], [at], [[1]]),
        ([key], [[at]], [1]),
        ([key], [[at]], [[1, 2]]),
        ([key], ["x"], ["y"]),
        ([key], [-1], [1]),
        ([key], [at], [1 << 65]),
        ([key], None, None),
        (key, [at], [1]),
    ):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            client.put_addresses(keys, addresses, sizes)
        with pytest.raises((TypeError, ValueError, OverflowError)):
            client.get_addresses(keys, addresses, sizes)
    assert client.put_addresses([key], [0], [5]) == [mckv.Status.INVALID_ARGUMENT]
    mapped = mckv.Client.memory_is_mapped
    assert mapped(at, 256, True)
    assert not mapped(0, 1, False) and not mapped(16, 1, False) and not mapped(at, 1 << 62, False)
    assert not mapped(1 << 46, 4096, True)


def test_nothing_fits_that_is_larger_than_the_pool(client, key):
    with pytest.raises(mckv.TooLargeError):
        client.reserve(1 << 35)


def test_opening_fails_with_the_reason(tmp_path):
    with pytest.raises(mckv.AgentUnavailableError) as caught:
        mckv.Client(str(tmp_path / "nobody.sock"), timeout=0.1)
    assert isinstance(caught.value, ConnectionError) and caught.value.retry is mckv.Retry.LATER
    for bad in (
        dict(agent="embedded", config={"pool_byts": "1GiB"}),
        dict(agent="embedded", config={"a\nb": 1}),
        dict(agent="embedded", namespace=""),
        dict(agent="embedded", namespace="x" * 65),
        dict(agent="embedded", label="a\0b"),
        dict(agent="embedded", channel_count=65),
        dict(agent="embedded", staging_bytes=1 << 40),
        dict(agent="embedded", timeout=-1),
    ):
        with pytest.raises(mckv.McError):
            mckv.Client(**bad)
    for bad in (dict(agent=5), dict(agent="embedded", channel_count="x"), dict(nonsense=1)):
        with pytest.raises((TypeError, RuntimeError)):
            mckv.Client(**bad)


def test_a_client_that_was_never_opened_raises():
    with pytest.warns(RuntimeWarning, match="uninitialized"), pytest.raises(TypeError):
        mckv.Client.__new__(mckv.Client).get("k")


def test_a_closed_client_says_so(client, key):
    client.put(key, b"v")
    group, reservation = client.group(), client.reserve(10)
    client.close()
    client.close()
    assert client.closed
    for call in (
        lambda: client.put(key, b"v"),
        lambda: client.get(key),
        lambda: client.view(key),
        lambda: client.info(),
        lambda: client.ping(),
        lambda: client.put_addresses([], [], []),
        lambda: client.group(),
        lambda: client.reserve(1),
    ):
        with pytest.raises(mckv.ClosedError):
            call()
    group.put(key(1), b"v")  # the session lasts as long as what came from it
    group.commit()
    reservation.abandon()


def test_statuses_are_those_of_the_library():
    for status in mckv.Status:
        assert mckv._native.status_name(status) == f"MC_{status.name}"
        if status == mckv.Status.OK:
            continue
        error = mckv._errors.error_for(status, b"why \xff")
        assert error.status is status and error.retry == mckv._native.status_retry(status), status
        assert error.cause.startswith("why") and error.remedy


def test_info_and_ping(client):
    client.ping()
    assert client.info()["session_id"] > 0 and client.info()["isolated"] is False


def test_refcounts_stay_as_they_were(client, key):
    value = b"v" * 100
    buffer = bytearray(100)
    names = [key(1)]
    before = [sys.getrefcount(one) for one in (value, buffer, names, names[0])]
    for _ in range(100):
        client.put(names[0], value, upsert=True)
        client.get_into(names[0], buffer)
        client.put_batch(names, [value])
        client.get_into_batch(names, [buffer])
        client.view(names[0])
        with pytest.raises(TypeError):
            client.put_batch(names, [5])
    assert [sys.getrefcount(one) for one in (value, buffer, names, names[0])] == before
    buffer.extend(b"x")  # no export is left


def test_keys_lists_the_namespace(client, key):
    names = {key(i).encode() for i in range(600)} | {key.encode() + b".\xff%41", key("ü").encode()}
    client.put_batch(names, [b"v"] * len(names))
    assert set(client.keys(key)) == names
    assert set(client.keys(key.encode() + b".\xff")) == {key.encode() + b".\xff%41"}
    assert names <= set(client.keys())


def test_questions_to_the_agent(client):
    assert client.ask({"verb": "status"})["namespaces"][0]["name"] == "default"
    with pytest.raises(mckv.NoSuchNamespaceError):
        list(client.keys(namespace="nobody"))
    for bad in ({}, {"verb": "dance"}):
        with pytest.raises(mckv.UnsupportedError):
            client.ask(bad)
    with pytest.raises(mckv.InvalidArgumentError):
        client.ask({"verb": "x" * 20000})
    with pytest.raises(TypeError):
        client.ask({"verb": object()})


def test_a_host_without_a_driver_has_no_streams(client, key):
    refused = [mckv.Status.INVALID_ARGUMENT]
    assert client.put_batch([key], [b"value"], stream=0) == refused
    client.put(key, b"value")
    assert client.get_into_batch([key], [bytearray(5)], stream=0) == [-refused[0]]
    with client.view(key) as view, pytest.raises(mckv.InvalidArgumentError):
        view.copy_ranges([id(key)], [1], [0], stream=0)


def test_a_read_only_address_is_read_from_but_never_written_to(client, key):
    numpy = pytest.importorskip("numpy")
    client.put(key, b"v" * 100)
    view = client.view(key)
    at = view.numpy().ctypes.data  # the pool itself, which this process may only read
    ranges = mckv._native.AddressRanges()
    assert client.put_addresses([key(1)], [at], [100], ranges=ranges) == [0]
    with client.reserve(100) as reservation:
        assert reservation.write_ranges([at], [100], [0], ranges)
    refused = -mckv.Status.INVALID_ARGUMENT
    assert client.get_address(key(1), at, 100, ranges) == refused
    assert client.get_addresses([key(1)], [at], [100], ranges=ranges) == [refused]
    assert not view.copy_ranges([at], [100], [0], ranges)
    writable = numpy.zeros(100, "u1")
    assert view.copy_ranges([writable.ctypes.data], [100], [0], ranges)
    assert writable.tobytes() == b"v" * 100
