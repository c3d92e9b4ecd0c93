# SPDX-License-Identifier: Apache-2.0
"""What the connector's scheduler side asks for, step by step, with a pool inside this process."""

import types

import pytest
from mckv._engine_pool import Keys, Pool
from mckv.vllm.scheduler import SchedulerSide

BLOCK = 16


class Scene:
    """A scheduler side, and steps as vLLM describes them."""

    def __init__(self):
        self.pool = Pool("embedded", None, "test", 1.0)
        self.keys = Keys("test", {"model": "m"})
        self.side = SchedulerSide(self.pool, self.keys, BLOCK)

    def put(self, request, *blocks):
        for i in blocks:
            self.pool._open().put(self.keys.of(request.block_hashes[i]), b"block")

    def step(self, new=(), cached=(), finished=()):
        """new: (request, blocks, computed, scheduled); cached: those and whether it resumed."""
        return self.side.step(types.SimpleNamespace(
            finished_req_ids=set(finished),
            num_scheduled_tokens={one[0].request_id: one[3] for one in (*new, *cached)},
            scheduled_new_reqs=[
                types.SimpleNamespace(
                    req_id=request.request_id, block_ids=(blocks,), num_computed_tokens=computed)
                for request, blocks, computed, _ in new],
            scheduled_cached_reqs=types.SimpleNamespace(
                req_ids=[one[0].request_id for one in cached],
                new_block_ids=[(one[1],) if one[1] else None for one in cached],
                num_computed_tokens=[one[2] for one in cached],
                resumed_req_ids={one[0].request_id for one in cached if one[4]}),
        ))  # fmt: skip


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.pool.close()


def request_of(tokens, name="r"):
    hashes = [f"{name}{i}".encode() for i in range(tokens // BLOCK)]
    return types.SimpleNamespace(
        request_id=name, num_tokens=tokens, num_prompt_tokens=tokens, block_hashes=hashes
    )


def test_a_prompt_that_is_new_is_saved_as_its_blocks_fill(scene):
    request = request_of(70)
    assert scene.side.found_tokens(request, 0) == 0
    scene.side.allocated(request, [5, 6, 7, 8, 9], 0)
    step = scene.step(new=[(request, [5, 6, 7], 0, 40)])
    assert step.loads == [] and len(step.work) == 1
    of = [scene.keys.of(one) for one in request.block_hashes]
    assert step.work[0].saves == [(0, of[0], None), (1, of[1], of[0])]
    assert (step.work[0].block_ids, step.work[0].computed_from) == ([5, 6], 0)
    step = scene.step(cached=[(request, [8, 9], 40, 30, False)])
    assert step.work[0].saves == [(2, of[2], of[1]), (3, of[3], of[2])]
    assert (step.work[0].block_ids, step.work[0].computed_from) == ([5, 6, 7, 8], 2)
    # Decoding adds nothing: only prompts are saved.
    assert scene.step(cached=[(request, [10], 70, 1, False)]).work == []


def test_what_the_pool_has_is_loaded_and_one_token_left_to_compute(scene):
    request = request_of(64)
    scene.put(request, 0, 1, 2, 3)
    assert scene.side.found_tokens(request, 0) == 48
    assert scene.side.found_tokens(request, 16) == 32
    scene.side.allocated(request, [5, 6, 7, 8], 32)
    step = scene.step(new=[(request, [5, 6, 7, 8], 48, 16)])
    (load,) = step.loads
    assert load.block_ids == [6, 7]
    assert load.keys == [scene.keys.of(one) for one in request.block_hashes[1:3]]
    assert step.work[0].saves == []  # the last block is there already
    assert scene.step(cached=[(request, None, 64, 1, False)]).loads == []


def test_a_gap_ends_what_is_found(scene):
    request = request_of(100)
    scene.put(request, 0, 1, 3, 4)
    assert scene.side.found_tokens(request, 0) == 32
    assert scene.side.found_tokens(request, 32) == 0
    assert scene.side.found_tokens(request, 48) == 32


def test_after_a_failed_load_blocks_are_saved_again(scene):
    request = request_of(70)
    scene.put(request, 0, 1)
    scene.side.found_tokens(request, 0)
    scene.side.allocated(request, [5, 6, 7, 8, 9], 32)
    step = scene.step(new=[(request, [5, 6, 7, 8, 9], 32, 38)])
    assert [at for at, _, _ in step.work[0].saves] == [2, 3]
    # The worker reported block 6: vLLM computes from there on. It was no block, and is gone.
    scene.pool.remove([scene.keys.of(request.block_hashes[1])])
    step = scene.step(cached=[(request, None, 16, 54, False)])
    assert [at for at, _, _ in step.work[0].saves] == [1, 2, 3]
    assert step.work[0].computed_from == 1


def test_a_request_that_was_preempted_has_other_blocks(scene):
    request = request_of(70)
    scene.side.allocated(request, [1], 0)
    scene.step(new=[(request, [1, 2, 3, 4, 5], 0, 70)])
    scene.put(request, 0)
    scene.side.found_tokens(request, 0)
    scene.side.allocated(request, [11], 16)
    step = scene.step(cached=[(request, [11, 12, 13, 14, 15], 16, 54, True)])
    assert step.loads[0].block_ids == [11]
    assert step.work[0].block_ids == [11, 12, 13, 14]
    assert [at for at, _, _ in step.work[0].saves] == [1, 2, 3]


def test_finished_requests_are_forgotten(scene):
    request = request_of(70)
    scene.side.allocated(request, [1], 0)
    scene.step(new=[(request, [1, 2, 3, 4, 5], 0, 40)])
    scene.step(finished=["r"])
    assert scene.step(cached=[(request, None, 40, 30, False)]).work == []
    assert scene.side._tracked == {} == scene.side._asked


def test_names_differ_with_whatever_makes_blocks_differ(scene):
    names = {Keys(prefix, what).of(b"h") for prefix in "ab" for what in ({"m": 1}, {"m": 2})}
    assert len(names) == 4 and all(len(name) < 1024 for name in names)


def test_after_a_reset_nothing_from_before_is_loaded_or_saved(scene):
    request = request_of(70)
    scene.put(request, 0, 1, 2, 3)
    scene.side.reset()
    assert scene.side.found_tokens(request, 0) == 0
    scene.side.allocated(request, [1, 2, 3, 4, 5], 0)
    step = scene.step(new=[(request, [1, 2, 3], 0, 40)])
    assert [at for at, _, _ in step.work[0].saves] == [0, 1]
    # The first blocks of this request have KV of the old weights.
    scene.side.reset()
    step = scene.step(cached=[(request, [4, 5], 40, 30, False)])
    assert step.work[0].saves == [] and step.work[0].computed_from == 2
    # vLLM computes a request anew that it preempted.
    step = scene.step(cached=[(request, [11, 12, 13, 14, 15], 0, 70, True)])
    assert [at for at, _, _ in step.work[0].saves] == [0, 1, 2, 3]


def test_engines_share_blocks_under_equal_names_of_their_weights(tmp_path):
    named = tmp_path / "weights"

    def keys():
        return Keys("test", {"model": "m"}, str(named))

    one, without = keys(), Keys("test", {"model": "m"})
    assert one.of(b"h") == without.of(b"h"), "no file: no name"
    named.write_text("step 1\n")
    one.renew()
    two = keys()
    assert one.of(b"h") == two.of(b"h") != without.of(b"h")
    # A reset without a new name: the weights may be any.
    one.renew()
    three = keys()
    assert len({keys.of(b"h") for keys in (one, two, three)}) == 2 and two.start == three.start
    named.write_text("step 2\n")
    for engine in (one, two):
        engine.renew()
    assert one.of(b"h") == two.of(b"h") != three.of(b"h")


def test_a_pool_that_is_not_there_holds_nothing_and_is_left_alone(tmp_path, caplog):
    pool = Pool(str(tmp_path / "none.sock"), None, "test", 0.05)
    for _ in range(50):
        assert pool.leading([b"k"]) == 0 and pool.missing([b"k"]) == [False]
        assert pool.views([b"k"]) == [None] and pool.put([b"k"], [[0]], [[0]], [None]) == [False]
    assert len(caplog.records) == 1
    pool.close()


def test_a_pool_that_comes_is_used(make_agent, monkeypatch):
    import mckv._engine_pool

    monkeypatch.setattr(mckv._engine_pool, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(mckv._engine_pool, "_LONGEST_PAUSE_S", 0.0)
    agent = make_agent(pool_bytes="32MiB")
    pool = Pool(agent.socket + ".not", None, "test", 0.05)
    assert pool.leading([b"k"]) == 0
    pool._agent = agent.socket
    with mckv.Client(agent.socket) as other:
        other.put("k", b"v")
    assert pool.leading([b"k"]) == 1 and len(pool.views([b"k"])[0]) == 1
    pool.close()
