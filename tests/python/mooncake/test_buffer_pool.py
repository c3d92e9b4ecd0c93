# SPDX-License-Identifier: Apache-2.0
"""BufferPool: leases of registered memory, given back once nobody can see them any more."""

import gc
import threading

import pytest
from machine import WATCHDOG_S


@pytest.fixture
def make_pool(store):
    from mooncake.buffer_pool import BufferPool

    made = []

    def make(**options):
        made.append(BufferPool(store, **options))
        return made[-1]

    yield make
    gc.collect()
    for one in made:
        one.close()


def test_a_lease_is_memory_that_the_store_takes(make_pool, store, key):
    with make_pool().acquire(100) as lease:
        assert lease.size == 100 and lease.ptr
        view = lease.buffer
        assert (view.nbytes, view.readonly, view.format) == (100, False, "B")
        view[:5] = b"value"
        assert store.put_from(key, lease.ptr, 5) == 0
        view[:5] = bytes(5)
        assert store.get_into(key, lease.ptr, lease.size) == 5
        assert bytes(view[:5]) == b"value"
        del view
    with pytest.raises(RuntimeError, match="closed"):
        _ = lease.ptr
    assert lease.size == 100


def test_what_is_still_seen_is_not_given_back(make_pool):
    pool = make_pool()
    lease = pool.acquire(100)
    view = lease.buffer
    part = view[10:20]
    for attempt in (lease.release, lambda: lease.__exit__(None, None, None)):
        with pytest.raises(RuntimeError, match="exported views"):
            attempt()
    del view
    with pytest.raises(RuntimeError, match="exported views"):
        lease.release()
    del part
    lease.release()
    lease.release()


def test_a_view_outlives_its_lease(make_pool):
    pool = make_pool()
    view = pool.acquire(100).buffer
    gc.collect()
    view[:3] = b"abc"
    with pytest.raises(RuntimeError, match="active leases"):
        pool.close()
    assert bytes(view[:3]) == b"abc"
    del view
    gc.collect()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="pool is closed"):
        pool.acquire(10)


def test_more_than_the_local_buffer_can_be_had(make_pool):
    pool = make_pool()
    leases = [pool.acquire(40 << 20) for _ in range(3)]
    assert len({lease.ptr for lease in leases}) == 3
    for lease in leases:
        lease.release()


def test_a_limit_on_regions_is_kept(make_pool):
    pool = make_pool(max_regions=1)
    lease = pool.acquire(5)
    with pytest.raises(RuntimeError, match="exhausted"):
        pool.acquire(5, block=False) and pool.acquire(5 << 20, block=False)
    lease.release()


def test_a_buffer_may_be_larger_than_the_largest_class(make_pool):
    pool = make_pool(max_bytes=1 << 20, max_size_class=1 << 17, alignment=4096)
    for _ in range(20):
        lease = pool.acquire((1 << 17) + 1, block=False)
        assert lease.size == (1 << 17) + 1
        lease.release()


def test_the_package_has_the_buffer_pools():
    import mooncake
    import mooncake.buffer_pool

    assert mooncake.BufferPool is mooncake.RegisteredBufferPool is mooncake.buffer_pool.BufferPool
    with pytest.raises(AttributeError):
        _ = mooncake.NoSuchPool


def test_bad_arguments(make_pool, store):
    from mooncake.buffer_pool import BufferPool

    pool = make_pool()
    for size in (-1, 1.5, "a"):
        with pytest.raises(TypeError):
            pool.acquire(size)
    with pytest.raises(RuntimeError, match="capacity"):
        pool.acquire(1 << 40)
    with pytest.raises(RuntimeError, match="non-negative"):
        pool.acquire(10, timeout=-1)
    with pytest.raises(RuntimeError):
        BufferPool(5)
    for options in ({"min_size_class": 0}, {"alignment": 3}):
        with pytest.raises(RuntimeError):
            BufferPool(store, **options)
    assert pool.acquire(0).size == 0


@pytest.mark.ours_only
def test_who_waits_gets_what_another_thread_releases(make_pool):
    pool = make_pool(max_bytes=65536)
    lease = pool.acquire(1)
    at = lease.ptr
    with pytest.raises(RuntimeError, match="exhausted"):
        pool.acquire(1, timeout=0.01)
    got = []
    waiting = threading.Thread(target=lambda: got.append(pool.acquire(65536, timeout=WATCHDOG_S)))
    waiting.start()
    lease.release()
    waiting.join()
    assert got[0].ptr == at and got[0].size == 65536
    got.pop().release()
    with pytest.raises(RuntimeError, match="capacity"):
        pool.acquire(65537)


@pytest.mark.ours_only
def test_idle_regions_of_other_sizes_make_room(make_pool):
    pool = make_pool(max_bytes=4 << 16, prewarm_size=1, prewarm_count=9)
    with pool.acquire(4 << 16, block=False) as lease:
        assert lease.size == 4 << 16


@pytest.mark.ours_only
def test_a_region_beyond_the_largest_class_is_freed_with_its_buffer(make_pool):
    pool = make_pool(max_bytes=4 << 16, max_size_class=1 << 16)
    with pool.acquire(3 << 16):
        with pytest.raises(RuntimeError, match="exhausted"):
            pool.acquire(2 << 16, block=False)
    leases = [pool.acquire(1 << 16, block=False) for _ in range(4)]
    for lease in leases:
        lease.release()


@pytest.mark.ours_only
def test_threads_never_share_a_buffer(make_pool, long):
    pool = make_pool(max_bytes=3 << 16)
    failures = []

    def work(mark):
        for _ in range(2000 if long else 200):
            with pool.acquire(1000) as lease:
                view = lease.buffer
                view[:] = bytes([mark]) * 1000
                if bytes(view) != bytes([mark]) * 1000:
                    failures.append(mark)
                del view

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
