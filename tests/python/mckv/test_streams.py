# SPDX-License-Identifier: Apache-2.0
"""Copies in the order of a stream, with the fake driver of the build."""

import pathlib

import mckv
import pytest

PROGRAM = """
import asyncio
import ctypes
import sys

import mckv

cuda = ctypes.CDLL("libcuda.so.1")
SIZE = 1 << 20
HALF = SIZE // 2


def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    assert error == 0, f"{name}: {error}"


context, memory, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxPushCurrent_v2", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(SIZE))
call("cuStreamCreate", ctypes.byref(stream), 1)
at = memory.value


def paint(value):
    '''In the order of the stream. The driver has read pageable memory when the call returns.'''
    call("cuMemcpyHtoDAsync_v2", memory, value, ctypes.c_size_t(SIZE), stream)


def painted():
    call("cuStreamSynchronize", stream)
    found = ctypes.create_string_buffer(SIZE)
    call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(SIZE))
    return found.raw


first, second = bytes(range(256)) * (SIZE // 256), b"s" * SIZE
with mckv.Client(sys.argv[1]) as client:
    reservation = client.reserve(SIZE)
    paint(first)
    assert reservation.write_ranges([at, at + HALF], [HALF, HALF], [0, HALF], stream=stream.value)
    assert not reservation.write_ranges([at], [HALF], [HALF + 1], stream=stream.value)
    paint(second)
    reservation.commit("object")
    assert painted() == second
    assert client.get("object") == first

    with client.view("object") as view:
        assert view.copy_ranges([at], [HALF], [HALF - 1], stream=stream.value)
        assert not view.copy_ranges([at], [HALF], [HALF + 1], stream=stream.value)
        assert painted() == first[HALF - 1 : SIZE - 1] + second[HALF:]

    for name in (stream.value, 0):  # 0: the default stream, as in torch
        paint(second)
        call("cuStreamSynchronize", stream)
        got = client.get_addresses(
            ["object", "absent"], [at, at], [HALF, HALF], [1, 0], stream=name
        )
        assert got == [HALF, -mckv.Status.NOT_FOUND], got
        call("cuStreamSynchronize", None)
        assert painted() == first[1 : HALF + 1] + second[HALF:]

    paint(first)
    got = client.put_addresses(["one", "two"], [at, at + HALF], [HALF, HALF], stream=stream.value)
    assert got == [mckv.Status.OK] * 2, got
    paint(second)
    assert client.get("one") + client.get("two") == first

    host = bytearray(SIZE)
    assert client.get_into_batch(["object"], [host]) == [SIZE]
    assert host == first
    refused = [-mckv.Status.INVALID_ARGUMENT]
    assert client.get_into_batch(["object"], [host], stream=stream.value) == refused
    refused = [mckv.Status.INVALID_ARGUMENT]
    assert client.put_batch(["three"], [host], stream=stream.value) == refused

    async def put_host_memory():
        async with client.asyncio() as pool:
            await pool.put_batch(["three"], [host], stream=stream.value)

    try:
        asyncio.run(put_host_memory())
        raise AssertionError("host memory was put in the order of a stream")
    except mckv.InvalidArgumentError:
        pass
"""


def test_copies_are_work_of_the_stream(make_agent, run_python, monkeypatch, tmp_path):
    driver = pathlib.Path(mckv.__file__).parents[2] / "tests/fake_driver"
    if not (driver / "libcuda.so.1").exists():
        pytest.skip("this installation of mckv has no fake driver; a build for tests has")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("MC_FAKE_DRIVER", str(tmp_path))
    agent = make_agent()
    status, _, errors = run_python(PROGRAM, agent.socket)
    assert status == 0, errors
