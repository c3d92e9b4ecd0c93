#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registers: objects that are replaced, removed and read on all hosts while a drill cuts and kills.

Each key is a register with one writer. The writer numbers its operations: every eighth is a removal, the
others put an object with that number. A put is acknowledged when two hosts hold the object, and a removal
when the call says that the object is gone, or that a host which is away drops the object. A file, which all
processes share, has the numbers of the operation that each writer has begun and of the last acknowledged one.

    writer   begun = n ──► put or removal ──► acknowledged = n
    reader   floor = acknowledged ──► get ──► ceiling = begun        floor <= number read <= ceiling

So each read is judged at once, without clocks: a lower number is a stale read or an object that came back, and
a higher number, or bytes that do not follow from key and number, are wrong. A miss counts if no removal can
explain it.

usage: registers.py write LIBRARY SOCKET FILE PROCESS WRITERS    the writer number PROCESS of so many
       registers.py read|audit LIBRARY SOCKET FILE PROCESS
"""

import enum
import json
import mmap
import os
import random
import struct
import sys
import time

import load

KEYS = 192
PROCESSES = 16
HEAD = struct.Struct("<QQ")  # key and number
REMOVAL_EVERY = 8
CALL_NS = 2_000_000_000
AUDIT_S = 30.0

OK, NOT_FOUND, HOLDER_AWAY = 0, 20, 23  # of mc.h


class Count(enum.IntEnum):
    CALLS = 0
    ACKNOWLEDGED = 1  # of writers
    FAILED = 2  # calls that ended otherwise: the outcome is unknown, or nothing was read
    MISSED = 3  # reads of an object that is there
    STALE = 4
    WRONG = 5
    PAUSED = 6  # not a count: the process has stopped at the order of the drill


class Shared:
    """The file that the drill and the processes share."""

    _BYTES = 8 * (1 + PROCESSES * len(Count) + 2 * KEYS)

    def __init__(self, path):
        fresh = not os.path.exists(path)
        self._file = open(path, "w+b" if fresh else "r+b")
        self._file.truncate(self._BYTES)
        # A word is written at once. Struct.pack_into() writes zeros first, which other processes may read.
        self._words = memoryview(mmap.mmap(self._file.fileno(), self._BYTES)).cast("Q")

    def _get(self, word):
        return self._words[word]

    def _set(self, word, value):
        self._words[word] = value

    @property
    def paused(self):
        return self._get(0) != 0

    def pause(self, on):
        self._set(0, int(on))

    def count(self, process, what):
        return self._get(1 + process * len(Count) + what)

    def set_count(self, process, what, value):
        self._set(1 + process * len(Count) + what, value)

    def add(self, process, what):
        self.set_count(process, what, self.count(process, what) + 1)

    def total(self, what):
        return sum(self.count(process, what) for process in range(PROCESSES))

    def begun(self, key):
        return self._get(1 + PROCESSES * len(Count) + 2 * key)

    def acknowledged(self, key):
        return self._get(2 + PROCESSES * len(Count) + 2 * key)

    def begin(self, key, number):
        self._set(1 + PROCESSES * len(Count) + 2 * key, number)

    def acknowledge(self, key, number):
        self._set(2 + PROCESSES * len(Count) + 2 * key, number)


def is_removal(number):
    return number % REMOVAL_EVERY == 0


def name_of(key):
    return b"register.%d" % key


def value_of(key, number):
    chosen = random.Random((key << 32) + number)
    size = int(2 ** chosen.uniform(4, 14))
    at = chosen.randrange(load.PATTERN_BYTES)
    return HEAD.pack(key, number) + load.PATTERN[at:at + size - HEAD.size]


class Process:
    def __init__(self, library, socket, path, index):
        self._shared, self._index = Shared(path), index
        self._client = load.Client(library, socket, timeout_ns=CALL_NS)
        self._chosen = random.Random(index)

    def run(self, step):
        """Calls step() for ever. Counts the Counts that step() returns."""
        shared = self._shared
        while True:
            if shared.paused:
                shared.set_count(self._index, Count.PAUSED, 1)
                time.sleep(0.005)  # no event tells of the end of the pause
                continue
            shared.set_count(self._index, Count.PAUSED, 0)
            shared.add(self._index, Count.CALLS)
            verdict = step()
            if verdict is not None:
                shared.add(self._index, verdict)
            if verdict == Count.FAILED:
                # A call to an agent that is not there fails at once, and would take the CPU of the other processes.
                time.sleep(0.002)

    # ---- Writers

    def write(self, writers):
        key = self._index + writers * self._chosen.randrange(KEYS // writers)
        number = self._shared.begun(key) + 1
        self._shared.begin(key, number)
        if is_removal(number):
            done = self._client.remove(name_of(key)) in (OK, NOT_FOUND, HOLDER_AWAY)
        else:
            done = self._client.upsert_replicated(name_of(key), value_of(key, number), 2) == OK
        if done:
            self._shared.acknowledge(key, number)
        return Count.ACKNOWLEDGED if done else Count.FAILED

    # ---- Readers

    def read(self):
        return self._judge(self._chosen.randrange(KEYS))

    def _judge(self, key):
        """Reads the key. Returns None if all is well, else a Count."""
        floor = self._shared.acknowledged(key)
        status, value = self._client.get(name_of(key))
        ceiling = self._shared.begun(key)
        verdict = self._verdict(key, floor, ceiling, status, value)
        if verdict in (Count.STALE, Count.WRONG):
            shown = HEAD.unpack_from(value)[1] if len(value) >= HEAD.size else "no number"
            print(f"{time.monotonic():.3f} {verdict.name} register {key}: {shown} read, "
                  f"{floor} acknowledged, {ceiling} begun", flush=True)
        return verdict

    def _verdict(self, key, floor, ceiling, status, value):
        if status == NOT_FOUND:
            explained = any(map(is_removal, range(floor, ceiling + 1))) or floor == 0
            return None if explained else Count.MISSED
        if status != OK:
            return Count.FAILED
        if len(value) < HEAD.size:
            return Count.WRONG
        of_key, number = HEAD.unpack_from(value)
        if of_key != key or number > ceiling or value != value_of(key, number):
            return Count.WRONG
        return Count.STALE if number < floor else None

    def audit(self):
        """Returns the registers that have neither the last acknowledged state nor a later one."""
        lost = []
        deadline = time.monotonic() + AUDIT_S
        for key in range(KEYS):
            verdict = self._judge(key)
            while verdict in (Count.MISSED, Count.FAILED) and time.monotonic() < deadline:
                time.sleep(0.02)  # between two tries: the cluster recovers, and no event tells when
                verdict = self._judge(key)
            if verdict is not None:
                lost.append({"register": key, "verdict": verdict.name})
        return lost


def main():
    what, library, socket, path, index, *writers = sys.argv[1:]
    process = Process(library, socket, path, int(index))
    if what == "write":
        process.run(lambda: process.write(int(writers[0])))
    elif what == "read":
        process.run(process.read)
    else:
        print(json.dumps(process.audit()))


if __name__ == "__main__":
    main()
