# SPDX-License-Identifier: Apache-2.0
"""mc_store_rest_server, a process with an agent: Mooncake's paths and answers; bad requests."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from machine import WATCHDOG_S, free_port

pytestmark = pytest.mark.ours_only


def launch(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MOONCAKE")}
    return subprocess.Popen(
        [sys.executable, "-m", "mooncake.mooncake_store_service", *arguments],
        # The default of 3 GiB enlarges the pool of a shared agent for all later tests.
        env={**clean, "MOONCAKE_MASTER": "127.0.0.1:50051",
             "MOONCAKE_GLOBAL_SEGMENT_SIZE": "16mb", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


class Service:
    def __init__(self, process, port):
        self.process, self.port = process, port

    def ask(self, method, path, body=None, headers=None):
        """(status, bytes); a body that is no text or bytes goes as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG_S)
        with contextlib.closing(connection):
            if body is not None and not isinstance(body, bytes | str):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def json(self, *arguments, **more):
        status, text = self.ask(*arguments, **more)
        return status, json.loads(text)


@pytest.fixture(scope="module")
def start_service(make_module_agent):
    with contextlib.ExitStack() as stack:

        def start(*arguments, agent=None, **environment):
            port = free_port()
            agent = agent or make_module_agent(pool_bytes="64MiB")
            process = launch(
                f"--port={port}", "-Dglobal_segment_size=0", *arguments,
                MC_AGENT=agent.socket, **environment,
            )  # fmt: skip
            service = Service(process, port)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            deadline = time.monotonic() + WATCHDOG_S
            while True:
                with contextlib.suppress(OSError):
                    service.ask("GET", "/health")
                    return service
                assert process.poll() is None and time.monotonic() < deadline, process.communicate()
                time.sleep(0.05)

        yield start


@pytest.fixture(scope="module")
def service(start_service):
    return start_service()


def test_put_get_exist_remove(service):
    ask = service.json
    assert ask("PUT", "/api/put", {"key": "a", "value": "täxt"}) == (200, {"status": "success"})
    assert service.ask("GET", "/api/get/a") == (200, "täxt".encode())
    assert ask("GET", "/api/exist/a") == (200, {"exists": True})
    assert ask("GET", "/api/exist/b") == (200, {"exists": False})
    assert ask("DELETE", "/api/remove/a") == (200, {"status": "success"})
    for method, path in (("DELETE", "/api/remove/a"), ("GET", "/api/get/a")):
        status, body = ask(method, path)
        assert status == 404 and "Key not found" in body["error"]
    for name in ("x/y", "x y", "ü"):
        assert ask("PUT", "/api/put", {"key": name, "value": "v"})[0] == 200
    assert service.ask("GET", "/api/get/x/y") == service.ask("GET", "/api/get/x%2Fy") == (200, b"v")
    assert service.ask("GET", "/api/get/x%20y") == service.ask("GET", "/api/get/%C3%BC")
    assert ask("DELETE", "/api/remove_all") == (200, {"status": "success removed 3 keys"})


def test_a_web_page_changes_nothing_without_a_token(service):
    page = {"Origin": "https://example.org"}
    assert service.ask("DELETE", "/api/remove_all", headers=page)[0] == 401
    assert service.ask("GET", "/api/exist/b", headers=page)[0] == 200


def test_large_objects_pass_whole(service):
    value = "0123456789abcdef" * (5 << 16)
    assert service.ask("PUT", "/api/put", {"key": "large", "value": value})[0] == 200
    assert service.ask("GET", "/api/get/large") == (200, value.encode())


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "5", b"\xff", {}, {"key": "a"}, {"value": "a"}, {"key": "", "value": "v"},
     {"key": "a", "value": ""}, {"key": 5, "value": "v"}, {"key": "a", "value": ["v"]},
     {"key": "a" * 1025, "value": "v"}, '{"key": "\\ud800", "value": "v"}', "[" * 100000],
)  # fmt: skip
def test_a_bad_put_is_400_with_its_cause(service, body):
    status, answer = service.json("PUT", "/api/put", body)
    assert status == 400 and len(answer["error"]) > 10 and answer["code"] == 400


def test_what_does_not_fit_is_507(service):
    status, answer = service.json("PUT", "/api/put", {"key": "big", "value": "x" * (80 << 20)})
    assert status == 507 and "no space" in answer["error"]


def test_a_body_over_100_mib_is_413_before_it_is_kept(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=WATCHDOG_S)
    connection.putrequest("PUT", "/api/put")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    with contextlib.suppress(OSError):
        for _ in range(101):
            connection.send(chunk)
        connection.send(b"0\r\n\r\n")
    answer = connection.getresponse()
    assert answer.status == 413 and b"longer than 104857600 bytes" in answer.read()
    connection.close()
    assert service.ask("GET", "/health")[0] == 200


def test_segments(service):
    ask = service.json
    status, made = ask("POST", "/api/mount", {"size": 16 << 20})
    assert status == 200 and made["allocated_size"] == 16 << 20
    names = {"segment_ids": made["segment_ids"], "grace_period_seconds": 5}
    assert ask("POST", "/api/unmount", names) == (200, {"status": "success"})
    assert ask("POST", "/api/unmount", names)[0] == 400
    for path, bodies in {
        "/api/mount": [{}, {"size": 0}, {"size": -1}, {"size": "1"}, {"size": True}],
        "/api/unmount": [{}, {"segment_ids": []}, {"segment_ids": [5]}, {"segment_ids": 5},
                         {"segment_ids": "a", "grace_period_seconds": 3601}],
        "/api/unmount_local_disk": [{"grace_period_seconds": -1}, {"grace_period_seconds": "5"}],
        "/api/reconfigure": [{}, {"mode": "other"}, {"mode": "decode"}, {"mode": 5}],
    }.items():  # fmt: skip
        for body in bodies:
            assert ask("POST", path, body)[0] == 400, (path, body)
    assert ask("POST", "/api/reconfigure", {"mode": "prefill"})[1]["mode"] == "prefill"
    decode = {"mode": "decode", "path": "/dev/shm/x", "size": 1}
    assert ask("POST", "/api/unmount_local_disk", {}) == (200, {"status": "success"})
    for path, body in (("reconfigure", decode), ("mount_shm", {})):
        status, answer = ask("POST", f"/api/{path}", body)
        assert status == 501 and len(answer["error"]) > 20


def test_paths_and_methods_that_are_not_there(service):
    assert service.json("GET", "/other")[0] == 404
    assert service.json("GET", "/api/put")[0] == 405
    assert service.json("GET", "/api/get/")[0] == 404


def test_an_agent_that_ends_is_503(start_service, make_agent):
    agent = make_agent(pool_bytes="32MiB")
    service = start_service(agent=agent)
    agent.end(signal.SIGKILL)
    deadline = time.monotonic() + WATCHDOG_S
    while service.ask("GET", "/health")[0] == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert service.json("GET", "/health")[0] == 503
    assert service.json("PUT", "/api/put", {"key": "k", "value": "v"})[0] in (503, 504)


def test_the_key_is_asked_for_where_one_is_set(start_service):
    service = start_service("--host=0.0.0.0", ADMIN_API_KEY="secret")
    for key in ("", "secre", "secrets", "ä", "x" * 5000):
        headers = {"X-API-Key": key.encode()} if key else {}
        assert service.ask("GET", "/api/exist/a", headers=headers)[0] == 401
        assert service.ask("DELETE", "/api/remove_all", headers=headers)[0] == 401
    assert service.ask("GET", "/api/exist/a", headers={"X-API-Key": "secret"})[0] == 200
    assert service.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host=0.0.0.0"], "ADMIN_API_KEY"),
        (["-Dlocal_hostnme=a"], "did you mean local_hostname"),
        (["-Dprotocol"], "NAME=VALUE"),
        (["-Dglobal_segment_size=much"], "much"),
        (["--config=/nonexistent"], "nonexistent"),
        (["--max-wait-time=0", "-Dtenant_id=nobody"], "cannot be set up"),
    ],
)
def test_what_cannot_start_says_why(shared_agent, arguments, said):
    process = launch(f"--port={free_port()}", *arguments, MC_AGENT=shared_agent.socket)
    assert said in process.communicate(timeout=WATCHDOG_S)[1] and process.returncode == 1


def test_it_waits_for_the_agent_and_ends_on_a_signal_meanwhile():
    process = launch(f"--port={free_port()}", MC_AGENT="/nonexistent/agent.sock")
    for line in process.stderr:
        if "setup" in line:
            break
    process.terminate()
    process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == 0


def test_settings_come_from_a_file(start_service, tmp_path):
    config = tmp_path / "mooncake.json"
    config.write_text(
        json.dumps({"local_hostname": "h", "metadata_server": "P2PHANDSHAKE",
                    "master_server_address": "127.0.0.1:50051", "global_segment_size": "16mb"})
    )  # fmt: skip
    service = start_service(f"--config={config}", "-Dlocal_buffer_size=1mb")
    assert service.ask("GET", "/health")[0] == 200
