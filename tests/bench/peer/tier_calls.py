# SPDX-License-Identifier: Apache-2.0
"""Puts objects, or reads them from the disk, with the mooncake.store of this Python; one JSON line.

Used by `tier_compare`, for Mooncake's wheel and for ours. A value follows from its number, so that
another process can check each byte.
"""

import argparse
import ctypes
import json
import os
import random
import time

PUT_BYTES, PUT_PAUSE_S = 4 << 20, 0.05  # of a batch of puts; at most 80 MiB a second
PUT_LIMIT_S, PUT_TURNS, RETRY_S = 90.0, 5, 0.1
QUIET_S, QUIET_LIMIT_S = 3.0, 30.0
ASK = 500  # keys in a question
ORDER = 7  # seed of the order of the reads


def value(number, size):
    return random.Random(number).randbytes(size)


def allocated(folder):
    """The bytes on the disk."""
    found = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    return sum(os.stat(path).st_blocks * 512 for path in found if os.path.exists(path))


def drop_cache(folder):
    """Drops the pages that the kernel keeps of the folder's files; needs no rights."""
    for at, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(at, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def held(store, keys):
    """One bool a key."""
    return [code == 1 for at in range(0, len(keys), ASK)
            for code in store.batch_is_exist(keys[at:at + ASK])]


class Calls:
    def __init__(self, options, store):
        self.options, self.store, self.size = options, store, options.size
        self.keys = [f"{self.size}.{number}" for number in range(options.count)]
        self.room = max(PUT_BYTES, self.size * max(options.batches))
        self.buffer = ctypes.create_string_buffer(self.room)
        self.at = ctypes.addressof(self.buffer)
        assert store.register_buffer(self.at, self.room) == 0

    def put_some(self, numbers, deadline):
        """A pool without room refuses puts until objects are on the disk."""
        places = {}
        for i, number in enumerate(numbers):
            places[number] = self.at + i * self.size
            ctypes.memmove(places[number], value(number, self.size), self.size)
        while numbers:
            codes = self.store.batch_put_from([self.keys[number] for number in numbers],
                                              [places[number] for number in numbers],
                                              [self.size] * len(numbers))
            numbers = [number for number, code in zip(numbers, codes, strict=True) if code != 0]
            if numbers and time.monotonic() > deadline:
                raise SystemExit(f"tier_calls: puts are refused for long: {sorted(set(codes))}")
            # A refused put has no event to wait for. The other pause keeps the pace of the puts.
            time.sleep(RETRY_S if numbers else PUT_PAUSE_S)

    def put(self):
        """Puts all objects, and again those that both disk and memory lost."""
        missing, turns = list(range(self.options.count)), 0
        start = time.monotonic()
        while missing and turns < PUT_TURNS:
            turns += 1
            step = max(1, PUT_BYTES // self.size)
            for at in range(0, len(missing), step):
                self.put_some(missing[at:at + step], start + PUT_LIMIT_S)
            self.wait_until_quiet()
            found = held(self.store, self.keys)
            missing = [number for number, good in enumerate(found) if not good]
        return {"held": self.options.count - len(missing), "turns": turns,
                "put_s": time.monotonic() - start}

    def wait_until_quiet(self):
        """Until the disk's files have not grown for a while."""
        end = time.monotonic() + QUIET_LIMIT_S
        last, since = -1, time.monotonic()
        while time.monotonic() < min(end, since + QUIET_S):
            now = allocated(self.options.disk)
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.1)  # Mooncake's writer tells nobody that it has written

    def read(self):
        """Each object once, in a random order; each size of a batch gets a share of the objects."""
        order = list(range(self.options.count))
        random.Random(ORDER).shuffle(order)
        order = order[:self.options.sample or len(order)]
        shares = len(self.options.batches)
        result = {"asked": len(order), "exist": 0, "good": 0, "missing": 0, "wrong": 0, "codes": {},
                  "rates": {}}
        result["exist"] = sum(held(self.store, [self.keys[number] for number in order]))
        for share, batch in enumerate(self.options.batches):
            drop_cache(self.options.disk)
            numbers, good, spent = order[share::shares], 0, 0.0
            for at in range(0, len(numbers), batch):
                some = numbers[at:at + batch]
                ctypes.memset(self.at, 0, batch * self.size)
                keys = [self.keys[number] for number in some]
                places = [self.at + i * self.size for i in range(len(some))]
                sizes = [self.size] * len(some)
                start = time.perf_counter()
                codes = self.store.batch_get_into(keys, places, sizes)
                spent += time.perf_counter() - start
                for number, place, code in zip(some, places, codes, strict=True):
                    if code != self.size:
                        result["missing"] += 1
                        result["codes"][code] = result["codes"].get(code, 0) + 1
                    elif ctypes.string_at(place, self.size) == value(number, self.size):
                        good += 1
                    else:
                        result["wrong"] += 1
                if spent > self.options.limit_s:
                    raise SystemExit(f"tier_calls: reads took more than {self.options.limit_s} s")
            result["good"] += good
            result["rates"][batch] = good / spent
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("put", "read"))
    parser.add_argument("--master", default="127.0.0.1:50051")
    parser.add_argument("--pool", type=int, default=128 << 20)
    parser.add_argument("--disk", required=True, help="the folder with the files of the tier")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--sample", type=int, default=0, help="read so many objects; 0: all")
    parser.add_argument("--batches", default="32",
                        type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--limit-s", type=float, default=120.0)
    options = parser.parse_args()
    import mooncake.store

    store = mooncake.store.MooncakeDistributedStore()
    start = time.monotonic()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", options.pool, 64 << 20, "tcp", "",
                       options.master, enable_ssd_offload=True, ssd_offload_path=options.disk)
    if code != 0:
        raise SystemExit(f"tier_calls: setup: {code}")
    calls = Calls(options, store)
    result = {"module": mooncake.store.__file__, "setup_s": time.monotonic() - start}
    result |= calls.put() if options.step == "put" else calls.read()
    print(json.dumps(result), flush=True)
    store.close()


if __name__ == "__main__":
    main()
