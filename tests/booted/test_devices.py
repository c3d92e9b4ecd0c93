# SPDX-License-Identifier: Apache-2.0
"""mc-agent.service on a machine with RDMA devices: tests/run --booted starts a virtual one."""

import pathlib
import shutil

import pytest
from conftest import DROP_INS, run
from machine import free_port, until


def configure(agent, *lines):
    """A member of a cluster whose master is away."""
    agent.configure(
        f'masters = "127.0.0.1:1"\nlisten = "127.0.0.1:{free_port()}"\n' + "\n".join(lines) + "\n"
    )


@pytest.fixture
def drop_in(agent):
    folder = DROP_INS / "mc-agent.service.d"

    def install():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy("/usr/share/doc/mc/rdma.conf", folder)
        run("systemctl", "daemon-reload")

    return install


def test_a_unit_without_the_drop_in_names_the_drop_in(agent, drop_in):
    configure(agent)
    agent.do("start")
    until(lambda: agent.says("tcp_alone", "rdma.conf"))
    configure(agent, 'transports = "rdma"')
    agent.try_to("restart")
    until(lambda: agent.says('transports = "rdma"', "rdma.conf"))
    drop_in()
    until(lambda: "with_rdma" in agent.events())
    until(agent.is_active)


def test_the_drop_in_shows_the_agent_all_devices_of_the_host(agent, drop_in):
    configure(agent)
    drop_in()
    agent.do("start")
    until(lambda: "with_rdma" in agent.events())
    seen = next(entry["MC_DEVICES"] for entry in agent.journal() if "MC_DEVICES" in entry)
    devices = {path.name for path in pathlib.Path("/sys/class/infiniband").iterdir()}
    assert set(seen.split(", ")) == devices


def test_the_unit_may_require_huge_pages(agent):
    agent.configure('pool_bytes = "64MiB"\nhuge_pages = "require"\n')
    agent.do("start")
    assert agent.is_active()
