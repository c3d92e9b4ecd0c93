# SPDX-License-Identifier: Apache-2.0
"""Publishes how this engine names its blocks (mckv._block_keys)."""

from __future__ import annotations

import time
from collections.abc import Callable

from mckv._block_keys import Card, card_key
from mckv._engine_pool import Pool

AGAIN_S = 10.0  # an evicted card, or a card lost with its agent, is missing for this long


class CardBearer:
    """Belongs to the scheduler's process and thread."""

    def __init__(self, pool: Pool, model: str, make: Callable[[], Card | None]) -> None:
        self._pool, self._key, self._make = pool, card_key(model), make
        self._value: bytes | None = None
        self._shown = False
        self._next = 0.0

    def renew(self) -> None:
        """The keys have changed: the next show() puts the new card."""
        self._value, self._shown, self._next = None, False, 0.0

    def show(self) -> None:
        """Keeps the card in the pool; puts the card at most once every AGAIN_S."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + AGAIN_S
        if self._value is None:
            card = self._make()
            if card is None:
                return
            self._value = card.encode()
        # If engines serve one model in two ways, readers see the card of the last engine started.
        if self._pool.tell(self._key, self._value, replace=not self._shown):
            self._shown = True
