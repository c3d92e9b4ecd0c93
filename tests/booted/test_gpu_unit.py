# SPDX-License-Identifier: Apache-2.0
"""mc-gpu@.service, with the fake driver: the container has no GPU."""

import json
import os
import pathlib

import pytest
from conftest import Unit, run
from machine import until

DRIVER = pathlib.Path(__file__).parents[2] / "build/booted"


@pytest.fixture
def worker():
    unit = Unit("mc-gpu@0", "gpu.toml")
    yield unit
    unit.end()


def workers():
    return json.loads(run("mcctl", "status", "--json"))["gpu_workers"]


def test_a_host_without_a_driver_has_no_worker(agent, worker):
    agent.configure('pool_bytes = "64MiB"\n')
    agent.do("start")
    worker.try_to("start")
    until(lambda: worker.says("libcuda.so.1"))
    until(lambda: worker.show("ActiveState") == "failed")
    assert worker.show("NRestarts") == "0"
    assert workers() == [] and agent.is_active()


def test_the_worker_serves_ends_and_restarts_with_its_agent(agent, worker):
    agent.configure('pool_bytes = "64MiB"\n')
    agent.do("start")
    worker.set(Environment=f"LD_LIBRARY_PATH={DRIVER}")
    worker.do("start")
    until(lambda: [at["pid"] for at in workers()] == [worker.pid])
    until(lambda: workers()[0]["pinned_bytes"] == 64 << 20)
    assert "GPU-fa" in run("mcctl", "status")
    # The worker dies.
    restarts = int(worker.show("NRestarts"))
    worker.kill()
    worker.await_restart(restarts)
    until(lambda: [at["pid"] for at in workers()] == [worker.pid])
    # The agent dies, and its next process waits for no worker.
    first, before = worker.pid, int(agent.show("NRestarts"))
    agent.kill()
    agent.await_restart(before)
    until(lambda: workers() and worker.pid != first and workers()[0]["pid"] == worker.pid)
    # A restart and a stop of the agent are the worker's, too.
    second = worker.pid
    agent.do("restart")
    until(lambda: workers() and workers()[0]["pid"] != second)
    agent.do("stop")
    until(lambda: worker.show("ActiveState") == "inactive")


def test_the_agent_has_no_device_and_the_worker_only_those_of_gpus(agent, worker):
    agent.configure('pool_bytes = "64MiB"\n')
    agent.do("start")
    worker.set(Environment=f"LD_LIBRARY_PATH={DRIVER}")
    worker.do("start")
    until(lambda: len(workers()) == 1)
    assert agent.show("PrivateDevices") == "yes"
    assert worker.show("DevicePolicy") == "closed"
    assert "char-nvidia*" in worker.show("DeviceAllow")
    assert os.stat(f"/proc/{worker.pid}").st_uid == os.stat(f"/proc/{agent.pid}").st_uid
