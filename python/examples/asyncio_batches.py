# SPDX-License-Identifier: Apache-2.0
"""Puts and gets many blocks from coroutines. Needs an agent."""

import asyncio

import mckv

TASKS = 4
BLOCKS = 16
BLOCK_BYTES = 64 * 1024


async def work(pool: mckv.AsyncClient, task: int) -> int:
    names = [f"example/asyncio/{task}/{number}" for number in range(BLOCKS)]
    await pool.put_batch(names, [bytes([task]) * BLOCK_BYTES] * BLOCKS)
    buffers = [bytearray(BLOCK_BYTES) for _ in names]
    copied = await pool.get_into_batch(names, buffers)  # for each: bytes, or minus its status
    assert copied == [BLOCK_BYTES] * BLOCKS
    assert all(buffer == bytes([task]) * BLOCK_BYTES for buffer in buffers)
    return sum(copied)


async def main() -> None:
    # One descriptor in the event loop serves all tasks. Cancelling a task cancels its request.
    with mckv.Client() as client:
        async with client.asyncio() as pool:
            totals = await asyncio.gather(*(work(pool, task) for task in range(TASKS)))
            missing = await pool.get("example/asyncio/nothing", None)
            print(f"{TASKS} tasks read {sum(totals)} bytes; a miss gives {missing}")


if __name__ == "__main__":
    asyncio.run(main())
