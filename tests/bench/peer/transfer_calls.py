# SPDX-License-Identifier: Apache-2.0
"""Measures mooncake.engine of the Python that runs this, Mooncake's wheel or ours; one JSON line.

Two processes of this host: a target that registers memory and says where, and this one, which writes
to it and reads it back. Used by `transfer_compare`; prints p50 of single calls in nanoseconds.
"""

import argparse
import ctypes
import json
import mmap
import os
import subprocess
import sys

from call_times import p50, warm

SMALL, LARGE = 4096, 64 << 20
SPAN = 1000 * SMALL  # range of the small writes
END_S = 30


def memory(size):
    at = mmap.mmap(-1, size)
    return at, ctypes.addressof(ctypes.c_char.from_buffer(at))


def open_engine(buffer, size):
    import mooncake.engine

    engine = mooncake.engine.TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise SystemExit("transfer_calls: the engine does not open")
    if engine.register_memory(buffer, size) != 0:
        raise SystemExit("transfer_calls: the memory is not registered")
    return engine


def serve():
    keep, buffer = memory(LARGE)
    ctypes.memset(buffer, 1, LARGE)
    engine = open_engine(buffer, LARGE)
    print(json.dumps([engine.get_rpc_port(), buffer]), flush=True)
    sys.stdin.read()  # until the other process ends
    del keep
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--large-calls", type=int, default=24)
    options = parser.parse_args()
    if options.serve:
        return serve()
    peer = subprocess.Popen([sys.executable, "-B", __file__, "--serve"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not (line := peer.stdout.readline()).startswith("["):  # the wheel prints to the same stream
        if not line:
            raise SystemExit("transfer_calls: the target did not start")
    port, there = json.loads(line)
    keep, here = memory(LARGE)
    source = os.urandom(1 << 20) * 64
    ctypes.memmove(here, source, LARGE)
    engine = open_engine(here, LARGE)
    name = f"127.0.0.1:{port}"

    def small(call):
        return lambda i: call(name, here + i * SMALL % SPAN, there + i * SMALL % SPAN, SMALL) == 0

    def large(call):
        return lambda _: call(name, here, there, LARGE) == 0

    result = {}
    for verb, call in (("write", engine.transfer_sync_write), ("read", engine.transfer_sync_read)):
        warm(small(call))
        result[f"{verb}_small_ns"] = p50(small(call), options.calls)
        warm(large(call))
        result[f"{verb}_large_ns"] = p50(large(call), options.large_calls)
    ctypes.memset(here, 0, LARGE)
    if not large(engine.transfer_sync_read)(0) or ctypes.string_at(here, LARGE) != source:
        raise SystemExit("transfer_calls: what was written does not come back")
    print(json.dumps(result), flush=True)
    peer.stdin.close()
    peer.wait(END_S)
    del keep
    os._exit(0)  # Mooncake's engine may hang in its destructor


if __name__ == "__main__":
    main()
