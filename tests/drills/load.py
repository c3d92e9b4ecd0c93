# SPDX-License-Identifier: Apache-2.0
"""Processes that put, get and compare while a drill kills their agent.

The bytes of an object follow from its key, so that any process can compare an object. A writer puts
objects one after the other and notes each acknowledged put in memory that the drill shares. The
processes are forks and end with the drill. One thread each.
"""

import argparse
import ctypes
import mmap
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench"))
import one_agent  # noqa: E402
from one_agent import BenchError, Slice  # noqa: E402

PATIENCE_S = 60.0
LARGEST_BYTES = 16 << 10
COUNTERS = 4  # words: acknowledged puts, gets, lost objects, wrong bytes
PATTERN_BYTES = 1 << 20
PATTERN = random.Random(1).randbytes(PATTERN_BYTES + LARGEST_BYTES)


def key_of(writer, number):
    return b"drill.%d.%d" % (writer, number)


def value_of(key):
    """Between 1 byte and 16 KiB, most of them small."""
    chosen = random.Random(key)
    size = min(LARGEST_BYTES, int(2 ** chosen.uniform(0, 14.1)))
    at = chosen.randrange(PATTERN_BYTES)
    return PATTERN[at:at + size]


View = ctypes.c_uint8 * 256  # larger than mc_view


class PutOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("timeout_ns", ctypes.c_uint64),
                ("parent", Slice), ("pin", ctypes.c_int), ("upsert", ctypes.c_uint32),
                ("pin_ttl_ms", ctypes.c_uint64), ("group", ctypes.c_void_p),
                ("replicas", ctypes.c_uint32), ("visibility", ctypes.c_int)]


VISIBLE_REPLICATED = 2


class Client(one_agent.Client):
    """With gets of known objects. Statuses are those of mc.h."""

    def __init__(self, library, socket, timeout_ns=0):
        super().__init__(library, socket, timeout_ns)
        self._buffer = ctypes.create_string_buffer(LARGEST_BYTES)

    def put_status(self, key, value):
        return self._libmc.mc_put(self._client, _slice(key), _slice(value), None)

    def upsert_replicated(self, key, value, hosts):
        """Replaces what is stored. Status 0: so many hosts hold the object."""
        options = PutOptions(struct_size=ctypes.sizeof(PutOptions), upsert=1, replicas=hosts,
                             visibility=VISIBLE_REPLICATED)
        return self._libmc.mc_put(self._client, _slice(key), _slice(value), ctypes.byref(options))

    def get(self, key):
        """(status, bytes)"""
        length = ctypes.c_size_t()
        status = self._libmc.mc_get(self._client, _slice(key), self._buffer,
                                    ctypes.c_size_t(LARGEST_BYTES), ctypes.byref(length))
        return status, self._buffer.raw[:length.value] if status == 0 else b""

    def remove(self, key):
        return self._libmc.mc_remove(self._client, _slice(key), ctypes.c_uint64(0))

    def hold(self, keys, reservations, group_items, session_bytes):
        """Holds a view of each key, reservations, an open group and session memory, for ever."""
        libmc, client = self._libmc, self._client
        for key in keys:
            self._check(libmc.mc_get_view(client, _slice(key), View()))
        for _ in range(reservations):
            self._check(libmc.mc_reserve(client, ctypes.c_uint64(100_000), ctypes.c_uint64(0),
                                         ctypes.byref(ctypes.c_void_p())))
        group = ctypes.c_void_p()
        self._check(libmc.mc_group_begin(client, ctypes.byref(group)))
        options = PutOptions(struct_size=ctypes.sizeof(PutOptions), group=group)
        for number in range(group_items):
            self._check(libmc.mc_put(client, _slice(b"of the group.%d" % number), _slice(b"value"),
                                     ctypes.byref(options)))
        self._check(libmc.mc_alloc(client, ctypes.c_size_t(session_bytes),
                                   ctypes.byref(ctypes.c_void_p())))

    def last_error(self):
        return self._libmc.mc_last_error().decode()


def _slice(data):
    return Slice(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))


class Writer:
    """A process that puts objects and reads its own again, at random, until the drill stops it."""

    def __init__(self, library, socket, number):
        self.number = number
        # A word is written at once. Struct.pack_into() writes zeros first, which a killed process leaves.
        self._words = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self._pid = os.fork()
        if self._pid == 0:
            one_agent.die_with_parent()
            try:
                self._work(library, socket)
            except BenchError as error:
                print(f"drills: writer {number}: {error}", file=sys.stderr)
            os._exit(1)

    def _work(self, library, socket):
        client = Client(library, socket)
        puts = gets = lost = wrong = 0
        chosen = random.Random(self.number)
        while True:
            key = key_of(self.number, puts)
            status = client.put_status(key, value_of(key))
            if status != 0:
                raise BenchError(f"put: {client.last_error()}")
            puts += 1
            old = key_of(self.number, chosen.randrange(puts))
            status, value = client.get(old)
            gets += 1
            lost += status != 0
            wrong += status == 0 and value != value_of(old)
            for word, count in enumerate((puts, gets, lost, wrong)):
                self._words[word] = count

    def counts(self):
        """(acknowledged puts, gets, lost objects, wrong bytes)"""
        return tuple(self._words[:COUNTERS])

    def alive(self):
        return os.waitpid(self._pid, os.WNOHANG) == (0, 0)

    def stop(self):
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)


def wait_for_progress(writers, timeout_s):
    """Until every writer has put an object more."""
    before = [writer.counts()[0] for writer in writers]
    deadline = time.monotonic() + timeout_s
    while any(writer.counts()[0] == count for writer, count in zip(writers, before, strict=True)):
        if time.monotonic() > deadline:
            raise BenchError(f"a writer made no progress within {timeout_s:.0f} s")
        if not all(writer.alive() for writer in writers):
            raise BenchError("a writer died")
        time.sleep(0.001)


def wait_until(holds, what):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {PATIENCE_S:.0f} s")
        time.sleep(0.01)  # between two looks


# ---- Scripts of drills --------------------------------------------------------------------------

def parser(text):
    """A parser of the common options, with the help that the lines of a script's docstring give."""
    title, _, *more = text.splitlines()
    result = one_agent.parser(title)
    result.epilog = "\n".join(more)
    result.formatter_class = argparse.RawDescriptionHelpFormatter
    return result


def run_drills(parser, drills, run):
    """Parses the command line and calls run(options, name) for each wanted drill. Returns the exit status."""
    parser.add_argument("drill", nargs="*", metavar="DRILL", help="only these drills")
    options = parser.parse_args()
    for name in options.drill:
        if name not in drills:
            parser.error(f"{name}: no such drill; there are {', '.join(drills)}")
    try:
        held = [run(options, name) for name in options.drill or drills]
    except (BenchError, RuntimeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0 if all(held) else 1
