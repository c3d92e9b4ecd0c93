# SPDX-License-Identifier: Apache-2.0
"""Reads that compare the bytes with the checksum: a mismatch is a miss with its own error."""

import asyncio
import ctypes

import mckv
import pytest


def put_damaged(client, key):
    """Stores an object and flips a bit of its bytes."""
    reservation = client.reserve(5000)
    memory = (ctypes.c_ubyte * 5000).from_buffer(reservation)
    address = ctypes.addressof(memory)
    memory[:] = [7] * 5000
    del memory
    reservation.commit(key)
    ctypes.c_ubyte.from_address(address + 2500).value ^= 1


@pytest.fixture
def verifying():
    with mckv.Client("embedded", config={"pool_bytes": "16MiB"}, verify="always") as client:
        yield client


async def get_async(client, key):
    async with client.asyncio() as pool:
        return await pool.get(key)


@pytest.mark.parametrize(
    "read",
    [
        lambda client, key: client.get(key),
        lambda client, key: client.view(key),
        lambda client, key: client.get_into(key, bytearray(5000)),
        lambda client, key: client.get_into(key, bytearray(10), 100, 10),
        lambda client, key: asyncio.run(get_async(client, key)),
    ],
    ids=["get", "view", "get_into", "range", "async"],
)
def test_a_read_of_damaged_bytes_raises(verifying, read):
    seen = set()
    # The agent's own walk may find a damaged object first.
    for number in range(100):
        put_damaged(verifying, f"{number}")
        with pytest.raises((mckv.CorruptError, mckv.NotFoundError)) as caught:
            read(verifying, f"{number}")
        seen.add(caught.type)
        if mckv.CorruptError in seen:
            break
    assert mckv.CorruptError in seen


def test_damaged_bytes_are_a_miss_for_calls_that_do_not_raise(verifying):
    for number in range(10):
        put_damaged(verifying, f"{number}")
    keys = [f"{number}" for number in range(10)]
    assert verifying.get_batch(keys) == [None] * 10
    for number in range(10):
        put_damaged(verifying, f"again.{number}")
    keys = [f"again.{number}" for number in range(10)]
    assert verifying.view_batch(keys) == [None] * 10
    put_damaged(verifying, "last")
    assert verifying.get("last", default="a miss") == "a miss"


def test_never_gives_the_bytes_as_they_are():
    with mckv.Client("embedded", config={"pool_bytes": "16MiB"}, verify="never") as client:
        for number in range(100):
            put_damaged(client, f"{number}")
            value = client.get(f"{number}", default=None)
            if value is not None:
                assert len(value) == 5000 and value != b"\x07" * 5000
                return
    pytest.fail("the agent removed each of 100 objects before the read")


def test_a_word_that_is_no_mode_is_refused():
    with pytest.raises(mckv.InvalidArgumentError, match="never, sampled or always"):
        mckv.Client("embedded", verify="sometimes")
