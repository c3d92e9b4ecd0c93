# SPDX-License-Identifier: Apache-2.0
"""The asyncio forms: one descriptor in the loop, cancel cancels, errors as in the others."""

import asyncio
import signal

import mckv
import pytest
from machine import WATCHDOG_S


def run(main):
    return asyncio.run(asyncio.wait_for(main, WATCHDOG_S))


def test_put_and_get(client, key):
    async def main():
        async with client.asyncio() as pool:
            await pool.put(key, b"value")
            assert await pool.get(key) == b"value"
            assert await pool.exists(key)
            buffer = bytearray(10)
            assert await pool.get_into(key, buffer) == 5 and buffer[:5] == b"value"
            assert pool.view(key).tobytes() == b"value"
            await pool.put(key, b"other", upsert=True)
            assert await pool.get(key) == b"other"
            assert await pool.remove(key) and not await pool.remove(key)
            with pytest.raises(mckv.NotFoundError):
                await pool.get(key)
            assert await pool.get(key, None) is None
            with pytest.raises(mckv.NotFoundError):
                await pool.get_into(key, buffer)
            with pytest.raises(mckv.InvalidArgumentError):
                await pool.put("", b"v")
            with pytest.raises(TypeError):
                await pool.put(key, 5)
        with pytest.raises(mckv.ClosedError):
            await pool.put(key, b"v")

    run(main())


def test_many_at_once(client, key):
    async def main():
        async with client.asyncio() as pool:
            values = [b"%d" % i * (1 + i % 3000) for i in range(2000)]
            await asyncio.gather(*(pool.put(key(i), v) for i, v in enumerate(values)))
            got = await asyncio.gather(*(pool.get(key(i)) for i in range(2000)))
            assert got == values
            await pool.put_batch([key("a"), key("b")], [b"a", b"b"])
            buffers = [bytearray(5), bytearray(5), bytearray(5)]
            lengths = await pool.get_into_batch([key("a"), key("none"), key("b")], buffers)
            assert lengths == [1, -mckv.Status.NOT_FOUND, 1]

    run(main())


def test_the_loop_goes_on_while_requests_wait_and_cancel_ends_them(make_agent, key):
    agent = make_agent()
    client = mckv.Client(agent.socket)

    async def main():
        async with client.asyncio() as pool:
            await pool.put(key(0), b"v" * 100)
            agent.send(signal.SIGSTOP)
            try:
                tasks = [asyncio.create_task(pool.put(key(i), b"v" * 9000)) for i in range(1, 30)]
                done, _ = await asyncio.wait(tasks, timeout=0.3)
                assert not done
                assert await pool.get(key(0)) == b"v" * 100  # a local hit asks nobody
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(isinstance(one, asyncio.CancelledError) for one in results)
                with pytest.raises(mckv.DeadlineError):
                    await pool.put(key(99), b"v" * 9000, timeout=0.2)
            finally:
                agent.send(signal.SIGCONT)
            await pool.put(key(100), b"after")
            for i in range(1, 30):  # whole or absent
                assert await pool.get(key(i), None) in (None, b"v" * 9000)

    run(main())


def test_closing_ends_what_waits(make_agent, key):
    agent = make_agent()
    client = mckv.Client(agent.socket)

    async def main():
        pool = client.asyncio()
        agent.send(signal.SIGSTOP)
        try:
            task = asyncio.create_task(pool.put(key, b"v" * 9000, timeout=WATCHDOG_S))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(lambda: None)
            agent.send(signal.SIGCONT)
            pool.close()
            with pytest.raises((mckv.ClosedError, mckv.CancelledError)):
                await task
        finally:
            agent.send(signal.SIGCONT)
        pool.close()

    run(main())


def test_a_restarted_agent_is_followed(make_agent, key):
    agent = make_agent()
    client = mckv.Client(agent.socket, timeout=WATCHDOG_S)

    async def main():
        async with client.asyncio() as pool:
            await pool.put(key(0), b"before")
            agent.end(signal.SIGKILL)
            waiting = asyncio.create_task(pool.put(key(1), b"meanwhile" * 1000))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(agent.start)
            await waiting
            assert await pool.get(key(0)) == b"before"
            assert await pool.get(key(1)) == b"meanwhile" * 1000

    run(main())
