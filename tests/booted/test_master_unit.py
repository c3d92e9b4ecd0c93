# SPDX-License-Identifier: Apache-2.0
"""mc-master.service, alone and with an agent."""

import json
import pathlib
import secrets
import shutil
import subprocess

import mckv
import pytest
from conftest import CONFIG, run
from machine import WATCHDOG_S, free_port, until

SOCKET = "/run/mc/agent.sock"
WALL_CLOCK = pathlib.Path(__file__).parents[2] / "build/booted/wall_clock.so"


def start_cluster(master, agent, of_master="", of_agent=""):
    """A master and an agent with 51 objects."""
    address = f"127.0.0.1:{free_port()}"
    master.configure(f'listen = "{address}"\nrecover_ms = 100\n{of_master}')
    master.do("start")
    agent.configure(
        f'pool_bytes = "64MiB"\nmasters = "{address}"\n'
        f'listen = "127.0.0.1:{free_port()}"\n{of_agent}'
    )
    agent.do("start")
    with mckv.Client(SOCKET) as client:
        client.put("key", b"value")
        client.put_batch([b"key %d" % at for at in range(50)], [b"value"] * 50)
    until(lambda: entries() == 51)


def replace(name, text, mode=0o640):
    """Replaces a file of the configuration at once, as tools that renew certificates do."""
    new = CONFIG / (name + ".new")
    new.write_text(text)
    new.chmod(mode)
    shutil.chown(new, group="mc")
    new.rename(CONFIG / name)
    return CONFIG / name


@pytest.fixture
def cluster(master, agent):
    """A master and an agent as units: (master, agent)."""
    start_cluster(master, agent)
    return master, agent


def renew_certificate():
    """A new certificate of the master, which is its own authority."""
    run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-days", "2", "-subj", "/CN=master", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", "/tmp/key.pem", "-out", "/tmp/cert.pem",
    )  # fmt: skip
    replace("key.pem", pathlib.Path("/tmp/key.pem").read_text())
    return replace("cert.pem", pathlib.Path("/tmp/cert.pem").read_text())


@pytest.fixture
def encrypted(master, agent):
    """A cluster whose links have TLS: (master, agent)."""
    renew_certificate()
    start_cluster(
        master, agent,
        f'tls_cert = "{CONFIG}/cert.pem"\ntls_key = "{CONFIG}/key.pem"\n',
        f'master_tls_ca = "{CONFIG}/cert.pem"\n',
    )  # fmt: skip
    return master, agent


def entries():
    """The objects that the master knows; -1: no master answers."""
    done = subprocess.run(
        ["mcctl", "cluster", "status", "--json"],
        capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
    )  # fmt: skip
    return json.loads(done.stdout).get("master", {}).get("entries", -1) if done.stdout else -1


def test_the_master_is_started_once_it_listens(master):
    port = free_port()
    master.configure(f'listen = "127.0.0.1:{port}"\n')
    master.do("start")
    # systemctl waits for the master's word.
    assert f"127.0.0.1:{port}" in run("ss", "--no-header", "--listening", "--tcp", "--numeric")
    until(lambda: "ready" in master.events())


@pytest.mark.parametrize("end", ["kill", "restart"])
def test_agents_report_again_to_a_master_that_comes_back(cluster, end):
    master, agent = cluster
    if end == "kill":
        master.kill()
        master.await_restart(0)
    else:
        master.do("restart")
    until(lambda: entries() == 51)
    assert agent.show("NRestarts") == "0"


def test_a_killed_agent_is_back_in_the_cluster_with_its_objects(cluster):
    _, agent = cluster
    agent.kill()
    agent.await_restart(0)
    until(lambda: entries() == 51)
    with mckv.Client(SOCKET) as client:
        assert client.get("key") == b"value"


def test_a_wrong_configuration_is_named_in_the_journal(master):
    master.configure('listen = "nowhere"\n')
    master.try_to("start")
    until(lambda: master.says("nowhere"))


def test_renewed_certificates_count_without_a_restart_of_the_process_that_shows_or_checks_them(
    encrypted,
):
    master, agent = encrypted
    for restarted, stays in ((agent, master), (master, agent)):
        pid = stays.pid
        renew_certificate()
        restarted.do("restart")
        until(lambda: entries() == 51)
        assert stays.pid == pid


def test_a_certificate_that_cannot_be_used_is_named_and_the_one_before_stays(encrypted):
    master, agent = encrypted
    replace("key.pem", "no key\n")
    agent.do("restart")
    until(lambda: entries() == 51)
    until(lambda: "certificates_refused" in master.events())
    assert master.says("certificates_refused", f"{CONFIG}/key.pem")


def test_the_cluster_key_changes_while_objects_stay_and_hosts_reach_each_other(master, agent):
    def write(*lines):
        return replace("cluster.key", "".join(line + "\n" for line in lines))

    old, new = secrets.token_hex(32), secrets.token_hex(32)
    key = write(old)
    start_cluster(master, agent, f'cluster_key_file = "{key}"\n', f'cluster_key_file = "{key}"\n')
    for lines in ((old, new), (new, old, f"hashes {old}"), (new, f"hashes {old}")):
        write(*lines)
        for host in (master, agent):
            host.do("restart")
            until(lambda: entries() == 51)
    with mckv.Client(SOCKET) as client:
        assert all(client.exists_batch([b"key %d" % at for at in range(50)]))
    assert not agent.says("the same cluster key")


def test_an_agent_with_another_cluster_key_serves_its_objects_and_names_the_key(master, agent):
    key = replace("cluster.key", secrets.token_hex(32) + "\n")
    start_cluster(master, agent, f'cluster_key_file = "{key}"\n', f'cluster_key_file = "{key}"\n')
    replace("cluster.key", secrets.token_hex(32) + "\n")
    master.do("restart")
    until(lambda: agent.says("master_unreachable", "the same cluster key"))
    with mckv.Client(SOCKET) as client:
        assert client.get("key") == b"value"
    agent.do("restart")
    # The hashes of the directory have another secret, so the cluster knows nothing of the pool.
    until(lambda: agent.says("pool_set_aside", "hashes"))


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_an_agent_whose_clock_is_an_hour_off_serves(cluster, ahead_s):
    _, agent = cluster
    agent.set(Environment=f"LD_PRELOAD={WALL_CLOCK} WALL_CLOCK_AHEAD_S={ahead_s}")
    agent.do("restart")
    until(lambda: entries() == 51)
    with mckv.Client(SOCKET) as client:
        assert client.get("key") == b"value"
        client.put("off", b"value")
    until(lambda: entries() == 52)
    agent.set()
    agent.do("restart")
    until(lambda: entries() == 52)


def test_an_agent_whose_clock_is_before_a_certificate_names_the_clock(encrypted):
    _, agent = encrypted
    agent.set(Environment=f"LD_PRELOAD={WALL_CLOCK} WALL_CLOCK_AHEAD_S=-3600")
    agent.do("restart")
    until(lambda: agent.says("not yet valid", "clock"))
    with mckv.Client(SOCKET) as client:
        assert client.get("key") == b"value"
    agent.set()
    agent.do("restart")
    until(lambda: entries() == 51)


def test_a_master_whose_port_is_in_use_says_so_and_tries_again(master):
    master.try_without_port(lambda port: master.configure(f'listen = "127.0.0.1:{port}"\n'))
