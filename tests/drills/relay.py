#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forwards TCP connections and delays each byte, because not every kernel can delay packets.

usage: relay.py ADDRESS PORT TARGET_PORT DELAY_MS. The delay counts once each way. Ends with the signal.
"""

import asyncio
import contextlib
import sys

CHUNK_BYTES = 64 << 10
MOST_CHUNKS = 256  # under way, each way: 16 MiB


async def take(reader, under_way, delay_s):
    now = asyncio.get_running_loop().time
    chunk = b" "
    while chunk:
        try:
            chunk = await reader.read(CHUNK_BYTES)
        except OSError:
            chunk = b""
        await under_way.put((now() + delay_s, chunk))


async def give(writer, under_way):
    now = asyncio.get_running_loop().time
    while True:
        due, chunk = await under_way.get()
        await asyncio.sleep(due - now())  # the delay
        if not chunk:
            return writer.close()
        if not writer.is_closing():
            writer.write(chunk)
            with contextlib.suppress(OSError):
                await writer.drain()


async def forward(reader, writer, delay_s):
    """Ends when the reader has ended, and all bytes are through. The bytes for a closed writer are lost."""
    under_way = asyncio.Queue(MOST_CHUNKS)
    await asyncio.gather(take(reader, under_way, delay_s), give(writer, under_way))


async def serve(address, port, target_port, delay_s):
    async def accept(reader, writer):
        try:
            target_reader, target_writer = await asyncio.open_connection(address, target_port)
        except OSError:
            return writer.close()
        await asyncio.gather(forward(reader, target_writer, delay_s), forward(target_reader, writer, delay_s))

    async with await asyncio.start_server(accept, address, port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    address, port, target_port, delay_ms = sys.argv[1:]
    asyncio.run(serve(address, int(port), int(target_port), int(delay_ms) / 1e3))
