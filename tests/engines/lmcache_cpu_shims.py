# SPDX-License-Identifier: Apache-2.0
"""LMCache's vLLM connector on a machine without an accelerator: kv_connector_module_path.

LMCache copies between vLLM's blocks and its own memory on accelerators only. Here both are host
memory, and the copies are tensor copies. All else of LMCache is unmodified.
"""

import lmcache.v1.gpu_connector
import torch
from lmcache_copies import HostCopies
from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import (
    LMCacheConnectorV1 as _LMCacheConnectorV1,
)


class CpuConnector(HostCopies):
    """LMCache's memory is [2, layers, tokens, heads * size]."""

    def __init__(self, layers, heads, size):
        self._layers, self._heads, self._size = layers, heads, size

    def get_shape(self, num_tokens):
        return torch.Size([2, self._layers, num_tokens, self._heads * self._size])

    def _pairs(self, memory_obj, start, end, kvcaches, slot_mapping, **_):
        """(rows of vLLM's blocks, their place, LMCache's rows), for keys and values of each layer.

        vLLM's layer on the CPU is [blocks, heads, tokens of a block, size of keys + of values].
        """
        slots = slot_mapping[start:end].cpu()
        for layer, cache in enumerate(kvcaches):
            place = (slots // cache.shape[2], slice(None), slots % cache.shape[2])
            for which, rows in enumerate(cache.split(self._size, dim=3)):
                memory = memory_obj.tensor[which, layer].view(-1, self._heads, self._size)
                yield rows, place, memory

    def from_gpu(self, memory_obj, start, end, **kwargs):
        for rows, place, memory in self._pairs(memory_obj, start, end, **kwargs):
            memory.copy_(rows[place])

    def to_gpu(self, memory_obj, start, end, **kwargs):
        for rows, place, memory in self._pairs(memory_obj, start, end, **kwargs):
            rows[place] = memory


def create(config, metadata, engine, *args, **kwargs):
    layers, _, _, heads, size = metadata.kv_shape
    return CpuConnector(layers, heads, size)


if not torch.cuda.is_available():
    lmcache.v1.gpu_connector.CreateGPUConnector = create


class LMCacheConnectorV1(_LMCacheConnectorV1):
    pass
