# SPDX-License-Identifier: Apache-2.0
"""Parents of keys, from the order in which a connector names keys.

The connectors of vLLM and SGLang name the blocks of a prompt in order: each block extends the block
before. A pool that evicts by prefixes (agent/pool/policy) needs the parent of an object, for which
Mooncake's API has no argument. A wrong guess costs nothing but a worse order of eviction.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence

from mooncake._arguments import bad_key

_SEQUENCES = 16  # that wait for the next put
_KEYS = 1 << 15  # of a generation; two generations are kept
_SHORT = 256  # characters that fit in a key, in any encoding

Key = str | bytes


class KeyOrder:
    """The latest sequences of keys. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A lookup only notes its keys: many lookups are followed by no put.
        self._noted: collections.deque[Sequence[Key]] = collections.deque(maxlen=_SEQUENCES)
        self._young: dict[Key, Key | None] = {}  # the key before, by key
        self._old: dict[Key, Key | None] = {}

    def note(self, keys: Sequence[Key]) -> None:
        """Keys of a lookup or a get, in order. The caller must not change the sequence."""
        if len(keys) > 1:
            self._noted.append(keys)

    def parents(self, keys: Sequence[Key]) -> list[Key | None]:
        """The parent of each key of a put: the key before, in an earlier sequence or here."""
        with self._lock:
            while self._noted:
                noted = self._noted.popleft()
                self._young.update(zip(noted[1:], noted, strict=False))
            known = map(self._young.get, keys)
            if self._old:
                known = map(lambda key, parent: parent or self._old.get(key), keys, known)
            made = [parent or before for parent, before in zip(known, [None, *keys], strict=False)]
            lengths = list(map(len, keys))
            if not lengths or min(lengths) == 0 or max(lengths) > _SHORT:
                made = [None if parent is None or bad_key(parent) else parent for parent in made]
            self._young.update(zip(keys, made, strict=True))
            if len(self._young) > _KEYS:
                self._old, self._young = self._young, {}
        return made
