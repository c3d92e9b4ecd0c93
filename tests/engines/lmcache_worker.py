# SPDX-License-Identifier: Apache-2.0
"""One LMCacheEngine with LMCache's own mooncakestore connector, run by lmcache_store.

    lmcache_worker.py store|retrieve META   META: 1 with chunk metadata (put_parts, batch_get_buffer),
                                            0 without (batch_put_from, batch_get_into)

The KV tensors are functions of the tokens, so the second process knows what it must read back.
Prints one line of JSON.
"""

import json
import os
import sys
import time

import torch
from lmcache.v1.cache_engine import LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache_copies import HostCopies

LAYERS, HEADS, SIDE, CHUNK, TOKENS = 4, 2, 32, 64, 256


class HostConnector(HostCopies):
    """The engine's KV memory is an ordinary host tensor: [2, layers, tokens, heads * side]."""

    def get_shape(self, num_tokens):
        return torch.Size([2, LAYERS, num_tokens, HEADS * SIDE])

    def from_gpu(self, memory_obj, start, end, **kwargs):
        memory_obj.tensor.copy_(kwargs["kv"][:, :, start:end])

    def to_gpu(self, memory_obj, start, end, **kwargs):
        kwargs["kv"][:, :, start:end].copy_(memory_obj.tensor)


def kv_of(tokens):
    generator = torch.Generator().manual_seed(int(tokens.sum()))
    shape = (2, LAYERS, len(tokens), HEADS * SIDE)
    return torch.randn(shape, generator=generator).to(torch.bfloat16)


def main():
    verb, chunk_meta = sys.argv[1], sys.argv[2] == "1"
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=CHUNK, local_cpu=False, max_local_cpu_size=0.2,
        remote_url="mooncakestore://127.0.0.1:50051/", remote_serde="naive",
        extra_config={
            "mooncake_local_hostname": "127.0.0.1",
            "mooncake_metadata_server": "P2PHANDSHAKE",
            "mooncake_protocol": "tcp",
            "mooncake_master_server_addr": "127.0.0.1:50051",
            "mooncake_global_segment_size": str(64 << 20),
            "mooncake_local_buffer_size": str(64 << 20),
            "save_chunk_meta": chunk_meta,
        },
    )
    metadata = LMCacheMetadata(
        model_name=f"tiny-{chunk_meta}", world_size=1, local_world_size=1, worker_id=0,
        local_worker_id=0, kv_dtype=torch.bfloat16, kv_shape=(LAYERS, 2, CHUNK, HEADS, SIDE),
        role="worker",
    )
    engine = LMCacheEngineBuilder.get_or_create(
        "tests", config, metadata, HostConnector(), lambda tensor, rank: None,
        lambda thing, rank: thing)
    if hasattr(engine, "post_init"):
        engine.post_init()
    tokens = torch.arange(1000, 1000 + TOKENS)
    wanted = kv_of(tokens)
    if verb == "store":
        engine.store(tokens, kv=wanted)
        deadline = time.monotonic() + 30
        while engine.lookup(tokens) < TOKENS and time.monotonic() < deadline:
            time.sleep(0.1)
        result = {"found": engine.lookup(tokens), "unknown": engine.lookup(tokens + 1)}
    else:
        into = torch.zeros_like(wanted)
        found = engine.lookup(tokens)
        mask = engine.retrieve(tokens, kv=into)
        result = {"found": found, "retrieved": int(mask.sum()), "equal": torch.equal(into, wanted)}
    print("@@ " + json.dumps(result), flush=True)
    os._exit(0)  # LMCache's threads would wait for an engine that is not there


if __name__ == "__main__":
    main()
