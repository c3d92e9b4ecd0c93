# SPDX-License-Identifier: Apache-2.0
"""put, get and their batches: what they take, what they answer."""

import pytest
from machine import WATCHDOG_S


def test_put_and_get(store, key):
    assert store.put(key, b"value") == 0
    assert store.get(key) == b"value"
    assert isinstance(store.get(key), bytes)


@pytest.mark.parametrize("value", [b"b", bytearray(b"ba"), memoryview(b"mv")])
def test_put_takes_any_buffer(store, key, value):
    assert store.put(key, value) == 0
    assert store.get(key) == bytes(value)


def test_put_takes_bytes_as_keys(store, key):
    assert store.put(key.encode(), b"v") == 0
    assert store.get(key) == b"v"


@pytest.mark.parametrize("bad", ["text", 5, None, [b"x"]])
def test_put_of_no_buffer_is_a_type_error(store, key, bad):
    with pytest.raises(TypeError):
        store.put(key, bad)


@pytest.mark.parametrize("bad", [None, 5, [b"k"]])
def test_a_key_of_another_type_is_a_type_error(store, bad):
    for call in (
        lambda: store.put(bad, b"v"),
        lambda: store.get(bad),
        lambda: store.get_size(bad),
        lambda: store.is_exist(bad),
        lambda: store.remove(bad),
        lambda: store.batch_is_exist([bad]),
    ):
        with pytest.raises(TypeError):
            call()


def test_wrong_arguments_are_type_errors(store, key):
    for call in (
        lambda: store.put(key),
        lambda: store.put(key, b"v", None),
        lambda: store.put(key, b"v", bogus=1),
        lambda: store.get(key=key),
    ):
        with pytest.raises(TypeError):
            call()


def test_put_takes_keywords(store, key):
    assert store.put(key=key, value=b"v") == 0


def test_the_first_put_counts(store, key):
    assert store.put(key, b"first") == 0
    assert store.put(key, b"second") == 0
    assert store.get(key) == b"first"


def test_an_empty_value_is_refused(store, key):
    assert store.put(key, b"") == -600
    assert store.is_exist(key) == 0


def test_an_empty_key(store):
    assert store.put("", b"v") == -600
    assert store.get("") == b""
    assert store.is_exist("") == 0
    assert store.get_size("") == -704
    assert store.remove("") == -704


def test_a_key_has_at_most_1024_bytes(store, key):
    name = key.ljust(1024, "k")
    assert store.put(name, b"v") == 0 and store.is_exist(name) == 1
    assert store.put(name + "k", b"v") == -400
    assert store.is_exist(name + "k") == 0
    assert store.get_size(name + "k") == -704


def test_get_of_a_miss_is_empty(store, key):
    assert store.get(key) == b""


def test_get_batch(store, key):
    store.put(key, b"v")
    assert store.get_batch([key, key("none"), key]) == [b"v", b"", b"v"]


def test_get_batch_of_nothing_is_nothing(store):
    assert store.get_batch([]) == []


def test_get_size(store, key):
    store.put(key, b"value")
    assert store.get_size(key) == 5
    assert store.get_size(key("none")) == -704


def test_get_buffer(store, key):
    store.put(key, b"value")
    handle = store.get_buffer(key)
    assert handle.size() == len(handle) == 5 and bytes(handle) == b"value"
    assert handle.ptr() != 0
    assert store.get_buffer(key("none")) is None


def test_a_buffer_outlives_its_object(store, key):
    import time

    store.put(key, b"value" * 1000)
    handle = store.get_buffer(key)
    deadline = time.monotonic() + WATCHDOG_S
    while store.remove(key, True) not in (0, -704) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert bytes(handle) == b"value" * 1000


def test_a_buffer_handle_is_read_only(store, key):
    store.put(key, b"value")
    assert memoryview(store.get_buffer(key)).readonly


def test_batch_get_buffer(store, key):
    store.put(key, b"value")
    handles = store.batch_get_buffer([key, key("none")])
    assert bytes(handles[0]) == b"value" and handles[1] is None
    assert store.batch_get_buffer([]) == []


def test_put_parts(store, key):
    assert store.put_parts(key, b"ab", bytearray(b"cd"), b"", memoryview(b"e")) == 0
    assert store.get(key) == b"abcde"
    assert store.put_parts(key, b"other") == 0
    assert store.get(key) == b"abcde"


def test_put_parts_of_nothing_stores_nothing(store, key):
    assert store.put_parts(key) == 0
    assert store.put_parts(key, b"", b"") == 0
    assert store.is_exist(key) == 0
    with pytest.raises(TypeError):
        store.put_parts(key, "text")


def test_put_batch(store, key):
    assert store.put_batch([key(1), key(2)], [b"1", b"22"]) == 0
    assert store.get_batch([key(1), key(2)]) == [b"1", b"22"]
    assert store.put_batch([], []) == 0


def test_put_batch_refuses_as_a_whole(store, key):
    assert store.put_batch([key(1)], [b"1", b"2"]) == -600
    assert store.put_batch([key(1), key(2)], [b"", b"2"]) == -600
    assert store.batch_is_exist([key(1), key(2)]) == [0, 0]


def test_upsert_replaces(store, key):
    assert store.upsert(key, b"one") == 0
    assert store.upsert(key, b"two") == 0
    assert store.get(key) == b"two"
    assert store.upsert(key, b"longer than that") == 0
    assert store.get(key) == b"longer than that"
    assert store.upsert(key, b"") == -600
    assert store.upsert_parts(key, b"p", b"q") == 0
    assert store.get(key) == b"pq"
    assert store.upsert_batch([key, key(1)], [b"x", b"y"]) == 0
    assert store.get_batch([key, key(1)]) == [b"x", b"y"]


def test_what_can_never_fit_is_no_space(store, key):
    assert store.put(key, bytes(600 << 20)) == -200


def test_large_values(store, key):
    value = bytes(range(256)) * 65536
    assert store.put(key, value) == 0
    assert store.get(key) == value
