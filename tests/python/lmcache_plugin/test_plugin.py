# SPDX-License-Identifier: Apache-2.0
"""LMCache's native plug-in: by itself, and behind LMCache's adapter where that is installed."""

import select
import types

import pytest
from mckv.lmcache import MckvConnector


@pytest.fixture
def connector():
    made = MckvConnector(agent="embedded")
    yield made
    made.close()


def result_of(connector, number):
    """The completion of a request, when the descriptor says that there is one."""
    found = []
    while not found:
        ready, _, _ = select.select([connector.event_fd()], [], [], 60)
        assert ready
        found = [one for one in connector.drain_completions() if one[0] == number]
    return found[0][1:]


def buffers(*texts):
    return [memoryview(bytearray(text)) for text in texts]


def test_set_exists_get_delete(connector):
    keys = ["m@0@0@aa", "m@0@0@bb"]
    done = result_of(connector, connector.submit_batch_set(keys, buffers(b"one", b"three")))
    assert done == (True, "", [True, True])
    done = result_of(connector, connector.submit_batch_exists([*keys, "m@0@0@cc"]))
    assert done == (True, "not all keys", [True, True, False])
    into = buffers(bytes(3), bytes(5), bytes(4))
    done = result_of(connector, connector.submit_batch_get([*keys, "m@0@0@cc"], into))
    assert done[0] and done[2] == [True, True, False]
    assert [bytes(one) for one in into] == [b"one", b"three", bytes(4)]
    assert result_of(connector, connector.submit_batch_delete(keys[:1]))[2] == [True]
    assert result_of(connector, connector.submit_batch_exists(keys))[2] == [False, True]


def test_chunks_of_other_weights_are_a_miss(make_agent, tmp_path):
    agent, version = make_agent(), tmp_path / "weights"

    def found_under(name):
        version.write_text(name)
        made = MckvConnector(agent=agent.socket, weights_version_file=str(version))
        try:
            found = result_of(made, made.submit_batch_exists(["k"]))[2]
            result_of(made, made.submit_batch_set(["k"], buffers(b"value")))
        finally:
            made.close()
        return found

    assert found_under("one") == [False]
    assert found_under("one") == [True]
    assert found_under("two") == [False]


def test_a_buffer_of_another_size_is_a_miss(connector):
    result_of(connector, connector.submit_batch_set(["k"], buffers(b"value")))
    for size in (4, 6):
        done = result_of(connector, connector.submit_batch_get(["k"], buffers(bytes(size))))
        assert done[2] == [False]


def test_what_cannot_be_done_is_told_and_the_next_request_served(connector):
    number = connector.submit_batch_get(["k"], [memoryview(b"read-only")])
    worked, why, results = result_of(connector, number)
    assert not worked and "TypeError" in why and results is None
    assert result_of(connector, connector.submit_batch_exists(["k"])) == (
        True, "not all keys", [False],
    )  # fmt: skip


def test_a_store_that_does_not_fit_has_not_worked():
    connector = MckvConnector(agent="embedded")
    big = memoryview(bytearray(2 << 30))
    worked, why, results = result_of(connector, connector.submit_batch_set(["k"], [big]))
    assert not worked and why and results == [False]
    connector.close()


def test_without_an_agent_there_is_nothing(tmp_path):
    connector = MckvConnector(agent=str(tmp_path / "none.sock"), timeout_seconds=0.05)
    assert result_of(connector, connector.submit_batch_exists(["k"]))[2] == [False]
    assert not result_of(connector, connector.submit_batch_set(["k"], buffers(b"v")))[0]
    connector.close()
    connector.close()
    with pytest.raises(RuntimeError, match="closed"):
        connector.submit_batch_exists(["k"])


def test_prefixes_are_apart(make_agent):
    agent = make_agent(pool_bytes="32MiB")
    one, two = (MckvConnector(agent=agent.socket, prefix=prefix) for prefix in "ab")
    result_of(one, one.submit_batch_set(["k"], buffers(b"v")))
    assert result_of(one, one.submit_batch_exists(["k"]))[2] == [True]
    assert result_of(two, two.submit_batch_exists(["k"]))[2] == [False]
    one.close()
    two.close()


def test_behind_lmcaches_own_adapter():
    pytest.importorskip("lmcache.v1.distributed.api", reason="LMCache is not installed")
    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.distributed.l2_adapters import native_plugin_l2_adapter as plugin

    config = plugin.NativePluginL2AdapterConfig.from_dict(
        {"module_path": "mckv.lmcache", "class_name": "MckvConnector",
         "adapter_params": {"agent": "embedded"}}
    )  # fmt: skip
    adapter = plugin._create_native_plugin_l2_adapter(config)

    def key(i):
        return ObjectKey(chunk_hash=bytes([i]) * 8, model_name="m", kv_rank=0)

    def chunk(text):
        return types.SimpleNamespace(byte_array=memoryview(bytearray(text)))

    def wait(fd, take):
        while True:
            assert select.select([fd], [], [], 60)[0]
            found = take()
            if found:
                return found

    task = adapter.submit_store_task([key(1), key(2)], [chunk(b"one"), chunk(b"two")])
    stored = wait(adapter.get_store_event_fd(), adapter.pop_completed_store_tasks)
    assert list(stored) == [task] and stored[task].is_successful()
    task = adapter.submit_lookup_and_lock_task([key(1), key(2), key(3)], {})
    found = wait(
        adapter.get_lookup_and_lock_event_fd(), lambda: adapter.query_lookup_and_lock_result(task)
    )
    assert [found.test(i) for i in range(3)] == [True, True, False]
    into = [chunk(bytes(3)) for _ in range(3)]
    task = adapter.submit_load_task([key(1), key(2), key(3)], into)
    loaded = wait(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
    assert [loaded.test(i) for i in range(3)] == [True, True, False]
    assert [bytes(one.byte_array) for one in into] == [b"one", b"two", bytes(3)]
    adapter.close()
