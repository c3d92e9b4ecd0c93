# SPDX-License-Identifier: Apache-2.0
"""SGLang HiCache on a host with no accelerator.

SGLang runs on the CPU, but its host KV pool pins memory through cudart and
copies pages with CUDA kernels.  Here both "device" and host pool are host
memory, so the copies are plain tensor copies.  Import this at the top of the
main module: SGLang's scheduler is a spawned process, which imports the main
module again before it unpickles its work.
"""
import torch
from sglang.srt.mem_cache.pool_host import common as _common
from sglang.srt.mem_cache.pool_host import mha as _mha


def _no_register(buffer, registration_granularity_bytes=None):
    setattr(buffer, getattr(_common, "_CUDA_HOST_REGISTERED_RANGES_ATTR", "_ranges"), [])


def _host_rows(pool, which, layer):
    """The host buffer of one layer as [tokens, heads, dim] (a view)."""
    b = pool.kv_buffer[which]
    if pool.layout == "layer_first":
        return b[layer]
    if pool.layout == "page_first":
        return b[:, layer]
    if pool.layout == "page_first_direct":
        return None
    raise ValueError(pool.layout)


def _load(self, device_pool, host_indices, device_indices, layer_id, io_backend, *, is_draft=False):
    if not 0 <= layer_id < self.layer_num:
        return
    h, d = host_indices.cpu(), device_indices.cpu()
    for which, dev in ((0, self.device_k_buffers[layer_id]), (1, self.device_v_buffers[layer_id])):
        if self.layout == "page_first_direct":
            ps = self.page_size
            dev[d] = self.kv_buffer[which][h // ps, layer_id, h % ps]
        else:
            dev[d] = _host_rows(self, which, layer_id)[h]


def _backup(self, device_pool, host_indices, device_indices, io_backend):
    h, d = host_indices.cpu(), device_indices.cpu()
    for layer in range(self.layer_num):
        for which, dev in ((0, self.device_k_buffers[layer]), (1, self.device_v_buffers[layer])):
            if self.layout == "page_first_direct":
                ps = self.page_size
                self.kv_buffer[which][h // ps, layer, h % ps] = dev[d]
            else:
                _host_rows(self, which, layer)[h] = dev[d]


def _dummy_page(self):
    return torch.zeros(
        (2, self.layer_num, self.page_size, self.head_num, self.head_dim), dtype=self.dtype
    ).flatten()


if not torch.cuda.is_available():
    _mha.MHATokenToKVPoolHost.get_dummy_flat_data_page = _dummy_page
    _common._cuda_host_register = _no_register
    _mha.MHATokenToKVPoolHost.load_to_device_per_layer = _load
    _mha.MHATokenToKVPoolHost.backup_from_device_all_layer = _backup
