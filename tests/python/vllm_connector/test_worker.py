# SPDX-License-Identifier: Apache-2.0
"""Copies between KV tensors and a pool inside this process: every layout, failures, many blocks."""

import pytest

torch = pytest.importorskip("torch")

from mckv._engine_pool import Pool  # noqa: E402
from mckv.vllm import worker as module  # noqa: E402
from mckv.vllm.scheduler import Load, Step, Work  # noqa: E402
from mckv.vllm.worker import WorkerSide  # noqa: E402

BLOCKS, LAYERS = 12, 3


@pytest.fixture
def pool():
    made = Pool("embedded", None, "test", 1.0)
    yield made
    made.close()


def caches(layout="contiguous", fill=None):
    """Layers of [blocks, heads, tokens, elements] with other strides, or smaller kernel blocks."""
    shape = (BLOCKS, 2, 4, 8)
    made = {}
    for i in range(LAYERS):
        if layout == "tokens first":
            one = torch.zeros(BLOCKS, 4, 2, 8, dtype=torch.bfloat16).transpose(1, 2)
        elif layout == "kernel blocks":
            one = torch.zeros(2 * BLOCKS, 2, 2, 8, dtype=torch.bfloat16)
        else:
            one = torch.zeros(shape, dtype=torch.bfloat16)
        if fill is not None:
            generator = torch.Generator().manual_seed(fill + i)
            one.copy_(torch.randn(one.shape, generator=generator).to(torch.bfloat16))
        made[f"layer{i}"] = one
    return made


def side_of(pool, tensors):
    made = WorkerSide(pool)
    made.register(tensors, BLOCKS)
    return made


def key(i):
    return b"block%d" % i


def save_step(blocks, computed_from=0, start=0):
    saves = [
        (i, key(start + i), key(start + i - 1) if start + i else None)
        for i in range(computed_from, len(blocks))
    ]
    return Step(work=[Work("r", list(blocks), computed_from, saves)])


def load_step(numbers, blocks):
    return Step(loads=[Load("r", [key(i) for i in numbers], list(blocks))])


def load(side, step):
    side.begin(step)
    for i in range(LAYERS):
        side.wait_for_layer(f"layer{i}")
    side.finish_loads()
    return side.take_failed()


@pytest.mark.parametrize("saved", ["contiguous", "tokens first"])
@pytest.mark.parametrize("loaded", ["contiguous", "tokens first"])
def test_blocks_come_back_whatever_the_layout(pool, saved, loaded):
    given, got = caches(saved, 1), caches(loaded)
    side_of(pool, given).save(save_step([3, 4, 5]))
    reader = side_of(pool, got)
    assert load(reader, load_step([0, 1, 2], [9, 0, 7])) == set()
    for name in given:
        for at, to in ((3, 9), (4, 0), (5, 7)):
            assert torch.equal(given[name][at], got[name][to])
        assert not got[name][[1, 2, 3, 4, 5, 6, 8, 10, 11]].any()
    assert (reader.counts.loaded_blocks, reader.counts.failed_blocks) == (3, 0)


def test_kernels_with_smaller_blocks(pool):
    given, got = caches("kernel blocks", 1), caches("kernel blocks")
    side_of(pool, given).save(save_step([3, 4]))
    assert load(side_of(pool, got), load_step([0, 1], [7, 8])) == set()
    for name in given:
        assert torch.equal(given[name][6:10], got[name][14:18])


def test_what_is_missing_or_odd_is_reported_and_the_odd_removed(pool):
    side = side_of(pool, caches(fill=1))
    side.save(save_step([3, 4, 5]))
    pool._open().put(key(1), b"odd", upsert=True)
    assert load(side, load_step([0, 1, 2, 9], [6, 7, 8, 9])) == {7, 9}
    assert side.take_failed() == set()
    assert pool.missing([key(0), key(1), key(2)]) == [False, True, False]
    assert side.counts.failed_blocks == 2


def test_nothing_that_stands_on_a_failed_block_is_saved_until_it_is_computed(pool):
    side = side_of(pool, caches(fill=1))
    assert load(side, load_step([0, 1], [3, 4])) == {3, 4}
    side.save(save_step([3, 4, 5], computed_from=2))
    # Another request on the same blocks, and a step that was scheduled before the failure showed.
    side.save(save_step([3, 8], computed_from=1, start=20))
    assert pool.missing([key(2), key(21)]) == [True, True]
    side.save(save_step([3, 4, 5], computed_from=0))
    assert pool.missing([key(0), key(1), key(2)]) == [False] * 3
    side.save(save_step([3, 8], computed_from=1, start=20))
    assert pool.missing([key(21)]) == [False]


def test_a_block_that_loads_after_all_is_sound_again(pool):
    side = side_of(pool, caches(fill=1))
    assert load(side, load_step([0], [3])) == {3}
    side_of(pool, caches(fill=2)).save(save_step([1]))
    assert load(side, load_step([0], [3])) == set()
    side.save(save_step([3, 5], computed_from=1))
    assert pool.missing([key(1)]) == [False]


def test_more_blocks_than_may_be_pinned(pool, monkeypatch):
    monkeypatch.setattr(module, "MAX_VIEWS", 4)
    given, got = caches(fill=1), caches()
    side_of(pool, given).save(save_step(range(BLOCKS)))
    step = load_step(range(BLOCKS), reversed(range(BLOCKS)))
    assert load(side_of(pool, got), step) == set()
    for name in given:
        assert torch.equal(given[name].flip(0), got[name])


def test_a_copy_that_raises_fails_its_blocks_and_holds_up_nobody(pool, monkeypatch):
    side = side_of(pool, caches(fill=1))
    side.save(save_step([3, 4]))

    def broken(self, view, block):
        raise RuntimeError("broken")

    monkeypatch.setattr(module._Layer, "read", broken)
    assert load(side, load_step([0, 1], [5, 6])) == {5, 6}
    side.save(save_step([5, 6, 7], computed_from=2, start=30))
    assert pool.missing([key(32)]) == [True]


def test_parents_are_named_so_that_a_prefix_outlives_what_extends_it(pool):
    side_of(pool, caches(fill=1)).save(save_step([0, 1, 2]))
    stats = pool._open().stat_batch([key(0), key(1), key(2)])
    assert stats[0].parent_hash == 0 and stats[1].parent_hash != 0
    assert len({one.parent_hash for one in stats}) == 3
