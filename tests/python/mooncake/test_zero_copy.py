# SPDX-License-Identifier: Apache-2.0
"""Addresses: registered buffers, gather and scatter, ranges and sessions."""

import ctypes

import pytest


def test_register_buffer(store):
    memory = ctypes.create_string_buffer(8192)
    at = ctypes.addressof(memory)
    assert store.register_buffer(at, 4096) == 0
    assert store.register_buffer(at, 4096) == -600
    assert store.register_buffer(at + 100, 10) == -600
    assert store.register_buffer(at + 4095, 10) == -600
    assert store.register_buffer(at + 4096, 4096) == 0
    assert store.register_buffer(0, 10) == -600
    assert store.register_buffer(at + 100000, 0) == -600
    assert store.unregister_buffer(at) == 0
    assert store.unregister_buffer(at) == -600
    assert store.unregister_buffer(12345) == -600
    assert store.unregister_buffer(at + 4096) == 0


def test_memory_that_goes_away_is_refused(store):
    assert store.register_buffer(1 << 46, 4096) == -600


def test_put_from_and_get_into(store, memory, key):
    assert store.put_from(key, memory + 100, 50) == 0
    assert store.get(key) == memory.bytes(100, 50)
    assert store.put_from(key, memory + 0, 70) == 0
    assert store.get_size(key) == 50
    assert store.get_into(key, memory + 1000, 50) == 50
    assert memory.bytes(1000, 50) == memory.bytes(100, 50)


def test_get_into_takes_larger_buffers_but_no_smaller_ones(store, memory, key):
    store.put_from(key, memory + 0, 50)
    before = memory.bytes(2050, 50)
    assert store.get_into(key, memory + 2000, 100) == 50
    assert memory.bytes(2050, 50) == before
    assert store.get_into(key, memory + 2000, 49) == -600
    assert store.get_into(key, memory + 2000, 0) == -600
    assert store.get_into(key("none"), memory + 2000, 100) == -704
    assert store.get_into("", memory + 2000, 100) == -704
    with pytest.raises(TypeError):
        store.get_into(key, memory + 0, -1)
    with pytest.raises(TypeError):
        store.get_into(key, "address", 1)


def test_memory_need_not_be_registered(store, key):
    memory = ctypes.create_string_buffer(b"unregistered", 100)
    at = ctypes.addressof(memory)
    assert store.put_from(key, at, 12) == 0
    assert store.get_into(key, at + 50, 50) == 12
    assert memory.raw[50:62] == b"unregistered"


def test_no_memory_is_a_bad_parameter(store, key):
    store.put(key, b"value")
    for address in (0, 16, 1 << 46):
        assert store.get_into(key, address, 100) == -600
        assert store.put_from(key("new"), address, 10) == -600
        assert store.batch_get_into_multi_buffers([key], [[address]], [[100]]) == [-600]
    assert store.is_exist(key("new")) == 0


def test_put_from_of_nothing_is_refused(store, memory, key):
    assert store.put_from(key, memory + 0, 0) == -600


def test_upsert_from(store, memory, key):
    assert store.upsert_from(key, memory + 0, 10) == 0
    assert store.upsert_from(key, memory + 5, 20) == 0
    assert store.get(key) == memory.bytes(5, 20)
    assert store.batch_upsert_from([key, key(1)], [memory + 1, memory + 2], [3, 4]) == [0, 0]
    assert store.get_batch([key, key(1)]) == [memory.bytes(1, 3), memory.bytes(2, 4)]


def test_put_from_with_metadata(store, memory, key):
    assert store.put_from_with_metadata(key, memory + 0, memory + 500, 10, 5) == 0
    assert store.get(key) == memory.bytes(500, 5) + memory.bytes(0, 10)


def test_batch_put_from_and_get_into(store, memory, key):
    assert store.batch_put_from([key(1), key(2)], [memory + 0, memory + 10], [10, 20]) == [0, 0]
    assert store.batch_put_from([key(1), key(3)], [memory + 0, memory + 9], [5, 6]) == [0, 0]
    got = store.batch_get_into(
        [key(1), key("none"), key(2)], [memory + 3000, memory + 4000, memory + 5000], [10, 10, 100]
    )
    assert got == [10, -704, 20]
    assert memory.bytes(5000, 20) == memory.bytes(10, 20)
    assert store.batch_get_into([key(1), key(2)], [memory + 3000] * 2, [5, 100]) == [-600, 20]


def test_batches_of_odd_lengths(store, memory, key):
    store.put(key, b"value")
    assert store.batch_put_from([key(1)], [memory + 0] * 2, [1]) == [-600]
    assert store.batch_get_into([key], [memory + 0] * 2, [5]) == [-600]
    assert store.batch_put_from([], [], []) == [] and store.batch_get_into([], [], []) == []
    assert store.batch_put_from([key(1), key(2)], [memory + 0] * 2, [0, 5]) == [-600, 0]
    assert store.batch_put_from([key(3)] * 2, [memory + 0] * 2, [5, 5]) == [0, 0]


def test_gather_and_scatter(store, memory, key):
    pieces = [[memory + 0, memory + 100], [memory + 200]]
    assert store.batch_put_from_multi_buffers([key(1), key(2)], pieces, [[5, 6], [7]]) == [0, 0]
    assert store.get(key(1)) == memory.bytes(0, 5) + memory.bytes(100, 6)
    again = store.batch_put_from_multi_buffers([key(1)], [[memory + 9]], [[3]])
    assert again == [0] and store.get_size(key(1)) == 11
    got = store.batch_get_into_multi_buffers(
        [key(1), key("none"), key(2)],
        [[memory + 6000, memory + 7000, memory + 8000], [memory + 0], [memory + 9000]],
        [[4, 6, 1], [5], [7]],
    )
    assert got == [11, -704, 7]
    whole = memory.bytes(6000, 4) + memory.bytes(7000, 6) + memory.bytes(8000, 1)
    assert whole == store.get(key(1))
    got = store.batch_get_into_multi_buffers([key(2)], [[memory + 0]], [[7]], True)
    assert got == [7]


def test_gather_and_scatter_of_odd_lengths(store, memory, key):
    store.put(key, b"0123456789")
    two = [[memory + 0, memory + 100]]
    assert store.batch_put_from_multi_buffers([key(1)], two, [[5]]) == [-600]
    assert store.batch_put_from_multi_buffers([key(1)], [[]], [[]]) == [-600]
    assert store.batch_get_into_multi_buffers([key], two, [[5, 2]]) == [-600]
    assert store.batch_get_into_multi_buffers([key], two, [[5]]) == [-600]
    assert store.batch_get_into_multi_buffers([key], two * 2, [[5, 5]]) == [-600]
    assert store.is_exist(key(1)) == 0


def test_scatter_into_more_room_than_the_object_has(store, memory, key):
    store.put(key, b"0123456789")
    got = store.batch_get_into_multi_buffers([key], [[memory + 0, memory + 100]], [[5, 50]])
    assert got == [10] and memory.bytes(100, 5) == b"56789"


def test_many_keys_of_many_pieces(store, memory, key):
    names = [key(i) for i in range(128)]
    pieces = [[memory + (i * 8 + j) * 16 for j in range(32)] for i in range(128)]
    sizes = [[16] * 32] * 128
    assert store.batch_put_from_multi_buffers(names, pieces, sizes) == [0] * 128
    values = store.get_batch(names)
    assert values == [memory.bytes(i * 128, 512) for i in range(128)]
    into = [[memory + (i * 32 + j) * 16 for j in range(32)] for i in range(128)]
    assert store.batch_get_into_multi_buffers(names, into, sizes) == [512] * 128
    assert memory.bytes(0, 128 * 512) == b"".join(values)


def test_ranges_of_a_session(store, memory, key):
    store.put(key, bytes(range(100)))
    assert store.batch_get_session_start([key, key("none")]) == [0, -704]
    ranges = store.batch_get_into_multi_buffer_ranges
    got = ranges(
        [key, key("none")],
        [[memory + 0, memory + 50], [memory + 90]],
        [[2, 3], [1]],
        [[10, 97], [0]],
    )
    assert got == [5, -600]
    assert memory.bytes(0, 2) == bytes([10, 11]) and memory.bytes(50, 3) == bytes([97, 98, 99])
    assert ranges([key], [[memory + 0]], [[4]], [[97]]) == [-600]
    assert store.batch_get_session_end([key, key("none")]) == 0
    assert ranges([key], [[memory + 0]], [[1]], [[0]]) == [-600]
    assert store.batch_get_session_end([key]) == 0


def test_ranges_without_a_session(store, memory, key):
    store.put(key, b"value")
    got = store.batch_get_into_multi_buffer_ranges([key], [[memory + 0]], [[1]], [[0]])
    assert got == [-600]


def test_a_put_session_is_visible_at_its_end(store, memory, key):
    store.put(key("old"), b"old")
    names = [key(1), key(2), key("old")]
    assert store.batch_put_session_start(names, [10, 10, 10]) == [0, 0, -705]
    assert store.batch_is_exist([key(1)]) == [0]
    put = store.batch_put_from_multi_buffer_ranges
    assert put([key(1)], [[memory + 100, memory + 0]], [[5, 5]], [[5, 0]]) == [10]
    assert put([key(2)], [[memory + 0]], [[5]], [[8]]) == [-600]
    assert store.batch_put_session_end([key(1), key("none")]) == [0, -600]
    assert store.batch_put_session_revoke([key(2), key("none")]) == [0, -600]
    assert store.batch_is_exist([key(1), key(2)]) == [1, 0]
    assert store.get(key(1)) == memory.bytes(0, 5) + memory.bytes(100, 5)


def test_get_into_ranges(store, memory, key):
    store.put(key, bytes(range(100)))
    got = store.get_into_ranges(
        [memory + 0], [[key, key("none")]], [[[0, 10], [0]]], [[[0, 5], [0]]], [[[2, 3], [1]]]
    )
    assert got == [[[2, 3], [-704]]]
    assert memory.bytes(0, 2) == bytes([0, 1]) and memory.bytes(10, 3) == bytes([5, 6, 7])
    got = store.get_into_ranges([memory + 0], [[key]], [[[0]]], [[[98]]], [[[3]]])
    assert got == [[[-600]]]


def test_ranges_stay_within_the_registered_buffer(store, memory, key):
    store.put(key, bytes(range(100)))
    end = memory.SIZE - 4
    got = store.get_into_ranges(
        [memory + 0, memory + 100], [[key]] * 2, [[[end, end + 1]], [[end]]],
        [[[10, 10]], [[10]]], [[[4, 4]], [[4]]],
    )  # fmt: skip
    assert got == [[[4, -600]], [[-600]]]
    assert memory.bytes(end, 4) == bytes([10, 11, 12, 13])


def test_ranges_of_different_lengths_are_refused(store, memory, key):
    store.put(key, bytes(100))
    nothing = []
    got = store.get_into_ranges(
        [memory + 0], [[key, key]], [[[0], nothing]], [[[0, 1], nothing]], [[[4, 4], nothing]]
    )
    assert got == [[[-600], []]]
    got = store.get_into_ranges([memory + 0], [[key]], [[[0, 9]]], [[[0, 1]]], [[nothing]])
    assert got == [[[-600, -600]]]
    got = store.get_into_ranges([memory + 0], [[key, key]], [[[0]]], [[[0]]], [[[1]]])
    assert got[0][0] == [-600]
    got = store.get_into_ranges([memory + 0], [[key("none")]], [[[0, 9]]], [[[0, 1]]], [[[1, 1]]])
    assert got == [[[-704, -704]]]


def test_host_memory(store):
    import mooncake.store

    allocator = mooncake.store.MooncakeHostMemAllocator()
    at = allocator.alloc(4096)
    assert at != 0 and at % 4096 == 0
    assert allocator.free(at) == 0
    assert mooncake.store.bind_to_numa_node(0) is None


def parent_of(store, client, key, names):
    """The name whose hash the object has as its parent; None: no parent."""
    found = store._client.stat(key).parent_hash
    hashes = {0: None}
    for name in names:
        client.put(f"child of {name}", b"v", parent=name, upsert=True)
        hashes[client.stat(f"child of {name}").parent_hash] = name
    return hashes[found]


@pytest.mark.ours_only
def test_the_order_of_keys_gives_their_parents(make_store, key):
    store = make_store(16 << 20)
    memory = ctypes.create_string_buffer(64)
    at = ctypes.addressof(memory)
    blocks = [key(i) for i in range(10)]

    def put(*numbers):
        names = [blocks[i] for i in numbers]
        assert store.batch_put_from(names, [at] * len(names), [64] * len(names)) == [0] * len(names)

    def parents():
        return [parent_of(store, store._client, name, blocks) for name in blocks]

    put(0, 1, 2)
    assert store.batch_is_exist(blocks[:6]) == [1, 1, 1, 0, 0, 0]
    put(3, 5)  # the block before is known from the lookup
    put(4)
    put(6, 7)  # nothing is known of the block before
    assert store.batch_get_into(blocks[7:9], [at, at], [64, 64])[0] == 64
    put(8, 9)
    names = [None, *blocks]
    assert parents() == [*names[:6], None, *names[7:10]]


@pytest.mark.ours_only
def test_a_key_that_cannot_be_a_parent_harms_no_put(store, memory, key):
    names = [key("a"), "", key("b"), "x" * 1025, key("c"), key("c")]
    sizes = [10] * len(names)
    done = store.batch_put_from(names, [memory.address] * len(names), sizes)
    assert [one == 0 for one in done] == [True, False, True, False, True, True]
    assert store.batch_is_exist([key("a"), key("b"), key("c")]) == [1, 1, 1]
