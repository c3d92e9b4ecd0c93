# SPDX-License-Identifier: Apache-2.0
"""Tells who reads the pool how this engine names its blocks (mckv._block_keys)."""

from __future__ import annotations

import time
from collections.abc import Callable

from mckv._block_keys import Card, card_key
from mckv._engine_pool import Pool

AGAIN_S = 10.0  # a card that was evicted, or went with its agent, is missed for so long


class CardBearer:
    """Lives in the scheduler's process; called by its thread alone."""

    def __init__(self, pool: Pool, model: str, make: Callable[[], Card | None]) -> None:
        self._pool, self._key, self._make = pool, card_key(model), make
        self._value: bytes | None = None
        self._shown = False
        self._next = 0.0

    def show(self) -> None:
        """The card is in the pool, unless that is not there; at most every AGAIN_S a put."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + AGAIN_S
        if self._value is None:
            card = self._make()
            if card is None:
                return
            self._value = card.encode()
        # Of engines that serve one model in two ways the last to start is the one that is read.
        if self._pool.tell(self._key, self._value, replace=not self._shown):
            self._shown = True
