# SPDX-License-Identifier: Apache-2.0
"""Listings and removals by pattern over two hosts of a cluster, and on a host without a cluster."""

import asyncio
import signal

import mckv
import numpy as np
import pytest
from machine import WATCHDOG_S, until


@pytest.fixture
def hosts(hosts_of_module):
    here, there = hosts_of_module
    with mckv.Client(here.socket) as one, mckv.Client(there.socket) as other:
        yield one, other


def test_keys_are_those_of_all_hosts(hosts, key):
    names = sorted(key(f"{i:04}").encode() for i in range(1200))
    for at, client in enumerate(hosts):
        client.put_batch(names[at::2], [b"v"] * 600)
    odd = key("0001 %\xff").encode("latin1")
    hosts[1].put(odd, b"v")
    for client in hosts:
        assert list(client.keys(key)) == sorted([*names, odd])
        assert list(client.keys(odd[:-1])) == [odd]
    assert sorted(hosts[1].keys(key, local=True)) == sorted([*names[1::2], odd])


def test_a_page_of_long_keys_hides_no_later_key(hosts, key):
    long = sorted(f"{key}.a.{i:04}.{'x' * 900}".encode() for i in range(700))
    short = sorted(f"{key}.b.{i:04}".encode() for i in range(4000))
    hosts[0].put_batch(long, [b"v"] * len(long))
    hosts[1].put_batch(short, [b"v"] * len(short))
    assert list(hosts[1].keys(key)) == long + short


def test_a_new_listing_has_the_latest_keys(hosts, key):
    for i in range(5):
        hosts[i % 2].put(key(i), b"v")
        assert len(list(hosts[0].keys(key))) == i + 1


def test_what_matches_is_removed_from_all_hosts(hosts, key):
    names = [key(i) for i in range(40)]
    for at, client in enumerate(hosts):
        client.put_batch(names[at::2], [b"v"] * 20)
    escaped = key.replace(".", r"\.")
    assert hosts[0].remove_matching(regex=f"^{escaped}\\.1[0-9]$") == (10, 0)
    assert hosts[1].exists_batch(names) == [not 10 <= i < 20 for i in range(40)]
    assert hosts[1].remove_matching(key("2"), local=True) == (5, 0)
    assert hosts[0].remove_matching(key, timeout=WATCHDOG_S) == mckv.Removal(25, 0)
    assert not any(hosts[0].exists_batch(names))


@pytest.mark.parametrize("regex, construct", [("a(?=b)", "look-ahead"), (r"(a)\1", "back-ref")])
def test_a_pattern_without_linear_time_is_refused_by_name(hosts, regex, construct):
    with pytest.raises(mckv.InvalidArgumentError, match=construct):
        hosts[0].remove_matching(regex=regex)


def test_without_a_cluster_this_host_removes(client, key):
    client.put_batch([key(i) for i in range(4)], [b"v"] * 4)
    assert client.remove_matching(regex=f"{key}.[01]$".encode()) == (2, 0)
    assert client.remove_matching(key) == (2, 0)
    with pytest.raises(mckv.InvalidArgumentError, match="not a regular expression"):
        client.remove_matching(regex="(")


def test_a_host_that_does_not_answer_is_counted(hosts_of_module, hosts, key):
    for client in hosts:
        client.put(key(id(client)), b"v")
    there = hosts_of_module[1]
    there.send(signal.SIGSTOP)
    try:
        with pytest.raises((mckv.AgentUnavailableError, mckv.DeadlineError)):
            list(hosts[0].keys(key, timeout=0.2))
    finally:
        there.send(signal.SIGCONT)
    until(lambda: len(list(hosts[0].keys(key))) == 2)


def test_a_put_names_its_replicas_and_visibility(hosts, key):
    here, there = hosts
    rules = {"replicas": 2, "visibility": mckv.Visibility.LOCAL}
    here.put(key("put"), b"v", **rules)
    assert here.put_batch([key("batch")], [b"v"], **rules) == [mckv.Status.OK]
    with here.group() as group:
        group.put(key("group"), b"v", **rules)
    room = here.reserve(1)
    room.commit(key("commit"), **rules)
    here.put_tensor(key("tensor"), np.zeros(4), **rules)

    async def put():
        async with mckv.AsyncClient(here) as client:
            await client.put(key("async"), b"v", **rules)

    asyncio.run(put())
    names = [key(kind) for kind in ("put", "batch", "group", "commit", "tensor", "async")]
    until(lambda: [len(one) for one in there.holders(names)] == [2] * len(names))
    here.put(key("awaited"), b"v", replicas=2, visibility=mckv.Visibility.REPLICATED)
    assert len(there.holders([key("awaited")])[0]) == 2
    names = [key(f"%{i}") for i in range(300)]
    here.put_batch(names, [b"v"] * 300)
    own = {node["address"] for node in here.ask({"verb": "nodes"})["nodes"] if node["self"]}
    assert there.holders([*names, key("none")]) == [list(own)] * 300 + [[]]
    for wrong in ({"replicas": 9}, {"visibility": 3}, {"visibility": -1}):
        with pytest.raises(mckv.InvalidArgumentError):
            here.put(key("wrong"), b"v", **wrong)
