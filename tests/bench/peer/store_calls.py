# SPDX-License-Identifier: Apache-2.0
"""Measures mooncake.store of the Python that runs this, Mooncake's wheel or ours; one JSON line.

Mooncake, and ours with MC_AGENT=embedded: the process is client and pool; else ours with that agent.
Used by `store_compare`; prints p50 of single calls in
nanoseconds and the batches' bytes per second beside memcpy of the same bytes in this process.
"""

import argparse
import ctypes
import json
import os
import time

from call_times import p50, warm

SMALL = 4096
OBJECTS, PIECES, PIECE = 64, 32, 65536


def fastest(call, times):
    best = None
    for i in range(times):
        start = time.perf_counter_ns()
        call(i)
        spent = time.perf_counter_ns() - start
        best = spent if best is None else min(best, spent)
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="127.0.0.1:50051")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=16)
    options = parser.parse_args()
    import mooncake.store

    store = mooncake.store.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 2 << 30, 512 << 20, "tcp", "", options.master)
    if code != 0:
        raise SystemExit(f"store_calls: setup: {code}")
    total = OBJECTS * PIECES * PIECE
    source = ctypes.create_string_buffer(os.urandom(total), total)
    target = ctypes.create_string_buffer(total)
    ctypes.memset(target, 1, total)  # touch every page
    at, to = ctypes.addressof(source), ctypes.addressof(target)
    assert store.register_buffer(at, total) == 0 and store.register_buffer(to, total) == 0
    names = [f"small.{i}" for i in range(1000)]
    assert store.batch_put_from(names, [at] * 1000, [SMALL] * 1000) == [0] * 1000
    result = {"module": mooncake.store.__file__}
    for case, call in (
        ("get_into", lambda i: store.get_into(names[i % 1000], to, SMALL) == SMALL),
        ("put_from", lambda i: store.put_from(f"new.{os.getpid()}.{i}", at, SMALL) == 0),
        ("is_exist", lambda i: store.is_exist(names[i % 1000]) == 1),
    ):
        warm(lambda i, call=call: call(i + 1_000_000))
        result[f"{case}_ns"] = p50(call, options.calls)
    assert target.raw[:SMALL] == source.raw[:SMALL]

    size = PIECES * PIECE
    pieces = [[at + (o * PIECES + p) * PIECE for p in range(PIECES)] for o in range(OBJECTS)]
    into = [[to + (o * PIECES + p) * PIECE for p in range(PIECES)] for o in range(OBJECTS)]
    sizes = [[PIECE] * PIECES] * OBJECTS
    keys = [[f"batch.{r}.{o}" for o in range(OBJECTS)] for r in range(options.rounds)]

    def copy(_):
        for o in range(OBJECTS):
            ctypes.memmove(to + o * size, at + o * size, size)

    puts = []
    for r in range(options.rounds):
        if r >= 2:
            done = store.batch_remove(keys[r - 2], True)
            assert set(done) <= {0, -704}, done
        start = time.perf_counter_ns()
        assert store.batch_put_from_multi_buffers(keys[r], pieces, sizes) == [0] * OBJECTS
        puts.append(time.perf_counter_ns() - start)
    ctypes.memset(target, 0, total)

    def get(_):
        done = store.batch_get_into_multi_buffers(keys[-1], into, sizes)
        assert done == [size] * OBJECTS, done[:3]

    gets = fastest(get, options.rounds)
    assert target.raw == source.raw
    copies = fastest(copy, options.rounds)
    result |= {
        "batch_put_bytes_per_s": total * 1e9 / min(puts),
        "batch_get_bytes_per_s": total * 1e9 / gets,
        "memcpy_bytes_per_s": total * 1e9 / copies,
    }
    print(json.dumps(result), flush=True)
    store.close()


if __name__ == "__main__":
    main()
