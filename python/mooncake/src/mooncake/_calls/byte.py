# SPDX-License-Identifier: Apache-2.0
"""Objects as bytes: put, get, query, remove."""

from __future__ import annotations

import logging
from typing import Any, cast

import mckv
from mckv._native import BufferHandle

from mooncake import _codes
from mooncake._arguments import bad_key, bytes_like, key_of, keys_of
from mooncake._calls.base import DEFAULT, StoreBase
from mooncake._codes import CODE
from mooncake._types import ReplicateConfig

logger = logging.getLogger("mooncake")


class ByteCalls(StoreBase):
    """Mixed into MooncakeDistributedStore."""

    def put(self, key: str, value: Any, config: ReplicateConfig = DEFAULT) -> int:
        return self._put(key, bytes_like(value), config, False)

    def upsert(self, key: str, value: Any, config: ReplicateConfig = DEFAULT) -> int:
        return self._put(key, bytes_like(value), config, True)

    def put_parts(self, key: str, *args: Any, config: ReplicateConfig = DEFAULT) -> int:
        parts = [bytes_like(one) for one in args]
        if not any(memoryview(one).nbytes for one in parts):
            key_of(key)
            return _codes.OK  # like Mooncake: stores no object
        return self._put(key, parts, config, False)

    def upsert_parts(
        self,
        key: str,
        *args: Any,
        config: ReplicateConfig = DEFAULT,
    ) -> int:
        parts = [bytes_like(one) for one in args]
        if not any(memoryview(one).nbytes for one in parts):
            key_of(key)
            return _codes.OK
        return self._put(key, parts, config, True)

    def _put_batch(self, keys: Any, values: Any, config: ReplicateConfig, upsert: bool) -> int:
        names, parts = keys_of(keys), [bytes_like(one) for one in values]
        if not self._has_buffer:
            return self._refuse_bytes()
        rules = self._rules(config, len(names))
        if isinstance(rules, int):
            return rules
        if len(names) != len(parts) or not all(memoryview(one).nbytes for one in parts):
            return _codes.INVALID_PARAMS
        for name in names:
            if bad := bad_key(name):
                return bad

        def call() -> int:
            done = self._client.put_batch(names, parts, upsert=upsert, **rules)
            return next((CODE[one] for one in done if one), _codes.OK)

        return self._coded(call)

    def put_batch(
        self,
        keys: list[str],
        values: list[Any],
        config: ReplicateConfig = DEFAULT,
    ) -> int:
        return self._put_batch(keys, values, config, False)

    def upsert_batch(
        self,
        keys: list[str],
        values: list[Any],
        config: ReplicateConfig = DEFAULT,
    ) -> int:
        return self._put_batch(keys, values, config, True)

    def get(self, key: str, /) -> bytes:
        """b"" for a miss."""
        key_of(key)
        try:
            return cast(bytes, self._client.get(key, b""))
        except mckv.McError:
            return b""

    def get_batch(self, keys: list[str], /) -> list[bytes]:
        return [self.get(key) for key in keys_of(keys)]

    def get_buffer(self, key: str, /) -> BufferHandle | None:
        """The object's bytes in the pool: read-only, pinned while the handle lives; or None."""
        key_of(key)
        try:
            view = self._client.view(key, None)
            if view is not None and view.span_count != 1:
                view = view.tobytes()
        except mckv.BusyError:
            view = self.get(key) or None  # this thread holds 1,023 views already: return a copy
        except mckv.McError:
            return None
        return None if view is None else BufferHandle(view)

    def batch_get_buffer(self, keys: list[str], /) -> list[BufferHandle | None]:
        return [self.get_buffer(key) for key in keys_of(keys)]

    def get_size(self, key: str, /) -> int:
        key_of(key)
        if bad_key(key):
            return _codes.OBJECT_NOT_FOUND
        return self._coded(lambda: self._client.stat(key).length)

    # ---- Ask and remove ------------------------------------------------------------------------

    def is_exist(self, key: str, /) -> int:
        """1 or 0; also 0 on an error, because callers use the result as a truth value."""
        key_of(key)
        try:
            return int(self._client.exists(key))
        except mckv.McError:
            return 0

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        """1 or 0 for each key; -900 if no master tells whether another host has the object."""
        names = keys_of(keys)
        self._order.note(names)
        try:
            found = self._client.exists_batch(names)
        except mckv.InvalidArgumentError:
            return [self.is_exist(key) for key in names]
        except mckv.McError:
            return [0] * len(names)
        return [_codes.RPC_FAIL if one is None else int(one) for one in found]

    def remove(self, key: str, force: bool = False) -> int:
        """0 or -704. mc has no leases: readers hold views, which outlive the object."""
        return self.batch_remove([key], force)[0]

    def batch_remove(self, keys: list[str], force: bool = False) -> list[int]:
        names = keys_of(keys)
        good = [key for key in names if not bad_key(key)]
        try:
            done = dict(zip(good, self._client.remove_batch(good), strict=True))
        except mckv.McError as error:
            return [CODE[error.status]] * len(names)
        return [CODE[done.get(key, mckv.Status.NOT_FOUND)] for key in names]

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """Number of removed copies, on all hosts. RE2's syntax; may match anywhere in the key."""

        def call() -> int:
            try:
                return self._client.remove_matching(
                    regex=regex_pattern, namespace=self._tenant()
                ).removed
            except mckv.InvalidArgumentError as error:
                logger.error("mc: remove_by_regex(%r): %s", regex_pattern, error)
                raise

        return self._coded(call)

    def remove_all(self, force: bool = False) -> int:
        """Number of removed copies of this tenant, on all hosts."""
        return self._coded(lambda: self._client.remove_matching(namespace=self._tenant()).removed)
