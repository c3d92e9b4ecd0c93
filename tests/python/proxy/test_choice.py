# SPDX-License-Identifier: Apache-2.0
"""Which instance a request goes to, and what is remembered of prompts: pure functions."""

import pytest

pytest.importorskip("aiohttp", reason="mckv[proxy] is not installed")

from mckv.proxy.choice import Candidate, choose, missing_blocks  # noqa: E402
from mckv.proxy.prefix import BLOCK_CHARACTERS, MAX_BLOCKS, PrefixIndex, chain_of  # noqa: E402


def at(holder, host="a", requests=0, pending=0.0):
    return Candidate(holder, host, requests, pending)


def chat(*texts, **more):
    return {"model": "m", "messages": [{"role": "user", "content": one} for one in texts], **more}


def test_equals_take_turns():
    idle = [at(1), at(2), at(3)]
    assert [choose(idle, 10, {}, turn) for turn in range(5)] == [0, 1, 2, 0, 1]
    assert choose([], 10, {}, 0) is None


def test_the_longest_prefix_wins_until_its_holder_has_too_much_to_do():
    matched = {2: 40, 1: 10}
    assert choose([at(1), at(2), at(3)], 50, matched, 0) == 1
    assert choose([at(1), at(2, pending=100.0), at(3, "b")], 50, matched, 0) == 0
    busy = [at(1, requests=30), at(2, requests=30), at(3, "b")]
    assert choose(busy, 50, matched, 0) == 2


def test_blocks_in_the_hosts_pool_cost_an_eighth():
    hosts = {"a": 40}
    assert missing_blocks(at(1, "a"), 50, {1: 40}, hosts) == 10
    assert missing_blocks(at(2, "a"), 50, {1: 40}, hosts) == 15
    assert missing_blocks(at(3, "b"), 50, {1: 40}, hosts) == 50
    # The holder is busy: its neighbour, not a stranger.
    candidates = [at(1, "a", pending=60.0), at(2, "a"), at(3, "b")]
    assert [choose(candidates, 50, {1: 40}, turn) for turn in range(3)] == [1, 1, 1]


def test_equal_beginnings_have_equal_hashes_and_nothing_else_has():
    start = "x" * (3 * BLOCK_CHARACTERS)
    one = chain_of({"model": "m", "prompt": start + "y" * BLOCK_CHARACTERS})
    two = chain_of({"model": "m", "prompt": start + "z" * BLOCK_CHARACTERS})
    assert len(one) == len(two) == 4 and one[:3] == two[:3] and one[3] != two[3]
    # A block's hash covers all blocks before.
    moved = chain_of({"model": "m", "prompt": "y" + start[1:]})
    assert not set(moved) & set(one)
    for other in ({"model": "n"}, {"cache_salt": "s"}):
        assert not set(chain_of({"model": "m", "prompt": start, **other})) & set(one)


def test_a_new_message_adds_to_the_end():
    long = "word " * 400
    before, after = chain_of(chat(long)), chain_of(chat(long, "answer " * 200, "next"))
    assert len(after) > len(before) > 5 and after[: len(before)] == before
    tools = chain_of(chat(long, tools=[{"name": "f"}]))
    assert not set(tools) & set(before)


def test_prompts_of_tokens_and_odd_ones():
    tokens = list(range(1000))
    assert len(chain_of({"prompt": tokens})) == 15
    assert chain_of({"prompt": [tokens, tokens]}) == chain_of({"prompt": tokens})
    assert len(chain_of({"prompt": ["x" * 1000, "y"]})) == 3
    for odd in (None, 5, [], {}, [None], [[]], ""):
        assert chain_of({"prompt": odd}) == []
    assert chain_of({"messages": "text"}) == [] == chain_of({})
    assert chain_of({"prompt": "\ud800" * 300})
    assert len(chain_of({"prompt": "x" * (BLOCK_CHARACTERS * (MAX_BLOCKS + 5))})) == MAX_BLOCKS


def test_the_index_tells_who_has_how_much_from_the_beginning_on():
    index, chain = PrefixIndex(100), [bytes([i]) for i in range(6)]
    index.record(chain[:2], 1)
    index.record(chain[:4], 2)
    assert index.matched(chain) == {1: 2, 2: 4}
    # Holder 3 saw later blocks only in another chain: no gap is bridged.
    index.record(chain[1:5], 3)
    assert index.matched(chain) == {1: 2, 2: 4}


def test_the_index_is_bounded_and_forgets_ends_before_beginnings():
    index = PrefixIndex(4)
    chain = [bytes([i]) for i in range(6)]
    index.record(chain, 1)
    assert len(index) == 4 and index.matched(chain) == {1: 4}
    for holder in range(2, 20):
        index.record(chain[:1], holder)
    assert len(index.matched(chain[:1])) == 8 and 19 in index.matched(chain[:1])
