# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCache storage on the pool of this host.

    --hicache-storage-backend dynamic --hicache-mem-layout page_first
    --hicache-storage-backend-extra-config '{"backend_name": "mckv", "module_path": "mckv.sglang",
        "class_name": "MckvHiCache", "interface_v1": 1}'

A page is one object with keys and values. A page names the page before, so a prefix is never
evicted before its extensions. Further extra config: agent, namespace, prefix, timeout_seconds,
weights_version_file (a file with the name of the weights' version: engines share pages only under
equal names).
Any thread may call. Bytes move between SGLang's host memory and the pool in one copy.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from mckv._engine_pool import Keys, Pool

_FORMAT = 1  # of the objects


class MckvHiCache(HiCacheStorage):  # type: ignore[misc]
    """SGLang creates this class with the storage config and registers the host memory."""

    def __init__(self, storage_config: Any, kwargs: dict[str, Any] | None = None) -> None:
        extra = dict(storage_config.extra_config or {})
        if storage_config.should_split_heads or storage_config.dcp_size > 1:
            raise ValueError(
                "mckv.sglang: pages that are split by heads or context are not supported; use the "
                "backend mooncake with mckv-mooncake"
            )
        self._config, self._extra = storage_config, extra
        self._pool = Pool(
            extra.get("agent"),
            extra.get("namespace"),
            "sglang",
            float(extra.get("timeout_seconds", 0.5)),
        )
        self._keys: Keys | None = None

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Fixes the fingerprint: all properties by which pages of two engines may differ."""
        super().register_mem_pool_host(mem_pool_host)
        config = self._config
        ranks = (config.pp_rank, config.pp_size)
        what = {
            "format": _FORMAT, "model": config.model_name, "mla": config.is_mla_model,
            # All ranks of an MLA model hold the same KV.
            "ranks": ranks if config.is_mla_model else (config.tp_rank, config.tp_size, *ranks),
            "page": mem_pool_host.page_size, "dtype": mem_pool_host.dtype,
            "layout": mem_pool_host.layout, "size": mem_pool_host.size_per_token,
        }  # fmt: skip
        self._keys = Keys(
            str(self._extra.get("prefix", "sglang")), what, self._extra.get("weights_version_file")
        )

    def _names(self, keys: list[str]) -> list[bytes]:
        assert self._keys is not None, "register_mem_pool_host() comes first"
        return [self._keys.of(key.encode()) for key in keys]

    def _pieces(self, count: int, indices: torch.Tensor) -> tuple[list[list[int]], list[list[int]]]:
        """Addresses and sizes of the pieces of each page."""
        pointers, sizes = self.mem_pool_host.get_page_buffer_meta(indices)
        each = len(pointers) // count
        if each * count != len(pointers) or each == 0:
            raise ValueError(f"mckv.sglang: {len(pointers)} pieces of {count} pages")
        cut = range(0, len(pointers), each)
        return [pointers[i : i + each] for i in cut], [sizes[i : i + each] for i in cut]

    # ---- Pages ---------------------------------------------------------------------------------

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        return self._pool.leading(self._names(keys))

    def batch_get_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
    ) -> list[bool]:
        return self._pool.read(self._names(keys), *self._pieces(len(keys), host_indices))

    def batch_set_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
    ) -> list[bool]:
        names = self._names(keys)
        before = getattr(extra_info, "prefix_keys", None)
        first = self._names(before[-1:])[0] if before else None
        addresses, sizes = self._pieces(len(keys), host_indices)
        return self._pool.put(names, addresses, sizes, [first, *names[:-1]])

    # ---- Tensors, one by one: SGLang without interface_v1 --------------------------------------

    def exists(self, key: str) -> bool:
        return self._pool.leading(self._names([key])) == 1

    def get(
        self, key: str, target_location: Any = None, target_sizes: Any = None
    ) -> torch.Tensor | None:
        if target_location is None:
            return None
        size = target_location.numel() * target_location.element_size()
        address = target_location.data_ptr()
        good = self._pool.read(self._names([key]), [[address]], [[size]])[0]
        return target_location if good else None

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        targets = target_locations or [None] * len(keys)
        return [self.get(key, one) for key, one in zip(keys, targets, strict=True)]

    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool:
        data = value.contiguous()
        size = data.numel() * data.element_size()
        return self._pool.put(self._names([key]), [[data.data_ptr()]], [[size]], [None])[0]

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        return all([self.set(key, value) for key, value in zip(keys, values, strict=True)])

    def clear(self) -> None:
        """No older page is ever loaded again. The pages stay in the pool until they are evicted.

        SGLang calls this for POST /clear_hicache_storage_backend, which belongs to each update of
        the weights.
        """
        if self._keys is not None:
            self._keys.renew()

    def close(self) -> None:
        self._pool.close()
