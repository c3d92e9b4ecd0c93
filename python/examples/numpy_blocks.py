# SPDX-License-Identifier: Apache-2.0
"""Stores KV blocks as NumPy arrays and reads them in place. Needs an agent."""

import mckv
import numpy as np

BLOCKS = 8
SHAPE = (2, 16, 64)  # keys and values, tokens, values per token


def main() -> None:
    with mckv.Client() as client:  # mckv.Client("embedded") needs no agent
        names = [f"example/numpy/{number}" for number in range(BLOCKS)]
        blocks = [np.full(SHAPE, number, "f4") for number in range(BLOCKS)]

        # One request for all blocks. Every client of this host finds them afterwards.
        client.put_batch(names, blocks)
        print("present:", client.exists_batch(names).count(True), "of", BLOCKS)

        # In place: the array is read-only memory of the pool, pinned while the array lives.
        array = client.view(names[3]).numpy("f4").reshape(SHAPE)
        assert (array == 3).all() and not array.flags.writeable

        # Copies into memory of the caller.
        room = [np.empty(SHAPE, "f4") for _ in names]
        client.get_into_batch(names, room)
        assert all((got == put).all() for got, put in zip(room, blocks, strict=True))

        # With its type and shape, as one object.
        client.put_tensor("example/tensor", blocks[5], upsert=True)
        tensor = client.get_tensor("example/tensor")
        assert tensor.shape == SHAPE and tensor.dtype == np.float32 and (tensor == 5).all()
        print("read:", array.nbytes * (BLOCKS + 2), "bytes, all equal")


if __name__ == "__main__":
    main()
