# SPDX-License-Identifier: Apache-2.0
"""Index of prompts' prefixes: chains of block hashes, and the instances that served each block.

Pure: no clock, no I/O. The proxy cuts a prompt into blocks of characters (or of tokens, if the
request has tokens). The hash of a block covers all earlier blocks, so equal hashes mean equal
prefixes. Engines hash tokens, which the proxy may not have, so the index records sent prompts.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

BLOCK_CHARACTERS = 256
BLOCK_TOKENS = 64
MAX_BLOCKS = 4096  # of a longer prompt, only the first million characters count
MAX_HOLDERS = 8


def chain_of(request: Mapping[str, Any]) -> list[bytes]:
    """Hashes of the whole blocks of a /v1/completions or /v1/chat/completions request."""
    seed = hashlib.blake2b(
        json.dumps([request.get("model"), request.get("cache_salt")], default=str).encode(),
        digest_size=16,
    ).digest()
    if "messages" in request:
        # The template puts tools before messages; a new message then only adds to the end.
        parts = [request.get("tools") or [], *_list(request["messages"])]
        return _hashes(seed, _cut("".join(json.dumps(one, default=str) for one in parts)))
    prompt = request.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        prompt = prompt[0]  # with several prompts, the first prompt decides
    if isinstance(prompt, str):
        return _hashes(seed, _cut(prompt))
    if isinstance(prompt, list):
        return _hashes(seed, _cut_tokens(prompt))
    return []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cut(text: str) -> Iterable[bytes]:
    end = min(len(text) // BLOCK_CHARACTERS, MAX_BLOCKS) * BLOCK_CHARACTERS
    for at in range(0, end, BLOCK_CHARACTERS):
        yield text[at : at + BLOCK_CHARACTERS].encode("utf-8", "surrogatepass")


def _cut_tokens(tokens: list[Any]) -> Iterable[bytes]:
    end = min(len(tokens) // BLOCK_TOKENS, MAX_BLOCKS) * BLOCK_TOKENS
    for at in range(0, end, BLOCK_TOKENS):
        yield repr(tokens[at : at + BLOCK_TOKENS]).encode()


def _hashes(seed: bytes, blocks: Iterable[bytes]) -> list[bytes]:
    made, last = [], seed
    for block in blocks:
        last = hashlib.blake2b(last + block, digest_size=16).digest()
        made.append(last)
    return made


class PrefixIndex:
    """The last max_blocks served blocks, with the last few holders of each block."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._holders: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def matched(self, chain: list[bytes]) -> dict[int, int]:
        """For each holder, the number of leading blocks of the chain that it has seen."""
        made: dict[int, int] = {}
        for i, block in enumerate(chain):
            holders = self._holders.get(block)
            if holders is None:
                break
            for one in holders:
                if made.get(one, 0) == i:
                    made[one] = i + 1
        return made

    def record(self, chain: list[bytes], holder: int) -> None:
        # Backwards, so that the index forgets a chain's end before its start.
        for block in reversed(chain):
            others = tuple(one for one in self._holders.get(block, ()) if one != holder)
            self._holders[block] = (holder, *others[: MAX_HOLDERS - 1])
            self._holders.move_to_end(block)
        while len(self._holders) > self._max_blocks:
            self._holders.popitem(last=False)
