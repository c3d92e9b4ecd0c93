# SPDX-License-Identifier: Apache-2.0
"""Random arguments of every kind to every method: nothing may end the interpreter.

    random_calls.py SEED CALLS

A program of its own, run by test_bad_input.py: what it looks for would end pytest.
"""

import faulthandler
import random
import sys

import mckv
import mckv._native as native

# Calls whose addresses engines vouch for; calls with ranges check addresses first.
ADDRESSES = {"put_addresses", "get_addresses", "get_address", "copy_ranges", "write_ranges"}
KEYWORDS = (
    "timeout pin pin_ttl parent upsert parents offset length default key value keys values "
    "offsets addresses sizes size buffer buffers question"
).split()


def objects(client):
    client.put("k", b"v" * 5000)  # one of the calls may have removed it
    return [
        client,
        client.view("k"),
        client.reserve(100),
        client.group(),
        client.alloc(100),
        native.AddressRanges(),
        native.Queue(client),
        native.BufferHandle(b"x"),
        mckv.TensorHeader("int8", (3,)),
    ]


def main():
    faulthandler.enable()
    chance = random.Random(int(sys.argv[1]))
    client = mckv.Client("embedded", config={"pool_bytes": "64MiB"}, timeout=0.1)
    client.put("k", b"v" * 5000)
    view = client.view("k")
    values = [
        None, 0, 1, -1, 1 << 31, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 70, -(1 << 65), True,
        1.5, -0.0, float("nan"), float("inf"), "", "k", "x" * 2000, "\ud800", "a\0b",
        b"", b"k", b"z" * 2000, bytearray(b"k"), memoryview(b"abc"), memoryview(b"abcd")[::2],
        [], ["k"], [b"k", None], [["k"]], ("k",), {}, {"k": 1}, object(), iter(["k"]), range(5),
        [1, 2], [[1], [2]], [0], [[0]], [[1 << 64]], [float("nan")], ["k"] * 1100, [b"x"] * 1100,
        view, memoryview(view), mckv.Pin.HARD, client, int, lambda: 0, {"k"}, Ellipsis,
    ]  # fmt: skip
    raised = done = 0
    for number in range(int(sys.argv[2])):
        if number % 50 == 0:
            targets = objects(client)
        target = chance.choice(targets)
        names = [
            name
            for name in dir(type(target))
            if name not in ("close", "torch")
            and not (target is client and name == "__exit__")
            and (not name.startswith("_") or name in ("__enter__", "__exit__", "__len__"))
            and callable(getattr(type(target), name, None))
        ]
        name = chance.choice(names)
        arguments = [chance.choice(values) for _ in range(chance.randint(0, 4))]
        keywords = {}
        if chance.random() < 0.4:
            picked = chance.sample(KEYWORDS, chance.randint(1, 3))
            keywords = {word: chance.choice(values) for word in picked}
        if name in ADDRESSES:
            keywords["ranges"] = native.AddressRanges()
        try:
            getattr(target, name)(*arguments, **keywords)
            done += 1
        except Exception:
            raised += 1
    targets = values = view = target = arguments = keywords = None
    client.put("k", b"v", upsert=True)
    assert client.get("k") == b"v"
    print(f"{raised} raised, {done} went well")


if __name__ == "__main__":
    main()
