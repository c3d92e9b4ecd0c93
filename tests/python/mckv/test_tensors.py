# SPDX-License-Identifier: Apache-2.0
"""Tensors keep dtype and shape; a damaged header is refused."""

import random

import mckv
import pytest

numpy = pytest.importorskip("numpy")

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_shape_are_kept(client, key, dtype):
    given = numpy.arange(24).reshape(2, 3, 4).astype(dtype)
    client.put_tensor(key, given)
    for copy in (False, True):
        taken = client.get_tensor(key, copy=copy)
        assert taken.dtype == given.dtype and taken.shape == given.shape
        assert (taken == given).all() and taken.flags.writeable == copy
        assert taken.ctypes.data % taken.itemsize == 0
    into = numpy.zeros_like(given)
    client.get_tensor_into(key, into)
    assert (into == given).all()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 2, 1, 2, 1, 2, 1, 2)])
def test_odd_shapes(client, key, shape):
    given = numpy.ones(shape, "f4")
    client.put_tensor(key, given)
    assert client.get_tensor(key).shape == shape


def test_what_cannot_be_stored_raises(client, key):
    for bad in (numpy.ones((1,) * 9, "f4"), numpy.array(["text"]), numpy.array([None])):
        with pytest.raises(mckv.McError):
            client.put_tensor(key, bad)
    for bad in (None, 5, b"bytes", [1, 2]):
        with pytest.raises(TypeError):
            client.put_tensor(key, bad)
    assert not client.exists(key)


def test_a_strided_or_big_endian_array_is_stored_in_order(client, key):
    given = numpy.arange(100, dtype="f4").reshape(10, 10)
    client.put_tensor(key(1), given.T[::2])
    assert (client.get_tensor(key(1)) == given.T[::2]).all()
    client.put_tensor(key(2), given.astype(">f4"))
    assert (client.get_tensor(key(2)) == given).all()


def test_shards_by_tensor_parallel_rank(client, key):
    given = numpy.arange(70, dtype="i8").reshape(7, 10)
    client.put_sharded(key, given, tp_size=2)
    parts = [client.get_tensor(key, tp_rank=rank, tp_size=2) for rank in range(2)]
    assert [part.shape for part in parts] == [(4, 10), (3, 10)]
    assert (numpy.concatenate(parts) == given).all()
    client.put_sharded(key, given, tp_size=5, dim=-1)
    parts = [client.get_tensor(key, tp_rank=rank, tp_size=5) for rank in range(5)]
    assert (numpy.concatenate(parts, axis=1) == given).all()
    client.put_tensor(key(1), given, tp_rank=1, tp_size=4)
    assert (client.get_tensor(key(1), tp_rank=1, tp_size=4) == given).all()
    with pytest.raises(mckv.NotFoundError):
        client.get_tensor(key(1))
    for rank, size in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(mckv.InvalidArgumentError):
            client.get_tensor(key, tp_rank=rank, tp_size=size)
    for bad in (dict(tp_size=8), dict(tp_size=2, dim=2)):
        with pytest.raises(mckv.InvalidArgumentError):
            client.put_sharded(key(2), given, **bad)


def test_torch_tensors(client, key):
    torch = pytest.importorskip("torch")
    given = torch.arange(24, dtype=torch.bfloat16).reshape(2, 3, 4)
    client.put_tensor(key, given)
    for copy in (False, True):
        taken = client.get_tensor(key, like="torch", copy=copy)
        assert taken.dtype == torch.bfloat16 and torch.equal(taken, given)
    with pytest.raises(mckv.UnsupportedError):
        client.get_tensor(key)
    into = torch.zeros(2, 3, 4, dtype=torch.bfloat16)
    client.get_tensor_into(key, into)
    assert torch.equal(into, given)
    client.put_tensor(key(1), given.transpose(0, 2).requires_grad_())
    assert torch.equal(client.get_tensor(key(1), like="torch"), given.transpose(0, 2))
    client.put_sharded(key(2), given, tp_size=3, dim=1)
    parts = [client.get_tensor(key(2), like="torch", tp_rank=r, tp_size=3) for r in range(3)]
    assert torch.equal(torch.cat(parts, 1), given)
    client.put_tensor(key(3), torch.empty(0, 5))
    assert client.get_tensor(key(3), like="torch").shape == (0, 5)


def test_a_tensor_of_another_kind_is_not_written_over(client, key):
    client.put_tensor(key, numpy.ones((2, 3), "f4"))
    for bad in (numpy.zeros((3, 2), "f4"), numpy.zeros((2, 3), "f8"), numpy.zeros(6, "f4")):
        with pytest.raises(mckv.InvalidArgumentError):
            client.get_tensor_into(key, bad)
    with pytest.raises(mckv.InvalidArgumentError):
        client.get_tensor(key, like="pickle")


def test_headers_that_were_tampered_with_are_refused(client, key, long):
    client.put(key("plain"), b"no tensor at all" * 10)
    client.put(key("short"), b"x")
    for name in ("plain", "short"):
        with pytest.raises(mckv.CorruptError):
            client.get_tensor(key(name))
    good = mckv.TensorHeader("float32", (5, 7)).encode() + bytes(140)
    chance = random.Random(7)
    refused = 0
    for i in range(20000 if long else 2000):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(40)] = chance.randrange(256)
        if i % 3 == 0:
            bad = bad[: chance.randrange(len(bad))] or bytearray(1)
        client.put(key, bytes(bad), upsert=True)
        try:
            taken = client.get_tensor(key)
        except mckv.McError:
            refused += 1
        else:  # the change gave another header that agrees with the length
            assert taken.nbytes == len(bad) - 64
    assert refused > 1000
