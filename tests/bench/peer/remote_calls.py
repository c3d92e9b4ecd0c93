# SPDX-License-Identifier: Apache-2.0
"""Mooncake's store between two hosts, by TCP; used by `remote_compare`.

    remote_calls.py hold --host ADDRESS --master ADDRESS:PORT    puts the objects, prints a line, stays
    remote_calls.py ask  --host ADDRESS --master ADDRESS:PORT    measures, prints one JSON line

Who asks has no memory in the pool, so every object lies with who holds. Gets go into a registered
buffer; each of large objects is one of its own, as in `mcctl bench --remote`.
"""

import argparse
import ctypes
import itertools
import json
import os
import signal

from store_calls import SMALL, p50

KIB, MIB = 1 << 10, 1 << 20
SMALL_COUNT, BATCH, LARGE_COUNT, HUGE_COUNT = 1000, 32, 64, 8
BLOCK, BLOCK_BATCH, BLOCK_COUNT = 4 * MIB, 16, 64


def open_store(options, segment_bytes):
    import mooncake.store

    store = mooncake.store.MooncakeDistributedStore()
    code = store.setup(options.host, "P2PHANDSHAKE", segment_bytes, 512 * MIB, "tcp", "",
                       options.master)
    if code != 0:
        raise SystemExit(f"remote_calls: setup: {code}")
    return store


def content(name, size):
    seed = (name * 64).encode()
    return (seed * (size // len(seed) + 1))[:size]


def objects():
    for i in range(SMALL_COUNT):
        yield f"small.{i}", 4 * KIB
    for i in range(LARGE_COUNT):
        yield f"large.{i}", MIB
    for i in range(BLOCK_COUNT):
        yield f"block.{i}", BLOCK
    for i in range(HUGE_COUNT):
        yield f"huge.{i}", 64 * MIB


def hold(options):
    store = open_store(options, 2 << 30)
    for name, size in objects():
        if store.put(name, content(name, size)) != 0:
            raise SystemExit(f"remote_calls: put of {name} failed")
    print("held", flush=True)
    signal.pause()


def ask(options):
    store = open_store(options, 0)
    total = 64 * MIB
    buffer = ctypes.create_string_buffer(total)
    ctypes.memset(buffer, 1, total)  # touch every page
    to = ctypes.addressof(buffer)
    if store.register_buffer(to, total) != 0:
        raise SystemExit("remote_calls: register_buffer failed")

    def get(kind, count, size):
        return lambda i: store.get_into(f"{kind}.{i % count}", to, size) == size

    def get_batch(kind, count, size, batch):
        into = [to + i * size for i in range(batch)]

        def call(number):
            names = [f"{kind}.{(number * batch + i) % count}" for i in range(batch)]
            return store.batch_get_into(names, into, [size] * batch) == [size] * batch

        return call

    fresh = itertools.count()
    result = {}
    for case, call, count in (
        ("get 4 KiB", get("small", SMALL_COUNT, SMALL), 1000),
        ("batch of 32 x 4 KiB", get_batch("small", SMALL_COUNT, SMALL, BATCH), 300),
        ("get 1 MiB", get("large", LARGE_COUNT, MIB), 200),
        ("get 64 MiB", get("huge", HUGE_COUNT, 64 * MIB), 16),
        ("batch of 16 x 4 MiB", get_batch("block", BLOCK_COUNT, BLOCK, BLOCK_BATCH), 16),
        ("put 4 KiB", lambda i: store.put_from(f"put.{next(fresh)}", to, SMALL) == 0, 1000),
        ("exists", lambda i: store.is_exist(f"small.{i % SMALL_COUNT}") == 1, 1000),
    ):
        p50(call, max(2, count // 10))  # warm-up
        result[case] = p50(call, count)
    for name, size in (("small.7", SMALL), ("huge.1", 64 * MIB)):
        if store.get_into(name, to, size) != size or buffer.raw[:size] != content(name, size):
            raise SystemExit(f"remote_calls: wrong bytes of {name}")
    print(json.dumps(result))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["hold", "ask"])
    parser.add_argument("--host", required=True)
    parser.add_argument("--master", required=True)
    options = parser.parse_args()
    {"hold": hold, "ask": ask}[options.what](options)
    # The destructors would wait for peers that have ended.
    os._exit(0)


if __name__ == "__main__":
    main()
