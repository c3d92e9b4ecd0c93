# SPDX-License-Identifier: Apache-2.0
"""The ports for Prometheus of real agents and masters."""

import re
import subprocess
import time
import urllib.error
import urllib.request

import mckv
import pytest
from machine import free_port, until

SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")


def fetch(port, path="/metrics", token=None):
    """(status, text)"""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(port, token=None):
    """{name{labels}: value} of a page whose every line is a comment or a sample."""
    status, text = fetch(port, token=token)
    if status == 503:  # the counters are not written yet
        return {}
    assert status == 200, text
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            found[name + (f"{{{labels}}}" if labels else "")] = float(value)
    return found


def test_an_agent_shows_what_its_clients_did(make_agent):
    port = free_port()
    agent = make_agent(metrics_listen=f"127.0.0.1:{port}")
    with mckv.Client(agent.socket) as client:
        for i in range(3):
            client.put(f"key {i}", b"x" * 4096)
        assert client.remove("key 0")
        assert client.get("key 1") == client.get("key 2")
        with client.view("key 1"), pytest.raises(mckv.NotFoundError):
            client.get("key 0")
        until(lambda: samples(port).get('mc_puts_total{namespace="default"}') == 3)
        hits = 'mc_local_reads_total{namespace="default",result="hit"}'
        until(lambda: samples(port)[hits] == 3)
        now = samples(port)
    assert now['mc_local_reads_total{namespace="default",result="miss"}'] == 1
    assert now['mc_local_read_bytes_total{namespace="default"}'] == 3 * 4096
    assert now['mc_objects{namespace="default"}'] == 2
    assert now['mc_put_bytes_total{namespace="default"}'] == 3 * 4096
    assert now['mc_requests_total{op="remove",status="MC_OK"}'] == 1
    assert now["mc_sessions"] == 1
    assert fetch(port, "/health") == (200, "ok\n")
    assert fetch(port, "/other")[0] == 404
    until(lambda: samples(port)["mc_sessions"] == 0)


def test_a_get_of_another_hosts_object_is_counted(make_agent):
    ports = [free_port(), free_port()]
    master = f"127.0.0.1:{free_port()}"
    agents = [
        make_agent(
            listen=f"127.0.0.1:{free_port()}", metrics_listen=f"127.0.0.1:{port}", **{role: master}
        )
        for port, role in zip(ports, ("master_listen", "masters"), strict=True)
    ]
    with mckv.Client(agents[0].socket) as putter, mckv.Client(agents[1].socket) as getter:
        until(lambda: getter.exists_batch([b"nowhere"]) == [False])
        putter.put("key", b"value")
        assert getter.get("key") == b"value"
        with pytest.raises(mckv.NotFoundError):
            getter.get("nowhere")
        until(lambda: samples(ports[1]).get("mc_remote_hits_total") == 1)
        now = samples(ports[1])
    assert now['mc_remote_misses_total{reason="no_holder"}'] >= 1
    assert now['mc_request_wait_seconds_count{op="fetch"}'] == 2
    for stage in ("locate", "ask", "read", "whole"):
        assert now[f'mc_remote_get_seconds_count{{stage="{stage}"}}'] == 1
    assert now["mc_cluster_members"] == 2


def test_a_port_in_use_is_a_warning_and_a_bad_address_an_error(make_agent):
    port = free_port()
    make_agent(metrics_listen=f"127.0.0.1:{port}")
    second = make_agent(metrics_listen=f"127.0.0.1:{port}")
    with mckv.Client(second.socket) as client:
        client.put("key", b"value")
    log = second.directory / "agent.log"
    until(lambda: "event=no_metrics" in log.read_text())
    line = next(line for line in log.read_text().splitlines() if "event=no_metrics" in line)
    assert "set metrics_listen" in line and str(port) in line
    for address, says in (("nonsense", "host:port"), ("0.0.0.0:1234", "http_token_file")):
        with pytest.raises(RuntimeError, match=says):
            make_agent(metrics_listen=address)


def test_beyond_loopback_a_scrape_needs_the_token(make_agent, tmp_path):
    port = free_port()
    token = tmp_path / "token"
    token.write_text("secret\n")
    make_agent(metrics_listen=f"0.0.0.0:{port}", http_token_file=token)
    assert fetch(port)[0] == 401
    assert fetch(port, token="wrong")[0] == 401
    assert fetch(port, "/health")[0] == 200
    until(lambda: "mc_agent_uptime_seconds" in samples(port, token="secret"))


def test_a_master_has_a_port_for_prometheus(tmp_path):
    port, listen = free_port(), free_port()
    command = [
        mckv.program("mc-master"),
        f"--listen=127.0.0.1:{listen}",
        f"--metrics-listen=127.0.0.1:{port}",
    ]
    with open(tmp_path / "log", "wb") as log:
        master = subprocess.Popen(command, stderr=log)
    try:
        until(lambda: b"event=ready" in (tmp_path / "log").read_bytes())
        until(lambda: samples(port)["mc_master_leads"] == 1)
        assert fetch(port, "/get_all_keys")[0] == 404
        second = subprocess.Popen(
            [*command[:1], f"--listen=127.0.0.1:{free_port()}", command[2]], stderr=subprocess.PIPE
        )
        said = b""
        until_s = time.monotonic() + 30
        while b"event=ready" not in said and time.monotonic() < until_s:
            said += second.stderr.readline()
        second.terminate()
        assert b"event=no_metrics" in said and second.wait(30) == 0
    finally:
        master.terminate()
        master.wait(30)
