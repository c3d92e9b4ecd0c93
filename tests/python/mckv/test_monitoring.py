# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus evaluates the dashboard and the alerts of systemd/monitoring.

The Prometheus scrapes two agents and a master.
"""

import itertools
import json
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import mckv
import pytest
from machine import WATCHDOG_S, free_port, until

FOLDER = pathlib.Path(__file__).parents[3] / "systemd" / "monitoring"
AGENT, MASTER = '"127.0.0.1:9464"', '"127.0.0.1:9465"'  # in prometheus.yml


class Prometheus:
    def __init__(self, directory, agents, masters):
        def listed(ports):
            return ", ".join(f'"127.0.0.1:{port}"' for port in ports)

        text = (FOLDER / "prometheus.yml").read_text()
        assert text.count(AGENT) == text.count(MASTER) == 1
        text = text.replace(AGENT, listed(agents)).replace(MASTER, listed(masters))
        (directory / "prometheus.yml").write_text(text.replace("interval: 15s", "interval: 500ms"))
        shutil.copy(FOLDER / "mc.rules.yml", directory)
        self._port = free_port()
        self._log = open(directory / "prometheus.log", "w")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={directory}/prometheus.yml",
             f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address=127.0.0.1:{self._port}"],
            stderr=self._log,
        )  # fmt: skip

    def ask(self, page, **query):
        """The data of an answer; None: Prometheus does not answer yet."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{page}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except ConnectionError:
            return None
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                return None
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        except urllib.error.URLError:
            return None

    def query(self, text):
        """[(labels, value)]"""
        data = self.ask("query", query=text)
        return [(each["metric"], each["value"][1]) for each in data["result"]] if data else []

    def end(self):
        self._process.terminate()
        self._process.wait(WATCHDOG_S)
        self._log.close()


@pytest.fixture(scope="module")
def prometheus(make_module_agent, tmp_path_factory):
    """A Prometheus that has scraped two agents and a master while clients were at work."""
    if shutil.which("prometheus") is None:
        # tests/run --python installs no servers. The short check does, so nothing is skipped there.
        pytest.skip("Prometheus is not installed; ctl/install-deps test brings it")
    directory = tmp_path_factory.mktemp("prometheus")
    master, *ports = (free_port() for _ in range(4))
    process = subprocess.Popen(
        [mckv.program("mc-master"), f"--listen=127.0.0.1:{master}",
         f"--metrics-listen=127.0.0.1:{ports[0]}", "--recover-ms=100", "--log-level=warn"],
    )  # fmt: skip
    server = None
    try:
        agents = [
            make_module_agent(
                masters=f"127.0.0.1:{master}",
                listen=f"127.0.0.1:{free_port()}",
                metrics_listen=f"127.0.0.1:{port}",
            )
            for port in ports[1:]
        ]
        server = Prometheus(directory, ports[1:], ports[:1])
        with mckv.Client(agents[0].socket) as putter, mckv.Client(agents[1].socket) as getter:
            until(lambda: getter.exists_batch([b"nowhere"]) == [False])

            numbers = itertools.count()

            def works():
                key = f"key {next(numbers)}"
                putter.put(key, b"x" * 4096)
                assert getter.get(key) == b"x" * 4096
                return len(server.query("rate(mc_remote_hits_total[1m]) > 0")) == 1

            until(works)
            until(lambda: len(server.query("up == 1")) == 3)
        yield server
    finally:
        if server is not None:
            server.end()
        process.terminate()
        process.wait(WATCHDOG_S)


def test_each_query_of_the_dashboard_returns_data(prometheus):
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) > 20
    for query in queries:
        text = query.replace("$instance", ".*").replace("$__rate_interval", "1m")
        try:
            until(lambda text=text: prometheus.query(text))
        except AssertionError:
            raise AssertionError(f"no data: {text}") from None


def test_each_alert_is_evaluated_over_metrics_that_exist(prometheus):
    def alerts():
        data = prometheus.ask("rules")
        rules = [rule for group in data["groups"] for rule in group["rules"]]
        return rules if all(rule["health"] == "ok" for rule in rules) else None

    until(alerts)
    rules = alerts()
    assert len(rules) == (FOLDER / "mc.rules.yml").read_text().count("- alert:") > 10
    for rule in rules:
        assert rule["annotations"]["summary"] and rule["annotations"]["remedy"], rule["name"]
        without_labels = re.sub(r"\{.*?\}", "", rule["query"])
        for name in re.findall(r"\b(?:mc_|master_)\w+|\bup\b", without_labels):
            assert prometheus.query(name), f"{rule['name']}: {name}"
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    assert firing <= {"McElections"}, "nothing is wrong with this cluster"
