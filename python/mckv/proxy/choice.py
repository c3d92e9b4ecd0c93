# SPDX-License-Identifier: Apache-2.0
"""Chooses the instance for a request. Pure: same input, same output; no clock, no I/O.

The cost of an instance is its work before this request's first token, in blocks of the prompt:

    cost = blocks that the instance must prefill for other requests
           + blocks of this prompt that the instance lacks
           + REQUEST_BLOCKS for each request of the instance

An instance holds the blocks of earlier requests. Loading a block from the pool of the instance's
host costs POOL_BLOCK of computing the block; from another host, FAR_BLOCK. Held gives the blocks in
the pools. Without Held, the pool of a host has the blocks that engines of the host received.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

REQUEST_BLOCKS = 4.0
POOL_BLOCK = 0.125
FAR_BLOCK = 0.25


@dataclasses.dataclass(frozen=True)
class Held:
    """The leading blocks of a prompt in the pool: on any host, and on each host."""

    anywhere: float
    on_host: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Facts about an instance. holder: number in the prefix index, new after a restart; host:
    instances of one host share a pool."""

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
    """Cost of the blocks that the candidate lacks; a block in a pool counts less."""
    own = min(matched.get(candidate.holder, 0), blocks)
    near = min(max(host_matched.get(candidate.host, 0), own), blocks)
    far = min(max(anywhere, near), blocks)
    return (blocks - far) + (far - near) * FAR_BLOCK + (near - own) * POOL_BLOCK


def host_matches(candidates: Sequence[Candidate], matched: Mapping[int, int]) -> dict[str, float]:
    """The blocks in each host's pool, as far as the proxy has seen."""
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
    """Index of the cheapest candidate; equal candidates take turns. None without candidates."""
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
