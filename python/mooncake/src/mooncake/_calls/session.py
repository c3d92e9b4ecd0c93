# SPDX-License-Identifier: Apache-2.0
"""Read and write sessions: many partial copies of objects that stay unchanged meanwhile."""

from __future__ import annotations

from typing import Any

import mckv

from mooncake import _codes
from mooncake._arguments import address_of, bad_key, keys_of
from mooncake._calls.base import DEFAULT, StoreBase
from mooncake._types import ReplicateConfig


class SessionCalls(StoreBase):
    """Mixed into MooncakeDistributedStore."""

    def batch_get_session_start(self, keys: list[str]) -> list[int]:
        """0 or a code per key; found objects stay readable until the session ends."""
        made = []
        for key in keys_of(keys):
            view = self._view_or_code(key)
            if isinstance(view, int):
                made.append(view)
            else:
                self._get_sessions[key] = view
                made.append(_codes.OK)
        return made

    def batch_get_into_multi_buffer_ranges(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_src_offsets: list[list[int]],
    ) -> list[int]:
        """Number of bytes read per key; -600: no session, or a range beyond the end."""
        return self._ranged(
            keys, all_buffer_ptrs, all_sizes, all_src_offsets, self._get_session_copy
        )

    def _get_session_copy(self, key: Any) -> Any:
        view = self._get_sessions.get(key)
        return None if view is None else view.copy_ranges

    def _put_session_copy(self, key: Any) -> Any:
        session = self._put_sessions.get(key)
        return None if session is None else session[0].write_ranges

    def _ranged(self, keys: Any, ptrs: Any, sizes: Any, offsets: Any, session: Any) -> list[int]:
        names = keys_of(keys)
        if not len(names) == len(ptrs) == len(sizes) == len(offsets):
            return [_codes.INVALID_PARAMS] * len(names)
        made = []
        for i, key in enumerate(names):
            copy = session(key)
            good = copy is not None
            try:
                good = good and copy(ptrs[i], sizes[i], offsets[i], self._ranges)
            except mckv.McError:
                good = False
            made.append(sum(sizes[i]) if good else _codes.INVALID_PARAMS)
        return made

    def batch_get_session_end(self, keys: list[str]) -> int:
        for key in keys_of(keys):
            self._get_sessions.pop(key, None)
        return _codes.OK

    def batch_put_session_start(
        self,
        keys: list[str],
        sizes: list[int],
        config: ReplicateConfig = DEFAULT,
    ) -> list[int]:
        """Reserves each object; 0, or -705 if the object exists or is being written.

        The objects stay on this host, whatever the preferred segment.
        """
        names = keys_of(keys)
        rules = self._rules(config, len(names))
        if isinstance(rules, dict):
            rules.pop("host", None)
        if isinstance(rules, int) or len(names) != len(sizes):
            return [rules if isinstance(rules, int) else _codes.INVALID_PARAMS] * len(names)
        made = []
        for key, size in zip(names, sizes, strict=True):
            made.append(self._coded(lambda k=key, s=size: self._begin_put(k, s, rules)))  # type: ignore[misc]
        return made

    def _begin_put(self, key: Any, size: int, rules: dict[str, Any]) -> int:
        if bad := bad_key(key):
            return bad
        if key in self._put_sessions or self._client.exists(key):
            return _codes.OBJECT_ALREADY_EXISTS
        self._put_sessions[key] = (self._client.reserve(address_of(size)), rules)
        return _codes.OK

    def batch_put_from_multi_buffer_ranges(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_dst_offsets: list[list[int]],
    ) -> list[int]:
        """Number of bytes written per key; -600: no session, or a range beyond the end."""
        return self._ranged(
            keys, all_buffer_ptrs, all_sizes, all_dst_offsets, self._put_session_copy
        )

    def batch_put_session_end(self, keys: list[str]) -> list[int]:
        """Publishes the objects."""
        made = []
        for key in keys_of(keys):
            session = self._put_sessions.pop(key, None)
            if session is None:
                made.append(_codes.INVALID_PARAMS)
                continue
            reservation, rules = session

            def commit(k: Any = key, r: Any = reservation, options: Any = rules) -> int:
                r.commit(k, **options)
                return _codes.OK

            made.append(self._coded(commit))
        return made

    def batch_put_session_revoke(self, keys: list[str]) -> list[int]:
        made = []
        for key in keys_of(keys):
            session = self._put_sessions.pop(key, None)
            if session is not None:
                session[0].abandon()
            made.append(_codes.INVALID_PARAMS if session is None else _codes.OK)
        return made
