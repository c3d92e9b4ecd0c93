# SPDX-License-Identifier: Apache-2.0
"""Tensors stored along axes of parallelism, and read along the same, others, or as a whole."""

import random
import struct
import types

import pytest

torch = pytest.importorskip("torch")


def axis(kind, rank=0, size=1, split_dim=None, expert_id=None, stage_id=None):
    import mooncake.store

    made = mooncake.store.ParallelAxis()
    made.kind, made.rank, made.size = kind, rank, size
    made.split_dim, made.expert_id, made.stage_id = split_dim, expert_id, stage_id
    return made


def along(*axes):
    import mooncake.store

    made = mooncake.store.TensorParallelism()
    made.axes = list(axes)
    return made


def tp(rank, size, split_dim=0):
    return along(axis("tp", rank, size, split_dim))


def target(mode, parallelism=None):
    import mooncake.store

    made = mooncake.store.ReadTarget()
    made.mode, made.parallelism = mode, parallelism
    return made


def writer(rank, size, split_dim=0):
    return types.SimpleNamespace(rank=rank, size=size, split_dim=split_dim)


@pytest.fixture
def tensor():
    return torch.arange(48, dtype=torch.float32).reshape(8, 6)


def same(one, other):
    return one is not None and one.dtype == other.dtype and torch.equal(one, other)


def put_shards(store, key, tensor, size, dim=0):
    for rank, part in enumerate(tensor.chunk(size, dim)):
        assert store.put_tensor_with_parallelism(key, part, tp(rank, size, dim)) == 0


def test_without_a_parallelism_it_is_a_tensor(store, key, tensor):
    assert store.put_tensor_with_parallelism(key, tensor) == 0
    assert same(store.get_tensor_with_parallelism(key), tensor)
    assert same(store.get_tensor(key), tensor)
    assert same(store.get_tensor_with_parallelism(key, target("as_stored")), tensor)


def test_shards_along_tp(store, key, tensor):
    put_shards(store, key, tensor, 2)
    assert store.batch_is_exist([key, f"{key}_tp_0", f"{key}_tp_1"]) == [0, 1, 1]
    get = store.get_tensor_with_parallelism
    for rank in range(2):
        assert same(get(key, target("shard", tp(rank, 2))), tensor[4 * rank : 4 * rank + 4])
    # Put together as a whole, and cut otherwise.
    assert same(get(key, target("full", tp(0, 2))), tensor)
    for rank in range(4):
        assert same(get(key, target("shard", tp(rank, 4))), tensor[2 * rank : 2 * rank + 2])
    assert same(get(key, target("shard", tp(0, 1))), tensor)
    assert store.get_tensor_with_tp(key, 1, 2).shape == (4, 6)


def test_the_bytes_are_mooncakes(store, key, tensor):
    assert store.put_tensor_with_parallelism(key, tensor, tp(1, 2, 1)) == 0
    raw = store.get(f"{key}_tp_1")
    assert struct.unpack_from("<IHHIIQQQ", raw) == (0x4D4F4F4E, 1, 304, 0, 2, 1, 304, 192)
    assert struct.unpack_from("<2q", raw, 40) == (8, 12)
    assert struct.unpack_from("<2q", raw, 104) == (8, 6)
    assert struct.unpack_from("<2I2I4iq", raw, 168) == (1, 0, 1, 0, 1, 2, 1, 0, 6)
    assert raw[208:304] == bytes(96)
    manifest = struct.pack("<IHHIIiIQ8q", 0x574D414E, 1, 96, 0, 2, 1, 2, 0, 8, 12, *[-1] * 6)
    assert store.get(f"{key}__parallelism_manifest") == manifest


@pytest.mark.parametrize(
    ("axes", "name"),
    [
        ([("dp", 1, 2)], "__dp_1of2"),
        ([("ep", 1, 2, None, 3)], "__ep_1of2_eid3"),
        ([("pp", 1, 2, None, None, 1)], "__pp_1of2_sid1"),
        ([("tp", 0, 2, 0), ("dp", 1, 2)], "__dp_1of2__tp_0of2_sd0"),
        (
            [("tp", 1, 2, 1), ("ep", 0, 4, None, 2), ("pp", 1, 3, None, None, 1)],
            "__tp_1of2_sd1__ep_0of4_eid2__pp_1of3_sid1",
        ),
    ],
)
def test_other_axes(store, key, tensor, axes, name):
    parallelism = along(*(axis(*one) for one in axes))
    assert store.put_tensor_with_parallelism(key, tensor, parallelism) == 0
    assert store.is_exist(key + name) == 1
    get = store.get_tensor_with_parallelism
    # Along TP and something else the whole is put, and this rank's part stored.
    cut = [one for one in axes if one[0] == "tp"]
    expected = tensor.chunk(cut[0][2], cut[0][3])[cut[0][1]] if cut else tensor
    assert same(get(key, target("shard", parallelism)), expected)
    assert get(key, target("as_stored")) is None
    other = along(*(axis(one[0], 0, 9, *one[3:]) for one in axes))
    assert get(key, target("shard", other)) is None


@pytest.mark.parametrize(
    "axes",
    [
        [],
        [("xx", 0, 2)],
        [("tp", 0, 2)],
        [("tp", 2, 2, 0)],
        [("tp", 0, 2, -1)],
        [("tp", 0, 2, 5)],
        [("tp", 0, 2, 0), ("tp", 0, 2, 1)],
        [("dp", 0, 2, 0)],
        [("dp", 0, 0)],
        [("dp", -1, 2)],
        [("ep", 1, 2)],
        [("pp", 1, 2)],
    ],
)
def test_axes_that_cannot_be_are_refused(store, key, tensor, axes):
    parallelism = along(*(axis(*one) for one in axes))
    assert store.put_tensor_with_parallelism(key, tensor, parallelism) == -600
    assert store.get_tensor_with_parallelism(key, target("shard", parallelism)) is None


def test_what_is_no_request_is_refused(store, key, tensor):
    put = store.put_tensor_with_parallelism
    assert put(key, tensor, tp(0, 2), writer_partition=writer(0, 2)) == -600
    assert put(key, tensor, 5) == -600
    assert put(key, tensor, writer_partition={"rank": 0, "size": 2, "split_dim": 0}) == -600
    assert put(key, tensor) == 0
    assert store.get_tensor_with_parallelism(key, 5) is None
    with pytest.raises(RuntimeError, match="mode"):
        store.get_tensor_with_parallelism(key, target("other"))


def test_writers_store_their_parts_of_a_whole(store, key, tensor):
    put, get = store.put_tensor_with_parallelism, store.get_tensor_with_parallelism
    assert put(key, tensor, writer_partition=writer(0, 2)) == 0
    assert store.is_exist(f"{key}__writer_0of2_sd0") == 1
    assert get(key, target("full")) is None
    assert put(key, tensor, writer_partition=axis("tp", 1, 2, 0)) == 0
    assert same(get(key, target("full")), tensor)
    assert same(get(key, target("shard", tp(1, 2))), tensor[4:])


def test_upsert_replaces(store, key, tensor):
    put_shards(store, key, tensor, 2)
    for rank, part in enumerate((tensor + 1).chunk(2)):
        assert store.upsert_tensor_with_parallelism(key, part, tp(rank, 2)) == 0
    assert same(store.get_tensor_with_parallelism(key, target("full", tp(0, 2))), tensor + 1)


def test_batches(store, key, tensor):
    put, get = store.batch_put_tensor_with_parallelism, store.batch_get_tensor_with_parallelism
    assert put([key(1), key(2)], [tensor, tensor], [tp(0, 2), None]) == [0, 0]
    one, two, three = get(
        [key(1), key(2), key(3)], [target("shard", tp(0, 2)), None, target("full")]
    )
    assert same(one, tensor) and same(two, tensor) and three is None
    assert put([key(4), key(5)], [tensor, tensor]) == [0, 0]
    assert same(get([key(4)])[0], tensor)
    assert put([key(6), key(7)], [tensor, tensor], [tp(0, 2)]) == [-600, -600]
    assert put([key(6), key(7)], [tensor, tensor], tp(0, 2)) == [-600, -600]
    assert get([key(4), key(5)], [None]) == [None, None]
    assert store.batch_upsert_tensor_with_parallelism([key(4)], [tensor + 1]) == [0]
    assert same(get([key(4)])[0], tensor + 1)


def test_into_a_buffer_and_from_it(store, memory, key, tensor):
    put_shards(store, key, tensor, 2)
    into = store.get_tensor_with_parallelism_into
    for wanted, expected in (
        (target("shard", tp(1, 2)), tensor[4:]),
        (target("shard", tp(1, 4)), tensor[2:4]),
        (target("full", tp(0, 2)), tensor),
    ):
        got = into(key, memory + 0, 4096, wanted)
        assert same(got, expected) and got.data_ptr() == memory + 304
    assert into(key, memory + 0, 400, target("full", tp(0, 2))) is None
    assert into(key, memory + 0, 100, target("shard", tp(1, 2))) is None
    into(key, memory + 0, 4096, target("full", tp(0, 2)))
    # The form that takes a buffer cuts the whole tensor itself.
    put = store.put_tensor_with_parallelism_from
    assert put(key(1), memory + 0, 304 + 192, tp(0, 2)) == 0
    assert store.batch_is_exist([f"{key(1)}_tp_0", f"{key(1)}_tp_1"]) == [1, 1]
    assert same(store.get_tensor_with_tp(key(1), 1, 2), tensor[4:])
    assert put(key(2), memory + 0, 304 + 192) == 0
    assert put(key(3), memory + 0, 304 + 192, writer_partition=writer(0, 2)) == 0
    assert store.is_exist(f"{key(3)}__writer_0of2_sd0") == 1
    assert put(key(4), memory + 0, 100, tp(0, 2)) == -600
    (got,) = store.batch_get_tensor_with_parallelism_into(
        [key(2)], [memory + 8192], [4096], [target("as_stored")]
    )
    assert same(got, tensor)


@pytest.mark.ours_only
@pytest.mark.parametrize("stored", ["shards", "parts", "whole"])
def test_any_shard_of_whatever_was_stored(store, key, stored):
    """Every way to cut of every way that it was cut."""
    tensor = torch.arange(4 * 6 * 8, dtype=torch.int16).reshape(4, 6, 8)
    for dim, size in ((0, 1), (0, 4), (1, 3), (2, 2)):
        name = key(10 * dim + size)
        if stored == "shards":
            put_shards(store, name, tensor, size, dim)
        elif stored == "parts":
            for rank in range(size):
                part = writer(rank, size, dim)
                assert store.put_tensor_with_parallelism(name, tensor, writer_partition=part) == 0
        else:
            assert store.put_tensor(name, tensor) == 0
        assert same(store.get_tensor_with_parallelism(name, target("full")), tensor)
        for cut, count in ((0, 2), (1, 6), (2, 4), (0, 4), (1, 1)):
            for rank, expected in enumerate(tensor.chunk(count, cut)):
                wanted = target("shard", tp(rank, count, cut))
                assert same(store.get_tensor_with_parallelism(name, wanted), expected)
        for bad in (tp(0, 5, 0), tp(0, 2, 3)):
            assert store.get_tensor_with_parallelism(name, target("shard", bad)) is None


@pytest.mark.ours_only
def test_a_shard_that_is_missing_or_another_one_is_a_miss(store, key, tensor):
    put_shards(store, key, tensor, 2)
    store.upsert_tensor(f"{key}_tp_1", tensor)
    assert store.get_tensor_with_parallelism(key, target("full")) is None
    assert store.get_tensor_with_parallelism(key, target("shard", tp(1, 2))) is None
    store.remove(f"{key}_tp_1")
    assert store.get_tensor_with_parallelism(key, target("full")) is None
    assert same(store.get_tensor_with_parallelism(key, target("shard", tp(0, 4))), tensor[:2])


@pytest.mark.ours_only
def test_manifests_that_were_tampered_with_are_refused(store, key, tensor, long):
    put_shards(store, key, tensor, 2)
    name = f"{key}__parallelism_manifest"
    good, chance, refused = store.get(name), random.Random(5), 0
    for _ in range(20000 if long else 1000):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        store.upsert(name, bad)
        got = store.get_tensor_with_parallelism(key, target("full"))
        refused += got is None
        assert got is None or got.nbytes <= tensor.nbytes
    assert refused > 500
    store.upsert(name, good[:-1])
    assert store.get_tensor_with_parallelism(key, target("full")) is None
