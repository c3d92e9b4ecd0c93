# SPDX-License-Identifier: Apache-2.0
"""Which instance a request goes to. Pure: same input, same output; no clock, no I/O.

The cost of an instance is what it would have to compute before this request's first token, in
blocks of the prompt:

    cost = blocks that it has still to prefill for others + blocks of this prompt that it lacks
           + REQUEST_BLOCKS for each request that it has

An engine has the blocks that it was sent before. Those that another engine of its host was sent
lie in the host's pool: loading one costs POOL_BLOCK of computing it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

REQUEST_BLOCKS = 4.0
POOL_BLOCK = 0.125


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An instance as the choice sees it. holder: its number in the prefix index, new when it
    restarts; host: instances of one host share a pool."""

    holder: int
    host: str
    requests: int
    pending_blocks: float


def missing_blocks(
    candidate: Candidate,
    blocks: int,
    matched: Mapping[int, int],
    host_matched: Mapping[str, int],
) -> float:
    """What the candidate lacks of a prompt of so many blocks; a block in the pool counts less."""
    own = min(matched.get(candidate.holder, 0), blocks)
    pool = min(max(host_matched.get(candidate.host, 0), own), blocks)
    return (blocks - pool) + (pool - own) * POOL_BLOCK


def host_matches(candidates: Sequence[Candidate], matched: Mapping[int, int]) -> dict[str, int]:
    made: dict[str, int] = {}
    for one in candidates:
        made[one.host] = max(made.get(one.host, 0), matched.get(one.holder, 0))
    return made


def choose(
    candidates: Sequence[Candidate],
    blocks: int,
    matched: Mapping[int, int],
    turn: int,
    host_matched: Mapping[str, int] | None = None,
) -> int | None:
    """The index of the cheapest candidate, of equals the next in turn; None without candidates."""
    if not candidates:
        return None
    hosts = host_matches(candidates, matched) if host_matched is None else host_matched

    def cost(i: int) -> tuple[float, int]:
        one = candidates[i]
        lacks = missing_blocks(one, blocks, matched, hosts)
        return (
            one.pending_blocks + lacks + REQUEST_BLOCKS * one.requests,
            (i - turn) % len(candidates),
        )

    return min(range(len(candidates)), key=cost)
