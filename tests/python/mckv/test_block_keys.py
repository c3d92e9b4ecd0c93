# SPDX-License-Identifier: Apache-2.0
"""Keys of an engine's blocks, made outside the engine; the hashes are vLLM 0.32's own."""

import dataclasses
import json
import random

import pytest
from mckv._block_keys import MAX_CARD_BYTES, Card, card_key, sample_tokens
from mckv._engine_pool import Keys

TOKENS = [0, 23, 24, 255, 256, 65535, 65536, 4294967295]  # in blocks of four
# Seed "0": hash_block_tokens(hash, None, TOKENS[:4]), then of TOKENS[4:] after that.
VLLM = {
    "sha256": (
        "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c",
        "545f0ac9f9f843830a203b2f3d14417a6c11babbf9e992b08b9fba32e4295950",
        "909a814d2b2c9360892372c20ddb19b4978daa9a4ddb0aca0a4a72ce742ad325",
    ),
    "sha256_cbor": (
        "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
        "ca90027d467f8ae0c02e71aa4eff29f116d1b74ca16446a60ab640f53e976f43",
        "fabd8e12e7d8d54418d0a583d8a28c5d5739bff376f10eb24575cf52e0e0a83a",
    ),
}


def card_of(name="sha256"):
    made = Card(b"vllm/abc/", 4, name, bytes.fromhex(VLLM[name][0]), b"")
    (sample,) = made.hashes(sample_tokens(4), 1)
    return dataclasses.replace(made, sample=sample)


@pytest.mark.parametrize("name", VLLM)
def test_hashes_are_those_of_vllm(name):
    card = Card.decode(card_of(name).encode())
    assert [one.hex() for one in card.hashes(TOKENS, 10)] == list(VLLM[name][1:])
    assert len(card.hashes(TOKENS[:7], 10)) == 1 == len(card.hashes(TOKENS, 1))
    assert card.hashes(TOKENS[:3], 10) == [] == card.hashes([], 10)


def test_keys_are_those_of_the_connector():
    keys = Keys("vllm", {"model": "m"})
    card = dataclasses.replace(card_of(), start=keys.start)
    assert card.key(b"\1\xff").encode() == keys.of(b"\1\xff")
    assert card_key("m") != card_key("n") and len(card_key("x" * 5000 + "\ud800")) < 64


@pytest.mark.parametrize("token", [-1, 1 << 32, 1.0, "1", None, True, [1]])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(ValueError, match="a token is a number"):
        card_of().hashes([1, 2, 3, token], 1)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"format": 2}, "format 1"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"block_tokens": True}, "block_tokens"),
        ({"block_tokens": 1 << 40}, "block_tokens"),
        ({"start": ""}, "start"),
        ({"start": 5}, "start"),
        ({"start": "\u00e4"}, "start"),
        ({"hash": "xxhash"}, "prefix-caching-hash-algo"),
        ({"root": "zz"}, "hex"),
        ({"root": None}, "root"),
        ({"sample": "00" * 32}, "another version of vLLM"),
        ({"block_tokens": 8}, "another version of vLLM"),
    ],
)
def test_a_forged_card_is_refused_with_its_cause(change, cause):
    said = json.loads(card_of().encode()) | change
    with pytest.raises(ValueError, match=cause):
        Card.decode(json.dumps(said).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b"[" * 4000, b"x" * MAX_CARD_BYTES * 2]
)
def test_what_is_no_card_at_all_is_refused(data):
    with pytest.raises(ValueError, match="a card"):
        Card.decode(data)


def test_a_card_that_was_tampered_with_is_refused_or_as_good_as_another(long):
    chance = random.Random(5)
    good = card_of().encode()
    for _ in range(20000 if long else 2000):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        try:
            card = Card.decode(bytes(data))
        except ValueError:
            continue
        assert card.hashes(sample_tokens(card.block_tokens), 1) == [card.sample]
