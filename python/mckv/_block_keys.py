# SPDX-License-Identifier: Apache-2.0
"""Derives the keys of an engine's blocks from a prompt's tokens, outside the engine.

vLLM names a block by a hash of its tokens and of the block before it; MckvConnector's keys are that
hash after a prefix that the connector chooses. A key card (Card) has all parameters of the keys.
The connector puts a key card beside its blocks, under card_key(model); mckv proxy reads the card.
A card is untrusted: the reader checks the fields, and hashes the card's sample block to check that
both sides compute equal hashes.

Pure. Hashes: hash((hash of the block before, tokens, None)), the root before the first
(vllm/v1/core/kv_cache_utils.py, hash_block_tokens), by "sha256" of a pickle or "sha256_cbor".
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
from collections.abc import Callable, Sequence

MAX_CARD_BYTES = 4096
_FORMAT = 1
_MAX_BLOCK_TOKENS = 1 << 16
_MAX_TOKEN = (1 << 32) - 1


def card_key(model: str) -> bytes:
    """The key of the card for engines that serve model under this name."""
    return (
        b"mckv.card/" + hashlib.blake2b(model.encode("utf-8", "replace")).hexdigest()[:32].encode()
    )


def _pickled(before: bytes, tokens: tuple[int, ...]) -> bytes:
    return pickle.dumps((before, tokens, None), protocol=5)


def _cbor_head(kind: int, value: int) -> bytes:
    """RFC 8949, section 3: the shortest head for this value or length."""
    if value < 24:
        return bytes((kind << 5 | value,))
    for more, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << (8 * size):
            return bytes((kind << 5 | more,)) + value.to_bytes(size, "big")
    raise ValueError(f"{value} is too large")


def _cbor(before: bytes, tokens: tuple[int, ...]) -> bytes:
    parts = [b"\x83", _cbor_head(2, len(before)), before, _cbor_head(4, len(tokens))]
    parts += [_cbor_head(0, token) for token in tokens]
    return b"".join((*parts, b"\xf6"))


_HASHES: dict[str, Callable[[bytes, tuple[int, ...]], bytes]] = {
    "sha256": _pickled,
    "sha256_cbor": _cbor,
}


@dataclasses.dataclass(frozen=True)
class Card:
    """start: prefix of each key; block_tokens: tokens in a block; hash: vLLM's
    --prefix-caching-hash-algo; root: the hash before the first block; sample: the engine's hash of
    sample_tokens() after root."""

    start: bytes
    block_tokens: int
    hash: str
    root: bytes
    sample: bytes

    def encode(self) -> bytes:
        return json.dumps({
            "format": _FORMAT, "start": self.start.decode(), "block_tokens": self.block_tokens,
            "hash": self.hash, "root": self.root.hex(), "sample": self.sample.hex(),
        }).encode()  # fmt: skip

    @staticmethod
    def decode(data: bytes) -> Card:
        """Raises ValueError with the reason, also for an unsupported hash."""
        if len(data) > MAX_CARD_BYTES:
            raise ValueError("a card has at most 4,096 bytes")
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or said.get("format") != _FORMAT:
            raise ValueError(f"a card is a JSON object of format {_FORMAT}")
        size = said.get("block_tokens")
        if type(size) is not int or not 0 < size <= _MAX_BLOCK_TOKENS:
            raise ValueError("a card's block_tokens is a number from 1 on")
        words: dict[str, str] = {}
        for name in ("start", "hash", "root", "sample"):
            word = said.get(name)
            if not isinstance(word, str):
                raise ValueError(f"a card's {name} is a text")
            words[name] = word
        if not 0 < len(words["start"]) <= 512 or not words["start"].isascii():
            raise ValueError("a card's start is a text of 1 to 512 ASCII characters")
        if words["hash"] not in _HASHES:
            raise ValueError(
                f"blocks are hashed by {words['hash'][:40]!r}; only {' and '.join(_HASHES)} can be "
                "repeated outside the engine (--prefix-caching-hash-algo)"
            )
        root, sample = bytes.fromhex(words["root"]), bytes.fromhex(words["sample"])
        card = Card(words["start"].encode(), size, words["hash"], root, sample)
        if card.hashes(sample_tokens(size), 1) != [sample]:
            raise ValueError("the engine hashes blocks in another way: another version of vLLM?")
        return card

    def hashes(self, tokens: Sequence[int], max_blocks: int) -> list[bytes]:
        """Hashes of at most `most` whole blocks. Raises ValueError for an invalid token."""
        size, written, last, made = self.block_tokens, _HASHES[self.hash], self.root, []
        for at in range(0, min(len(tokens) // size, max_blocks) * size, size):
            block = tuple(tokens[at : at + size])
            if not all(type(one) is int and 0 <= one <= _MAX_TOKEN for one in block):
                raise ValueError("a token is a number from 0 to 4294967295")
            last = hashlib.sha256(written(last, block)).digest()
            made.append(last)
        return made

    def key(self, block_hash: bytes) -> str:
        """The block's key, equal to the key from mckv._engine_pool.Keys."""
        return self.start.decode() + block_hash.hex()


def sample_tokens(block_tokens: int) -> list[int]:
    """A block of tokens that need one, two and four bytes."""
    return [(0, 23, 200, 1000, 151_000)[i % 5] + i for i in range(block_tokens)]
