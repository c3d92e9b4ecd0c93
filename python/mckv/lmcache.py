# SPDX-License-Identifier: Apache-2.0
"""LMCache's second level on the pool of this host, as a native plug-in of `lmcache server`.

    lmcache server --l1-size-gb 20 --eviction-policy LRU --l2-adapter '{"type": "native_plugin",
        "module_path": "mckv.lmcache", "class_name": "MckvConnector",
        "adapter_params": {"prefix": "lmcache"}}'

LMCache submits, waits for event_fd() to become readable, and drains. One thread copies, between
LMCache's host arena and the pool, in one copy. Threads: any thread may submit. Owns the descriptor
and the thread; holds LMCache's buffers until the request is complete.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import queue
import threading
from collections.abc import Callable, Sequence

from mckv._engine_pool import Keys, Pool

# id, success, reason, and for each key whether the object exists, was read or was removed
Completion = tuple[int, bool, str, list[bool] | None]


class MckvConnector:
    """adapter_params: agent, namespace, prefix, timeout_seconds, weights_version_file (a file with
    the name of the weights' version, read at the start)."""

    def __init__(
        self,
        agent: str | None = None,
        namespace: str | None = None,
        prefix: str = "lmcache",
        timeout_seconds: float = 0.5,
        weights_version_file: str | None = None,
    ) -> None:
        self._pool = Pool(agent, namespace, "lmcache", timeout_seconds)
        self._keys = Keys(prefix, {"format": 1}, weights_version_file)
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ids = itertools.count(1)
        self._done: list[Completion] = []
        self._lock = threading.Lock()  # of _done and _closed
        self._closed = False
        self._asked: queue.SimpleQueue[tuple[int, Callable[[], list[bool]], bool] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="mckv-lmcache", daemon=True)
        self._thread.start()

    def event_fd(self) -> int:
        """Readable when a request is complete."""
        return self._fd

    def submit_batch_get(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> int:
        names = self._names(keys)
        return self._submit(lambda: self._pool.read(names, *_pieces(buffers)))

    def submit_batch_set(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> int:
        names = self._names(keys)
        parents: list[bytes | None] = [None] * len(names)
        # LMCache only reads whether the whole store succeeded.
        return self._submit(lambda: self._pool.put(names, *_pieces(buffers), parents), True)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        names = self._names(keys)
        return self._submit(lambda: self._pool.exists(names))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        names = self._names(keys)

        def delete() -> list[bool]:
            self._pool.remove(names)
            return [not one for one in self._pool.exists(names)]

        return self._submit(delete)

    def drain_completions(self) -> list[Completion]:
        """The requests that have completed since the last call."""
        with self._lock:
            try:
                os.eventfd_read(self._fd)
            except BlockingIOError:
                pass
            done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Completes the submitted requests first. A second call has no effect."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._asked.put(None)
        self._thread.join()
        self._pool.close()
        os.close(self._fd)

    def _names(self, keys: Sequence[str]) -> list[bytes]:
        return [self._keys.of(key.encode()) for key in keys]

    def _submit(self, call: Callable[[], list[bool]], all_or_nothing: bool = False) -> int:
        number = next(self._ids)
        with self._lock:
            if self._closed:
                raise RuntimeError("this connector was closed")
            self._asked.put((number, call, all_or_nothing))
        return number

    def _work(self) -> None:
        while (item := self._asked.get()) is not None:
            number, call, all_or_nothing = item
            completion: Completion
            try:
                results = call()
                good = all(results)
                worked = good or not all_or_nothing
                completion = (number, worked, "" if good else "not all keys", results)
            except Exception as error:  # an invalid buffer: LMCache gets the reason
                completion = (number, False, f"{type(error).__name__}: {error}", None)
            del item, call
            with self._lock:
                self._done.append(completion)
                os.eventfd_write(self._fd, 1)


def _pieces(buffers: Sequence[memoryview]) -> tuple[list[list[int]], list[list[int]]]:
    """Address and size of each buffer. Buffers must be writable."""
    flat = [memoryview(one).cast("B") for one in buffers]
    addresses = [
        [ctypes.addressof(ctypes.c_ubyte.from_buffer(one))] if one.nbytes else [0] for one in flat
    ]
    return addresses, [[one.nbytes] for one in flat]
