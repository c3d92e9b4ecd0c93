# SPDX-License-Identifier: Apache-2.0
"""Mooncake's proxy module, whose flags become those of `mckv proxy`."""

import pytest

pytest.importorskip("aiohttp", reason="mckv[proxy] is not installed")
pytest.importorskip("prometheus_client", reason="mckv[proxy] is not installed")

from mckv.proxy.options import parse  # noqa: E402
from mooncake.vllm_v1_proxy_server import proxy_arguments  # noqa: E402


def test_hosts_and_ports_become_instances():
    settings = parse(
        proxy_arguments(
            ["--prefiller-hosts", "a", "--prefiller-ports", "1", "2", "--decoder-host", "b", "c",
             "--decoder-port", "3", "4", "--port", "5"]
        )
    )  # fmt: skip
    assert (settings.way, settings.host, settings.port) == ("sequential", "127.0.0.1", 5)
    assert [(role, url) for role, url, _ in settings.instances] == [
        ("prefill", "http://a:1"), ("prefill", "http://a:2"),
        ("decode", "http://b:3"), ("decode", "http://c:4"),
    ]  # fmt: skip
    assert [url for _, url, _ in parse(proxy_arguments([])).instances] == [
        "http://localhost:8100", "http://localhost:8200",
    ]  # fmt: skip


def test_hosts_without_ports_are_refused(capsys):
    with pytest.raises(SystemExit):
        proxy_arguments(["--decoder-hosts", "a", "b"])
    assert "differ in number" in capsys.readouterr().err
