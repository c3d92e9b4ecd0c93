# SPDX-License-Identifier: Apache-2.0
"""Which instance a request goes to. Pure: same input, same output; no clock, no I/O.

The cost of an instance is what it would have to compute before this request's first token, in
blocks of the prompt:

    cost = blocks that it has still to prefill for others + blocks of this prompt that it lacks
           + REQUEST_BLOCKS for each request that it has

An engine has the blocks that it was sent before. Loading one from its host's pool costs POOL_BLOCK
of computing it, from another host's FAR_BLOCK. What pools have is what they say (Held); where they
did not, those blocks that another engine of the host was sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

REQUEST_BLOCKS = 4.0
POOL_BLOCK = 0.125
FAR_BLOCK = 0.25


@dataclasses.dataclass(frozen=True)
class Held:
    """What the pool has of a prompt, in blocks from its first one on: on any host, and of these on
    each."""

    anywhere: float
    on_host: Mapping[str, float]


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
    host_matched: Mapping[str, float],
    anywhere: float = 0.0,
) -> float:
    """What the candidate lacks of a prompt of so many blocks; a block in a pool counts less."""
    own = min(matched.get(candidate.holder, 0), blocks)
    near = min(max(host_matched.get(candidate.host, 0), own), blocks)
    far = min(max(anywhere, near), blocks)
    return (blocks - far) + (far - near) * FAR_BLOCK + (near - own) * POOL_BLOCK


def host_matches(candidates: Sequence[Candidate], matched: Mapping[int, int]) -> dict[str, float]:
    """What hosts' pools have as far as was seen."""
    made: dict[str, float] = {}
    for one in candidates:
        made[one.host] = max(made.get(one.host, 0), matched.get(one.holder, 0))
    return made


def choose(
    candidates: Sequence[Candidate],
    blocks: int,
    matched: Mapping[int, int],
    turn: int,
    host_matched: Mapping[str, float] | None = None,
    anywhere: float = 0.0,
) -> int | None:
    """The index of the cheapest candidate, of equals the next in turn; None without candidates."""
    if not candidates:
        return None
    hosts = host_matches(candidates, matched) if host_matched is None else host_matched

    def cost(i: int) -> tuple[float, int]:
        one = candidates[i]
        lacks = missing_blocks(one, blocks, matched, hosts, anywhere)
        return (
            one.pending_blocks + lacks + REQUEST_BLOCKS * one.requests,
            (i - turn) % len(candidates),
        )

    return min(range(len(candidates)), key=cost)
