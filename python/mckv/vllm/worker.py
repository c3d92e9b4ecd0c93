# SPDX-License-Identifier: Apache-2.0
"""Copies between vLLM's paged KV and the pool.

An object is one block: all layers in order, each a contiguous [heads, tokens, elements].

Loads: the worker first pins all views of a step, so missing blocks are known before the first copy.
A thread then copies layer by layer while the model computes earlier layers; attention waits for its
layer. Pins end with the step. Blocks beyond MAX_VIEWS are copied at once.

Saves: after the forward pass, the worker puts the blocks that this step completed, directly from
vLLM's memory if that is host memory. The worker saves no block that depends on a failed load until
that block has been computed, because attention has read wrong KV.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from mckv._engine_pool import Pool
from mckv.vllm.scheduler import Step, Work

logger = logging.getLogger("mckv.vllm")

MAX_VIEWS = 768  # a thread may hold 1,023 views


@dataclasses.dataclass
class Counts:
    """Counts since vLLM's last request."""

    loaded_blocks: int = 0
    loaded_bytes: int = 0
    load_seconds: float = 0.0
    failed_blocks: int = 0
    saved_blocks: int = 0
    saved_bytes: int = 0
    save_seconds: float = 0.0
    unsaved_blocks: int = 0

    def loaded(self, blocks: int, size: int) -> None:
        self.loaded_blocks += blocks
        self.loaded_bytes += size

    def saved(self, blocks: int, size: int, unsaved: int) -> None:
        self.saved_blocks += blocks
        self.saved_bytes += size
        self.unsaved_blocks += unsaved


class _Layer:
    """One layer's KV: [blocks, heads, tokens, elements]."""

    def __init__(self, name: str, kv: torch.Tensor, at: int) -> None:
        self.name, self.kv, self.at = name, kv, at
        self.shape = kv.shape[1:]
        self.bytes = kv[0].numel() * kv.element_size()
        # A block's bytes in memory equal the object's bytes, so the copy needs no tensor.
        self.plain = kv.device.type == "cpu" and kv[0].is_contiguous()
        self._stride: int = kv.stride(0) * kv.element_size()
        self._start: int = kv.data_ptr()

    def address(self, block: int) -> int:
        return self._start + block * self._stride

    def read(self, view: Any, block: int) -> None:
        if self.plain and view.span_count == 1:
            if not view.copy_ranges([self.address(block)], [self.bytes], [self.at]):
                raise ValueError("a block's object is too short")
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            data = memoryview(view if view.span_count == 1 else view.tobytes())
            flat = torch.frombuffer(data[self.at : self.at + self.bytes], dtype=torch.uint8)
        self.kv[block].copy_(flat.view(self.kv.dtype).view(self.shape))


class WorkerSide:
    """Belongs to the worker's thread; owns one thread for loads."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.counts = Counts()
        self._layers: list[_Layer] = []
        self._block_bytes = 0
        self._loader = ThreadPoolExecutor(1, "mckv-load")
        self._copied: dict[str, threading.Event] = {}
        self._loading: Future[None] | None = None
        self._failed: set[int] = set()  # failed blocks of this step, to report
        self._suspect: set[int] = set()  # failed blocks that no step has computed since
        self._began = 0.0

    def register(self, caches: dict[str, torch.Tensor], num_blocks: int) -> None:
        """vLLM's KV tensors by layer, in the order of the model."""
        self._layers, at = [], 0
        for name, cache in caches.items():
            if not isinstance(cache, torch.Tensor):
                raise ValueError(f"mckv.vllm: layer {name} has no single KV tensor")
            # Kernels may use smaller blocks than vLLM's manager: several form one block.
            whole = cache.shape[0] == num_blocks
            blocks = cache if whole else cache.unflatten(0, (num_blocks, -1))
            self._layers.append(_Layer(name, blocks, at))
            at += self._layers[-1].bytes
        self._block_bytes = at

    # ---- Loads ---------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        """Before the forward pass."""
        self.finish_loads()
        pairs: list[tuple[Any, int]] = []
        for load in step.loads:
            found = self._pool.views(load.keys[: MAX_VIEWS - len(pairs)])
            early = len(found)
            good = self._usable(found, load.keys[:early], load.block_ids[:early])
            pairs += good
            for start in range(early, len(load.keys), MAX_VIEWS // 4):
                keys = load.keys[start : start + MAX_VIEWS // 4]
                rest = self._pool.views(keys)
                blocks = load.block_ids[start : start + len(keys)]
                for view, block in self._usable(rest, keys, blocks):
                    self._copy_whole(view, block)
                del rest
        self._suspect |= self._failed
        if not pairs:
            return
        self._began = time.monotonic()
        self._copied = {layer.name: threading.Event() for layer in self._layers}
        self._loading = self._loader.submit(self._copy, pairs)

    def _usable(
        self, views: list[Any], keys: list[bytes], blocks: list[int]
    ) -> list[tuple[Any, int]]:
        """The loadable blocks; all others failed. Removes an object that is no valid block."""
        good, odd = [], []
        for view, key, block in zip(views, keys, blocks, strict=True):
            if view is not None and len(view) == self._block_bytes:
                good.append((view, block))
                continue
            self._fail(block)
            if view is not None:
                odd.append(key)
        if odd:
            self._pool.remove(odd)
        return good

    def _fail(self, block: int) -> None:
        self._failed.add(block)
        self.counts.failed_blocks += 1

    def _copy_whole(self, view: Any, block: int) -> None:
        for layer in self._layers:
            layer.read(view, block)
        self._suspect.discard(block)
        self.counts.loaded(1, self._block_bytes)

    def _copy(self, pairs: list[tuple[Any, int]]) -> None:
        """Runs in the loader's thread."""
        try:
            for layer in self._layers:
                for view, block in pairs:
                    layer.read(view, block)
                self._copied[layer.name].set()
        except Exception:
            logger.exception("a load failed: its blocks are computed")
            for _, block in pairs:
                self._fail(block)
            self._suspect.update(block for _, block in pairs)
            return
        finally:
            for event in self._copied.values():
                event.set()
        self._suspect.difference_update(block for _, block in pairs)
        self.counts.loaded(len(pairs), len(pairs) * self._block_bytes)
        self.counts.load_seconds += time.monotonic() - self._began

    def wait_for_layer(self, name: str) -> None:
        if self._loading is not None and (event := self._copied.get(name)) is not None:
            event.wait()

    def finish_loads(self) -> None:
        """Waits for every layer and releases all views."""
        if self._loading is not None:
            loading, self._loading = self._loading, None
            loading.result()
            self._copied = {}

    def take_failed(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed

    # ---- Saves ---------------------------------------------------------------------------------

    def save(self, step: Step) -> None:
        """After the forward pass."""
        self.finish_loads()
        keys: list[bytes] = []
        blocks: list[int] = []
        parents: list[bytes | None] = []
        for work in step.work:
            if self._sound(work):
                for at, key, parent in work.saves:
                    keys.append(key)
                    blocks.append(work.block_ids[at])
                    parents.append(parent)
        if not keys:
            return
        began = time.monotonic()
        kept: list[torch.Tensor] = []  # keeps the memory behind the addresses
        addresses = [self._addresses(block, kept) for block in blocks]
        sizes = [
            [layer.bytes for layer in self._layers] if len(one) > 1 else [self._block_bytes]
            for one in addresses
        ]
        done = sum(self._pool.put(keys, addresses, sizes, parents))
        self.counts.saved(done, done * self._block_bytes, len(keys) - done)
        self.counts.save_seconds += time.monotonic() - began

    def _sound(self, work: Work) -> bool:
        self._suspect.difference_update(work.block_ids[work.computed_from :])
        return not self._suspect.intersection(work.block_ids)

    def _addresses(self, block: int, kept: list[torch.Tensor]) -> list[int]:
        """Addresses of the bytes of a block's object: in place, or in a host copy."""
        if len(self._layers) <= 1024 and all(layer.plain for layer in self._layers):
            return [layer.address(block) for layer in self._layers]
        parts = [
            layer.kv[block].contiguous().reshape(-1).view(torch.uint8) for layer in self._layers
        ]
        kept.append(torch.cat(parts).cpu())
        return [kept[-1].data_ptr()]

    def close(self) -> None:
        self.finish_loads()
        self._loader.shutdown()
        self._pool.close()
