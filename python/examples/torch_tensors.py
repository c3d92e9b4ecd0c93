# SPDX-License-Identifier: Apache-2.0
"""Stores a torch tensor whole and in shards, and reads both. Needs an agent and torch."""

import sys

import mckv

try:
    import torch
except ImportError:
    sys.exit("this example needs torch; install it with: pip install torch")

RANKS = 4


def main() -> None:
    weights = torch.arange(4096, dtype=torch.bfloat16).reshape(64, 64)
    with mckv.Client() as client:
        # The object holds the bytes, the type and the shape.
        client.put_tensor("example/torch", weights, upsert=True)
        seen = client.get_tensor("example/torch", like="torch")  # read-only, in place
        assert torch.equal(seen, weights)
        own = torch.empty_like(weights)
        client.get_tensor_into("example/torch", own)  # a copy, into memory of the caller
        assert torch.equal(own, weights)

        # One shard per rank of tensor parallelism, all visible together or not at all.
        client.put_sharded("example/sharded", weights, tp_size=RANKS, upsert=True)
        shards = [
            client.get_tensor("example/sharded", like="torch", tp_rank=rank, tp_size=RANKS)
            for rank in range(RANKS)
        ]
        assert torch.equal(torch.cat(shards), weights)
        print(f"read {weights.nbytes} bytes whole, in a copy and in {RANKS} shards, all equal")


if __name__ == "__main__":
    main()
