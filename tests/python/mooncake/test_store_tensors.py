# SPDX-License-Identifier: Apache-2.0
"""Tensors with Mooncake's header, shards by tensor-parallel rank."""

import random

import pytest

torch = pytest.importorskip("torch")

DTYPES = "float32 float64 int8 uint8 int16 int32 int64 bool float16 bfloat16 float8_e4m3fn".split()


def same(one, other):
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(one.view(torch.uint8), other.view(torch.uint8))
    )


@pytest.fixture
def tensor():
    return torch.arange(24, dtype=torch.float32).reshape(4, 6)


@pytest.mark.parametrize("name", DTYPES)
def test_every_type(store, key, name):
    given = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    assert store.put_tensor(key, given) == 0
    assert same(store.get_tensor(key), given)


def test_the_header_is_mooncakes(store, key, tensor):
    import struct

    store.put_tensor(key, tensor)
    raw = store.get(key)
    assert len(raw) == 304 + 96
    assert struct.unpack_from("<IHHIIQQQ", raw) == (0x4D4F4F4E, 1, 304, 0, 2, 0, 304, 96)
    assert struct.unpack_from("<8q", raw, 40) == (4, 6, -1, -1, -1, -1, -1, -1)


def test_what_is_no_tensor_is_refused(store, key):
    assert store.put_tensor(key, None) == -600
    assert store.put_tensor(key, [1, 2]) == -600
    assert store.get_tensor(key) is None
    store.put(key(1), b"x" * 400)
    store.put(key(2), b"x")
    assert store.get_tensor(key(1)) is None and store.get_tensor(key(2)) is None


def test_a_strided_tensor_is_stored_in_order(store, key, tensor):
    assert store.put_tensor(key, tensor.t()) == 0
    assert same(store.get_tensor(key), tensor.t().contiguous())
    assert store.put_tensor(key(1), torch.empty(0, 3)) == 0
    assert store.get_tensor(key(1)).shape == (0, 3)


def test_a_tensor_without_dimensions_stays_one(store, key):
    assert store.put_tensor(key, torch.tensor(5.0)) == 0
    assert store.get_tensor(key).shape == ()


def test_a_tensor_that_was_got_is_the_callers(store, key, tensor):
    store.put_tensor(key, tensor)
    store.get_tensor(key).add_(1)
    assert same(store.get_tensor(key), tensor)


def test_batches(store, key, tensor):
    assert store.batch_put_tensor([key(1), key(2)], [tensor, None]) == [0, -600]
    one, two = store.batch_get_tensor([key(1), key("none")])
    assert same(one, tensor) and two is None
    assert store.batch_put_tensor([key(3)], [tensor, tensor]) == [-600]


def test_shards(store, key, tensor):
    assert store.put_tensor_with_tp(key, tensor, 0, 2, 0) == 0
    assert store.batch_is_exist([key, f"{key}_tp_0", f"{key}_tp_1"]) == [0, 1, 1]
    for rank in range(2):
        assert same(store.get_tensor_with_tp(key, rank, 2), tensor.chunk(2)[rank].contiguous())
    assert store.get_tensor_with_tp(key, 5, 2) is None
    assert store.put_tensor_with_tp(key(1), tensor, 0, 3, 0) == -600
    assert store.put_tensor_with_tp(key(1), tensor, 0, 2, 5) == -600
    assert store.put_tensor_with_tp(key(2), tensor, 0, 1, 0) == 0
    assert store.is_exist(key(2)) == 1
    assert store.batch_put_tensor_with_tp([key(3)], [tensor], 0, 2, 1) == [0]
    (got,) = store.batch_get_tensor_with_tp([key(3)], 1, 2)
    assert same(got, tensor.chunk(2, 1)[1].contiguous())


def test_into_a_buffer_and_from_it(store, memory, key, tensor):
    store.put_tensor(key, tensor)
    got = store.get_tensor_into(key, memory + 0, 4096)
    assert same(got, tensor) and got.data_ptr() == memory + 304
    assert store.get_tensor_into(key, memory + 0, 100) is None
    assert store.get_tensor_into(key("none"), memory + 0, 4096) is None
    assert store.put_tensor_from(key(1), memory + 0, 304 + 96) == 0
    assert same(store.get_tensor(key(1)), tensor)
    assert store.put_tensor_from(key(2), memory + 0, 100) == -600
    assert store.put_tensor_from(key(2), memory + 9000, 500) == -600
    one, two = store.batch_get_tensor_into(
        [key, key("none")], [memory + 0, memory + 9000], [4096] * 2
    )
    assert same(one, tensor) and two is None
    assert store.batch_get_tensor_into([key, key], [memory + 0], [4096]) == [-600, -600]
    store.put_tensor_with_tp(key(3), tensor, 0, 2, 0)
    assert store.get_tensor_with_tp_into(key(3), memory + 0, 4096, 1, 2).shape == (2, 6)


def test_a_file_that_is_not_there_has_no_tensor(store, tmp_path, key):
    pytest.importorskip("safetensors")
    assert store.load_tensor_from_safetensor(key, str(tmp_path / "none.safetensors")) is None
    (tmp_path / "bad").write_bytes(b"no tensors")
    assert store.load_tensor_from_safetensor(key, str(tmp_path / "bad")) is None
    assert store.is_exist(key) == 0


def test_publish_and_upsert(store, key, tensor):
    import mooncake.store

    config = mooncake.store.ReplicateConfig()
    config.with_hard_pin = True
    assert store.pub_tensor(key(1), tensor) == 0
    assert store.pub_tensor(key(2), tensor, config) == 0
    assert store.batch_pub_tensor([key(3)], [tensor], config) == [0]
    assert store.upsert_tensor(key(1), tensor + 1) == 0
    assert same(store.get_tensor(key(1)), tensor + 1)
    assert store.upsert_pub_tensor(key(1), tensor) == 0
    assert store.batch_upsert_tensor([key(1)], [tensor + 2]) == [0]
    assert same(store.get_tensor(key(1)), tensor + 2)
    assert store.pub_tensor_with_tp(key(4), tensor, config, 0, 2, 0) == 0
    assert store.get_tensor_with_tp(key(4), 0, 2).shape == (2, 6)


@pytest.mark.ours_only
def test_headers_that_were_tampered_with_are_refused(store, memory, key, tensor, long):
    store.put_tensor(key, tensor)
    good = store.get(key)
    chance = random.Random(3)
    refused = 0
    for _ in range(20000 if long else 1000):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(180)] = chance.randrange(256)
        store.upsert(key, bad)
        got = store.get_tensor(key)
        refused += got is None
        assert got is None or got.nbytes + 304 <= len(bad)
    assert refused > 500
