# SPDX-License-Identifier: Apache-2.0
"""Chooses the blocks that each step loads and saves. Knows requests and block numbers only.

A request's prompt is a row of blocks. The step that first runs the request loads the leading blocks
that the pool holds. A step that computes full blocks saves the blocks that the pool lacks.

    0 ........ computed ........ computed + found ................ full blocks after this step
    (vLLM's own prefix cache)    (loaded from the pool)           (saved, unless in the pool)

A load may fail in the worker. vLLM then resumes the request at the failed block and computes that
block. From that block on, the scheduler forgets which blocks were saved.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from mckv._engine_pool import Keys, Pool


@dataclasses.dataclass
class Load:
    """Blocks to read: keys[i] into block_ids[i]."""

    request_id: str
    keys: list[bytes]
    block_ids: list[int]


@dataclasses.dataclass
class Work:
    """A request that computes blocks of its prompt in this step.

    block_ids: all blocks of the prompt so far; computed_from: index of the first block that this
    step computes; saves: index, key and parent's key of the blocks to save.
    """

    request_id: str
    block_ids: list[int]
    computed_from: int
    saves: list[tuple[int, bytes, bytes | None]]


@dataclasses.dataclass
class Step:
    loads: list[Load] = dataclasses.field(default_factory=list)
    work: list[Work] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _Tracked:
    request: Any
    block_ids: list[int] = dataclasses.field(default_factory=list)
    saved: int = 0  # leading blocks that need no lookup
    stale: bool = False  # its KV began with weights that were replaced


class SchedulerSide:
    """Belongs to the scheduler's process and thread."""

    def __init__(self, pool: Pool, keys: Keys, block_size: int) -> None:
        self._pool, self._keys, self._block_size = pool, keys, block_size
        self._tracked: dict[str, _Tracked] = {}
        self._asked: dict[str, int] = {}  # the first block of the lookup
        self._loads: list[Load] = []

    def found_tokens(self, request: Any, computed_tokens: int) -> int:
        """Tokens in the pool beyond the computed tokens; leaves at least one token to compute."""
        first = computed_tokens // self._block_size
        last = min((request.num_tokens - 1) // self._block_size, len(request.block_hashes))
        keys = [self._keys.of(one) for one in request.block_hashes[first:last]]
        found = self._pool.leading(keys)
        self._asked[request.request_id] = first
        return found * self._block_size

    def allocated(self, request: Any, block_ids: list[int], found_tokens: int) -> None:
        """The request has its blocks; the next step loads found_tokens tokens."""
        request_id = request.request_id
        tracked = self._tracked.setdefault(request_id, _Tracked(request))
        tracked.request = request
        first = self._asked.pop(request_id, 0)
        if found_tokens > 0:
            last = first + found_tokens // self._block_size
            keys = [self._keys.of(one) for one in request.block_hashes[first:last]]
            self._loads.append(Load(request_id, keys, block_ids[first:last]))

    def step(self, output: Any) -> Step:
        """The worker's loads and saves for vLLM's SchedulerOutput."""
        for request_id in output.finished_req_ids:
            self.forget(request_id)
        made = Step(loads=self._loads)
        self._loads = []
        scheduled = output.num_scheduled_tokens
        for new in output.scheduled_new_reqs:
            tracked = self._tracked.get(new.req_id)
            if tracked is not None:
                tracked.block_ids, tracked.saved, tracked.stale = list(new.block_ids[0]), 0, False
                self._add(made, tracked, new.num_computed_tokens, scheduled[new.req_id])
        cached = output.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            tracked = self._tracked.get(request_id)
            if tracked is None:
                continue
            more = cached.new_block_ids[i]
            if request_id in cached.resumed_req_ids:
                tracked.block_ids = list(more[0]) if more else []
                tracked.saved, tracked.stale = 0, False  # vLLM computes the request anew
            elif more:
                tracked.block_ids.extend(more[0])
            self._add(made, tracked, cached.num_computed_tokens[i], scheduled[request_id])
        return made

    def reset(self) -> None:
        """The weights may have changed. No block that exists now is loaded or saved any more."""
        self._keys.renew()
        self._asked.clear()
        self._loads.clear()
        for tracked in self._tracked.values():
            tracked.stale = True

    def forget(self, request_id: str) -> None:
        self._tracked.pop(request_id, None)
        self._asked.pop(request_id, None)

    def _add(self, made: Step, tracked: _Tracked, computed: int, scheduled: int) -> None:
        request, size = tracked.request, self._block_size
        whole = min(request.num_prompt_tokens // size, len(request.block_hashes))
        full = min((computed + scheduled) // size, whole, len(tracked.block_ids))
        # Fewer tokens computed than saved: a load failed, and vLLM computes these blocks again.
        first = tracked.saved = min(tracked.saved, computed // size)
        if computed // size >= whole:
            return
        blocks = [] if tracked.stale else request.block_hashes[first:full]
        keys = [self._keys.of(one) for one in blocks]
        saves = []
        for i, missing in enumerate(self._pool.missing(keys) if keys else ()):
            if missing:
                at = first + i
                parent = self._keys.of(request.block_hashes[at - 1]) if at else None
                saves.append((at, keys[i], parent))
        tracked.saved = full
        made.work.append(
            Work(request.request_id, tracked.block_ids[:full], computed // size, saves)
        )
