# SPDX-License-Identifier: Apache-2.0
"""setup in all its forms, configuration of puts, life and death of a store."""

import ctypes
import gc
import json
import os
import signal

import pytest
from machine import WATCHDOG_S, free_port, run_master, until


def new():
    import mooncake.store

    return mooncake.store.MooncakeDistributedStore()


def test_positional(environment, master):
    store = new()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", master) == 0
    assert store.health_check() == 0
    assert store.get_hostname().startswith("127.0.0.1:")
    assert store.close() == 0


def test_keywords(environment, master):
    store = new()
    assert 0 == store.setup(
        local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", global_segment_size=64 << 20,
        local_buffer_size=16 << 20, protocol="tcp", rdma_devices="", master_server_addr=master,
        engine=None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default",
        enable_client_http_server=False, client_http_port=9300,
    )  # fmt: skip
    assert store.close() == 0


def test_an_unknown_keyword_is_a_type_error_that_names_it(environment, master):
    with pytest.raises(TypeError, match="bogus"):
        new().setup("127.0.0.1", "P2PHANDSHAKE", 1 << 24, 1 << 24, "tcp", "", master, bogus=1)


def test_wrong_types_are_type_errors(environment, master):
    for size in (-1, "16MB", None, 1.5):
        with pytest.raises(TypeError):
            new().setup("127.0.0.1", "P2PHANDSHAKE", size, 1 << 24, "tcp", "", master)
    with pytest.raises(TypeError):
        new().setup()


@pytest.mark.parametrize("sizes", [{}, {"global_segment_size": "32MB", "local_buffer_size": "16mb"},
                                   {"global_segment_size": 32 << 20}])  # fmt: skip
def test_dictionary(environment, master, key, sizes):
    store = new()
    config = {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp",
              "master_server_addr": master, "unknown_key": "is ignored", **sizes}  # fmt: skip
    assert store.setup(config) == 0
    assert store.put(key, b"v") == 0 and store.get(key) == b"v"
    assert store.close() == 0


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"metadata_server": "P2PHANDSHAKE"},
        {"local_hostname": "127.0.0.1"},
        {
            "local_hostname": "127.0.0.1",
            "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": "50%",
        },
    ],
)
def test_a_dictionary_that_lacks_something_is_refused(environment, config):
    assert new().setup(config) == -600


def test_setup_twice(make_store, master):
    store = make_store(64 << 20)
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "", master) == 0
    assert store.health_check() == 0


def test_close_twice(make_store):
    store = make_store(64 << 20)
    assert store.close() == 0
    assert store.close() == 0
    assert store.health_check() == 1
    assert store.get("key") == b""


def test_a_store_that_was_not_set_up(environment):
    store = new()
    assert store.health_check() == 1
    assert store.get("key") == b""
    assert store.close() == 0


@pytest.mark.ours_only
def test_no_call_on_a_closed_store_ends_the_process(environment, memory):
    for store in (new(), new()):
        assert store.put("k", b"v") == -601
        assert store.put_batch(["k"], [b"v"]) == -601
        assert store.put_parts("k", b"v") == -601
        assert store.get_buffer("k") is None and store.batch_get_buffer(["k"]) == [None]
        assert store.is_exist("k") == 0 and store.batch_is_exist(["k"]) == [0]
        assert store.get_size("k") == -601
        assert store.get_into("k", memory + 0, 5) == -601
        assert store.put_from("k", memory + 0, 5) == -601
        assert store.batch_get_into_multi_buffers(["k"], [[memory + 0]], [[5]]) == [-601]
        assert store.batch_put_from_multi_buffers(["k"], [[memory + 0]], [[5]]) == [-601]
        assert store.batch_get_session_start(["k"]) == [-601]
        assert store.batch_put_session_start(["k"], [5]) == [-601]
        assert store.remove("k") == -601 and store.remove_all() == -601
        assert store.remove_by_regex(".") == -601
        assert store.alloc_from_mem_pool(10) == 0
        store.close()


@pytest.mark.ours_only
def test_setup_dummy_needs_a_client(environment, monkeypatch):
    monkeypatch.delenv("MC_AGENT", raising=False)
    store = new()
    assert store.setup_dummy(16 << 20, 16 << 20, f"127.0.0.1:{free_port()}") == -900
    store.close()
    with pytest.raises(TypeError):
        new().setup_dummy("16MB", 1, "x")


@pytest.mark.ours_only
def test_what_is_lacking_fails_by_name(store):
    for name in ("mount_segment", "unmount_segment", "get_tensor_into_cuda"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(store, name)()


@pytest.mark.ours_only
def test_a_tenant_that_is_not_there_is_refused(environment, master):
    if environment == "joined":
        code = new().setup("h", "P2PHANDSHAKE", 1 << 24, 0, "tcp", "", master, tenant_id="nobody")
        assert code == -1701


@pytest.mark.ours_only
def test_an_agent_that_does_not_answer_is_no_embedded_pool(environment, master, monkeypatch):
    from mooncake import _pool

    monkeypatch.setenv("MC_AGENT", "/nonexistent/agent.sock")
    monkeypatch.setattr(_pool, "_pools", {})
    monkeypatch.setattr(_pool, "_PATIENCE_S", 0.2)
    assert new().setup("h", "P2PHANDSHAKE", 1 << 24, 0, "tcp", "", master) == -900


def test_stores_share_the_pool(make_store, key):
    one, two = make_store(64 << 20), make_store(64 << 20)
    assert one.put(key, b"v") == 0
    assert two.get(key) == b"v" and two.is_exist(key) == 1
    one.close()
    assert two.close() == 0


def config(**values):
    import mooncake.store

    made = mooncake.store.ReplicateConfig()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def test_the_configurations_defaults(environment):
    import mooncake.store as ms

    made = config()
    wanted = dict(
        replica_num=1, nof_replica_num=0, dfs_replica_num=0, soft_pin_ttl_ms=None,
        soft_pin_action=ms.SoftPinAction.PRESERVE, with_hard_pin=False, preferred_segments=[],
        preferred_segment="", preferred_nof_segments=[], prefer_alloc_in_same_node=False,
        data_type=ms.ObjectDataType.UNKNOWN, group_ids=None,
    )  # fmt: skip
    assert {name: getattr(made, name) for name in wanted} == wanted
    assert str(made) == (
        "ReplicateConfig: { replica_num: 1, nof_replica_num: 0, dfs_replica_num: 0, "
        "soft_pin_action: PRESERVE, soft_pin_ttl_ms: default, with_hard_pin: 0, "
        "preferred_segments: [], preferred_nof_segments: [], prefer_alloc_in_same_node: 0, "
        "data_type: UNKNOWN }"
    )


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"replica_num": 0}, -600),
        ({"replica_num": 2}, 0),
        ({"with_hard_pin": True}, 0),
        ({"soft_pin_ttl_ms": 1000}, -600),
        ({"preferred_segment": "nobody"}, 0),
        ({"preferred_segments": ["a", "b"]}, 0),
        ({"group_ids": ["g"]}, 0),
        ({"group_ids": ["g", "h"]}, -600),
        ({"nof_replica_num": 1}, -600),
        ({"dfs_replica_num": 1}, -1601),
    ],
    ids=str,
)
def test_configurations(store, memory, key, values, code):
    assert store.put(key(1), b"v", config(**values)) == code
    assert store.put_from(key(2), memory + 0, 5, config(**values)) == code
    got = store.batch_put_from_multi_buffers([key(3)], [[memory + 0]], [[5]], config(**values))
    assert got == [code]
    assert store.put_parts(key(4), b"a", config=config(**values)) == code


def test_soft_pins(store, key):
    import mooncake.store as ms

    enable = ms.SoftPinAction.ENABLE
    assert store.put(key(1), b"v", config(soft_pin_action=enable)) == 0
    assert store.put(key(2), b"v", config(soft_pin_action=enable, soft_pin_ttl_ms=5000)) == 0
    assert store.put(key(3), b"v", config(soft_pin_action=ms.SoftPinAction.DISABLE)) == 0


def test_prefer_alloc_in_same_node_is_accepted(store, key):
    assert store.put(key, b"v", config(prefer_alloc_in_same_node=True)) == 0


def test_wrong_configurations_raise(environment):
    for name, value in (
        ("replica_num", -1),
        ("replica_num", "x"),
        ("data_type", 5),
        ("with_hard_pin", "yes"),
        ("preferred_segments", [1]),
        ("soft_pin_action", 1),
    ):
        with pytest.raises(TypeError):
            config(**{name: value})
    with pytest.raises(AttributeError):
        config(nonsense=1)


def test_enumerations(environment):
    import mooncake.store as ms

    assert int(ms.ObjectDataType.GENERAL) == 9 and int(ms.ObjectDataType.KVCACHE) == 1
    assert int(ms.ReplicaStatus.COMPLETE) == 3 and int(ms.ReplicaStatus.FAILED) == 5
    assert int(ms.SoftPinAction.DISABLE) == 2 and int(ms.TaskStatus.FAILED) == 2
    assert int(ms.TaskType.REPLICA_MOVE) == 1
    assert ms.ObjectDataType.TENSOR.name == "TENSOR" and ms.ObjectDataType(2).value == 2
    assert ms.COMPLETE == ms.ReplicaStatus.COMPLETE and ms.KVCACHE == ms.ObjectDataType.KVCACHE


def test_the_asynchronous_store(environment, master, key):
    import asyncio

    from mooncake.async_store import MooncakeDistributedStoreAsync

    async def main():
        store = MooncakeDistributedStoreAsync()
        arguments = ("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", master)
        assert await store.async_setup(*arguments) == 0
        codes = await asyncio.gather(*(store.async_put(key(i), b"%d" % i) for i in range(20)))
        assert codes == [0] * 20
        assert await store.async_get(key(7)) == b"7" == store.get(key(7))
        for name in ("async_nothing", "nothing"):
            with pytest.raises(AttributeError, match=name):
                getattr(store, name)
        assert await store.async_close() == 0

    asyncio.run(main())


@pytest.mark.ours_only
def test_classes_that_are_not_there_say_so(environment):
    import mooncake.store as ms

    for name in "EngramStore EngramStoreConfig MooncakeDistributedNoFRegister".split():
        with pytest.raises(NotImplementedError, match=name):
            getattr(ms, name)()


def pool_of(store):
    (segment,) = store._client.ask({"verb": "segments"})["segments"]
    return segment


@pytest.mark.ours_only
def test_the_pool_of_a_named_agent_grows_to_the_sum_of_the_segments(make_agent, monkeypatch, key):
    agent = make_agent(pool_bytes="32MiB", max_pool_bytes="256MiB")
    monkeypatch.setenv("MC_AGENT", agent.socket)
    store, other, refused = new(), new(), new()
    assert store.setup("h", "P2PHANDSHAKE", 96 << 20, 1 << 20, "tcp", "", "") == 0
    names = [key(i) for i in range(6)]
    assert store.put_batch(names, [bytes(12 << 20)] * 6) == 0
    assert other.setup("h", "P2PHANDSHAKE", 16 << 20, 1 << 20, "tcp", "", "") == 0
    assert pool_of(store)["pool_bytes"] == 112 << 20
    assert other.batch_is_exist(names) == [1] * 6
    # The operator's limit stays.
    assert refused.setup("h", "P2PHANDSHAKE", 1 << 30, 1 << 20, "tcp", "", "") == 0
    assert pool_of(store)["pool_bytes"] == 112 << 20
    assert store.close() == 0
    assert pool_of(other)["pool_bytes"] == 32 << 20
    assert other.close() == 0 and refused.close() == 0


@pytest.mark.ours_only
def test_a_store_that_is_not_closed_takes_its_memory_along(make_agent, monkeypatch, key):
    import mckv

    agent = make_agent(pool_bytes="0", max_pool_bytes="256MiB")
    monkeypatch.setenv("MC_AGENT", agent.socket)
    arguments = ("h", "P2PHANDSHAKE", 32 << 20, 1 << 20, "tcp", "", "")
    store, other = new(), new()
    codes = [store.setup(*arguments), other.setup(*arguments)]
    assert codes == [0, 0] and pool_of(other)["contributed_bytes"] == 64 << 20
    del store
    gc.collect()
    assert pool_of(other)["contributed_bytes"] == 32 << 20
    code, view = other.put(key, b"v"), other.get_buffer(key)
    del other
    gc.collect()
    assert code == 0 and bytes(view) == b"v"
    del view
    with mckv.Client(agent.socket) as client:
        until(lambda: client.ask({"verb": "segments"})["segments"][0]["contributed_bytes"] == 0)


def test_bytes_need_a_local_buffer(environment, master, key):
    store = new()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 32 << 20, 0, "tcp", "", master) == 0
    assert store.put(key, b"v") == -600 and store.upsert(key, b"v") == -600
    assert store.put_parts(key, b"v", b"w") == -600 and store.put_batch([key], [b"v"]) == -600
    assert store.is_exist(key) == 0
    memory = ctypes.create_string_buffer(b"value", 4096)
    at = ctypes.addressof(memory)
    assert store.register_buffer(at, 4096) == 0 and store.put_from(key, at, 5) == 0
    assert store.get_into(key, at, 4096) == 5
    assert store.unregister_buffer(at) == 0 and store.close() == 0


@pytest.mark.ours_only
def test_a_dead_master_is_an_error(runtime_dir, monkeypatch, caplog):
    from mooncake import _pool

    monkeypatch.setattr(_pool, "_PATIENCE_S", 0.2)
    address = f"127.0.0.1:{free_port()}"
    assert new().setup("h", "P2PHANDSHAKE", 64 << 20, 1 << 20, "tcp", "", address) == -900
    assert f"cannot reach {address}: Connection refused; start a master there" in caplog.text


@pytest.mark.ours_only
def test_two_masters_of_a_host_are_two_clusters(runtime_dir, key):
    with run_master("a") as one, run_master("b") as two:
        here, there = new(), new()
        for store, master in ((here, one), (there, two)):
            assert store.setup("h", "P2PHANDSHAKE", 64 << 20, 1 << 20, "tcp", "", master) == 0
        assert here.put(key, b"v") == 0
        assert here.get(key) == b"v" and there.get(key) == b""
        assert there.remove_all() == 0 and here.is_exist(key) == 1
        assert here.close() == 0 and there.close() == 0


@pytest.mark.ours_only
def test_a_killed_agent_runs_again_with_its_objects(runtime_dir, key, monkeypatch):
    from mooncake import _pool

    monkeypatch.setattr(_pool, "_LOOK_S", 0.1)
    with run_master("d") as master:
        store = new()
        assert store.setup("h", "P2PHANDSHAKE", 64 << 20, 1 << 20, "tcp", "", master) == 0
        assert store.put(key(1), b"v") == 0
        os.kill(store._client.ask({"verb": "status"})["pid"], signal.SIGKILL)
        assert store.put(key(2), b"v") == 0
        assert store.batch_is_exist([key(1), key(2)]) == [1, 1]
        assert pool_of(store)["contributed_bytes"] == 64 << 20
        assert store.close() == 0


@pytest.mark.ours_only
def test_a_process_that_ends_withdraws_its_segment(runtime_dir, run_python):
    with run_master("c") as master:
        store = new()
        assert store.setup("h", "P2PHANDSHAKE", 64 << 20, 1 << 20, "tcp", "", master) == 0
        code, said, errors = run_python(
            """import sys, mooncake.store
store = mooncake.store.MooncakeDistributedStore()
print(store.setup("h", "P2PHANDSHAKE", 64 << 20, 1 << 20, "tcp", "", sys.argv[1]))
print(store._client.ask({"verb": "segments"})["segments"][0]["contributed_bytes"])
""",
            master,
        )
        assert (code, said) == (0, f"0\n{128 << 20}\n"), errors
        assert pool_of(store)["contributed_bytes"] == 64 << 20
        assert store.close() == 0


def test_a_stores_own_health_and_metrics(environment, master, key):
    import urllib.error
    import urllib.request

    port = free_port()

    def fetch(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WATCHDOG_S) as answer:
            return answer.status, answer.read().decode()

    arguments = ("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", master)
    store = new()
    more = {"enable_client_http_server": True, "client_http_port": port}
    assert store.setup(*arguments, **more) == 0
    assert json.loads(fetch("/health")[1]) == {"status": "healthy", "code": 0}
    assert fetch("/metrics")[0] == 200 and "_" in fetch("/metrics")[1]
    assert fetch("/metrics/summary")[0] == 200
    for path in ("/get_all_keys", "/other"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(path)
    assert store.close() == 0
    with pytest.raises(OSError):
        fetch("/health")


@pytest.mark.ours_only
def test_a_port_that_is_taken_is_refused(environment, master):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        store = new()
        code = store.setup(
            "h", "P2PHANDSHAKE", 64 << 20, 0, "tcp", "", master,
            enable_client_http_server=True, client_http_port=port,
        )  # fmt: skip
        assert code == -600 and store.health_check() == 1


def test_a_segment_that_is_added_enlarges_the_pool(make_store, key):
    store = make_store(64 << 20)
    added = store.allocate_and_mount_segment(16 << 20)
    assert added["ret"] == 0 and added["allocated_size"] == 16 << 20
    assert store.put(key, bytes(1 << 20)) == 0
    assert store.unmount_and_free_segment(added["segment_ids"]) == 0
    assert store.unmount_and_free_segment(added["segment_ids"]) < 0
    assert store.unmount_and_free_segment(["nothing"]) < 0
    assert store.unmount_and_free_segment([]) == 0
    assert store.allocate_and_mount_segment(0)["ret"] < 0


@pytest.mark.ours_only
def test_the_agents_pool_grows_and_shrinks_by_segments(make_agent, monkeypatch):
    agent = make_agent(pool_bytes="32MiB")
    monkeypatch.setenv("MC_AGENT", agent.socket)
    store = new()
    assert store.setup("h", "P2PHANDSHAKE", 64 << 20, 1 << 20, "tcp", "", "") == 0

    def pool_bytes():
        return pool_of(store)["pool_bytes"]

    one, two = (store.allocate_and_mount_segment(size << 20)["segment_ids"] for size in (16, 32))
    assert pool_bytes() == 112 << 20
    assert store.unmount_and_free_segment(one + one) == -600 and pool_bytes() == 112 << 20
    assert store.unmount_and_free_segment(one + two) == 0 and pool_bytes() == 64 << 20
    assert store.allocate_and_mount_segment(1 << 50)["ret"] < 0 and pool_bytes() == 64 << 20
    store.close()
