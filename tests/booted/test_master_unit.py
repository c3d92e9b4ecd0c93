# SPDX-License-Identifier: Apache-2.0
"""mc-master.service, alone and with an agent."""

import json
import subprocess

import mckv
import pytest
from machine import WATCHDOG_S, free_port, until

SOCKET = "/run/mc/agent.sock"


@pytest.fixture
def cluster(master, agent):
    """A master and an agent as units: (master, agent)."""
    address = f"127.0.0.1:{free_port()}"
    master.configure(f'listen = "{address}"\nrecover_ms = 100\n')
    master.do("start")
    agent.configure(
        f'pool_bytes = "64MiB"\nmasters = "{address}"\nlisten = "127.0.0.1:{free_port()}"\n'
    )
    agent.do("start")
    with mckv.Client(SOCKET) as client:
        client.put("key", b"value")
        client.put_batch([b"key %d" % at for at in range(50)], [b"value"] * 50)
    return master, agent


def entries():
    """The objects that the master knows; -1: no master answers."""
    done = subprocess.run(
        ["mcctl", "cluster", "status", "--json"],
        capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
    )  # fmt: skip
    return json.loads(done.stdout).get("master", {}).get("entries", -1) if done.stdout else -1


@pytest.mark.parametrize("end", ["kill", "restart"])
def test_agents_report_again_to_a_master_that_comes_back(cluster, end):
    master, agent = cluster
    until(lambda: entries() == 51)
    if end == "kill":
        master.kill()
        master.await_restart(0)
    else:
        master.do("restart")
    until(lambda: entries() == 51)
    assert agent.show("NRestarts") == "0"


def test_a_killed_agent_is_back_in_the_cluster_with_its_objects(cluster):
    _, agent = cluster
    until(lambda: entries() == 51)
    agent.kill()
    agent.await_restart(0)
    until(lambda: entries() == 51)
    with mckv.Client(SOCKET) as client:
        assert client.get("key") == b"value"


def test_a_wrong_configuration_is_named_in_the_journal(master):
    master.configure('listen = "nowhere"\n')
    subprocess.run(["systemctl", "start", "mc-master"], timeout=WATCHDOG_S, check=False)
    until(lambda: any("nowhere" in entry["MESSAGE"] for entry in master.journal()))
