# SPDX-License-Identifier: Apache-2.0
"""Threads under load, memory that stays flat, the interpreter's lock let go."""

import gc
import os
import threading
import time

import mckv
import pytest


def own_bytes():
    """Resident memory of this process alone; the pool's pages are everybody's."""
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("RssAnon")).split()[1]) * 1024


def value_of(name, maker, size):
    head = b"%s/%d/" % (name.encode(), maker)
    return (head * (size // len(head) + 1))[:size]


def test_threads_read_only_whole_values(client, key, long):
    names = [key(i) for i in range(50)]
    makers = {name: i for i, name in enumerate(names)}
    wrong, failures = [], []

    def work(me):
        try:
            buffer = bytearray(40000)
            for round in range(20000 if long else 1000):
                number = (round * 7919 + me * 104729) % 50
                name, size = names[number], 100 + (round * 31) % 30000
                match round % 5:
                    case 0:
                        client.put(name, value_of(name, makers[name], size), upsert=True)
                    case 1:
                        client.remove(name)
                    case 2:
                        got = client.get(name, None)
                        if got and got != value_of(name, makers[name], len(got)):
                            wrong.append(name)
                    case 3:
                        view = client.view(name, None)
                        if view and bytes(view) != value_of(name, makers[name], len(view)):
                            wrong.append(name)
                    case _:
                        try:
                            length = client.get_into(name, buffer)
                        except mckv.NotFoundError:
                            continue
                        if buffer[:length] != value_of(name, makers[name], length):
                            wrong.append(name)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not failures


def test_a_client_may_be_closed_under_calls(client, key):
    client.put(key, b"v" * 100000)
    ended = []

    def work():
        buffer = bytearray(100000)
        try:
            while True:
                client.get_into(key, buffer)
                client.put(key(1), buffer, upsert=True)
        except mckv.ClosedError:
            ended.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    client.close()
    for thread in threads:
        thread.join()
    assert len(ended) == 4


def test_other_threads_run_while_a_call_waits(make_agent, key):
    import signal

    agent = make_agent()
    client = mckv.Client(agent.socket)
    client.put(key, b"v" * 100)
    agent.send(signal.SIGSTOP)
    try:
        outcome = []

        def wait():
            try:
                client.put(key(1), b"v" * 100000, timeout=1)
            except mckv.DeadlineError as error:
                outcome.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        turns = 0
        while thread.is_alive():
            assert client.get(key) == b"v" * 100
            turns += 1
        thread.join()
        assert len(outcome) == 1 and turns > 100
    finally:
        agent.send(signal.SIGCONT)


@pytest.mark.watchdog(7200)
def test_memory_stays_flat(client, key, long):
    """Every kind of call, failures too; the long form does 10 million."""
    value = os.urandom(3000)
    buffer = bytearray(3000)
    names = [key(i) for i in range(4)]

    def round_of_16():
        client.put(names[0], value, upsert=True)
        client.put_batch(names[:2], [value, [value, value]])
        client.get(names[0])
        client.get_into(names[0], buffer)
        client.get_into_batch(names, [buffer] * 4)
        memoryview(client.view(names[0])).release()
        client.view(names[0]).spans()
        client.get(names[3], None)
        client.exists_batch(names)
        client.stat_batch(names)
        client.remove(names[1])
        client.ping()
        with client.group() as group:
            group.put(names[1], value, upsert=True)
        client.reserve(100).abandon()
        client.alloc(100)
        try:
            client.get_into(names[0], bytearray(1))
        except mckv.BufferTooSmallError:
            pass

    rounds = 625_000 if long else 3000
    for _ in range(1000):
        round_of_16()
    gc.collect()
    before = own_bytes()
    for _ in range(rounds):
        round_of_16()
    gc.collect()
    grown = own_bytes() - before
    assert grown < (8 << 20), f"{grown} bytes"
