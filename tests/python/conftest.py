# SPDX-License-Identifier: Apache-2.0
"""Agents and clients for the tests; a watchdog that ends a test which waits for ever."""

import contextlib
import faulthandler
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest
from machine import (
    TEST_LIMIT_S,
    TIME_SCALE,
    WATCHDOG_S,
    end_agents,
    free_port,
    stop_process,
    until,
)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="soaks in their long form")
    parser.addoption(
        "--results",
        help="append a line for each test (tests/judge reads them); tests with a result do not run",
    )
    parser.addoption(
        "--claims", help="run only test files that no other process with this folder has claimed"
    )


class Claims:
    """Divides the test files among processes. A claim names the process that runs a test file."""

    def __init__(self, folder, process):
        self._folder = pathlib.Path(folder)
        self._process = process

    def _claim(self, path):
        claim = self._folder / str(path).replace("/", "%")
        try:
            with open(claim, "x") as file:
                file.write(self._process)
            return True
        except FileExistsError:
            # A process that has begun anew goes on with its files.
            return claim.read_text() == self._process

    def pytest_runtestloop(self, session):
        if session.testsfailed:
            return None  # pytest says which file it could not collect
        files = itertools.groupby(session.items, lambda item: item.path)
        items = (item for path, of_file in files if self._claim(path) for item in of_file)
        item = next(items, None)
        while item is not None:
            # Fixtures that the next test also uses stay open.
            following = next(items, None)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:  # --exitfirst, --maxfail
                raise session.Failed(session.shouldfail)
            item = following
        return True


class Results:
    """A file with a JSON list for each begin and end of a test: [node id, state, output, crash].

    A process that dies leaves a begin without an end, so the next process knows where to go on.
    """

    def __init__(self, path):
        self._path = path

    def pytest_collection_modifyitems(self, config, items):
        done = set()
        if os.path.exists(self._path):
            with open(self._path) as lines:
                rows = [json.loads(line) for line in lines]
            done = {name for name, state, _, _ in rows if state != "begins"}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]

    def _write(self, name, state, output=""):
        with open(self._path, "a") as lines:
            lines.write(json.dumps([name, state, output, None]) + "\n")

    def pytest_runtest_logstart(self, nodeid):
        self._states = {}
        self._write(nodeid, "begins")

    def pytest_runtest_logreport(self, report):
        output = report.longreprtext
        if report.skipped and isinstance(report.longrepr, tuple):
            output = report.longrepr[2]  # (file, line, reason)
        if report.failed:
            output += "".join(f"\n{title}\n{text}" for title, text in report.sections)
        self._states[report.outcome] = output

    def pytest_runtest_logfinish(self, nodeid):
        state = next(s for s in ("failed", "skipped", "passed") if s in self._states)
        self._write(nodeid, state, self._states[state])


def pytest_configure(config):
    results, claims = config.getoption("--results"), config.getoption("--claims")
    if results:
        config.pluginmanager.register(Results(results))
    if claims:
        config.pluginmanager.register(Claims(claims, process=results))
    config.addinivalue_line("markers", "watchdog(seconds): a limit other than 120 s")
    config.addinivalue_line("markers", "ours_only: a promise that Mooncake does not make")


@pytest.fixture(autouse=True)
def watchdog(request):
    """Prints every thread's stack and ends the run: a hang must not look like slowness."""
    mark = request.node.get_closest_marker("watchdog")
    limit_s = mark.args[0] * TIME_SCALE if mark else TEST_LIMIT_S
    faulthandler.dump_traceback_later(limit_s, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def long(request):
    return request.config.getoption("--long")


class Agent:
    """An mc-agent of its own in a directory of its own; the keeper ends with it."""

    def __init__(self, directory, **options):
        self.directory = pathlib.Path(directory)
        self.socket = str(self.directory / "agent.sock")
        self._options = {
            "pool_bytes": "128MiB",
            "keep_seconds": str(round(5 * TIME_SCALE)),
            **options,
        }
        self._process = None

    def start(self):
        import mckv

        flags = [f"--{n.replace('_', '-')}={v}" for n, v in self._options.items()]
        with open(self.directory / "agent.log", "ab") as log:
            self._process = subprocess.Popen(
                [mckv.program("mc-agent"), f"--runtime-dir={self.directory}", *flags], stderr=log
            )
        deadline = time.monotonic() + WATCHDOG_S
        # The agent takes memory for its pools after it listens. Until then a put may find no space.
        while not self._listens() or not self._has_memory():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("mc-agent: " + (self.directory / "agent.log").read_text())
            time.sleep(0.01)

    def _listens(self):
        for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
            with socket.socket(socket.AF_UNIX, kind) as probe, contextlib.suppress(OSError):
                probe.connect(self.socket)
                return True
        return False

    def _has_memory(self):
        """True if each pool has its memory, or says why it takes no more."""
        import mckv

        asked = subprocess.run(
            [mckv.program("mcctl"), "--agent", self.socket, "--json", "segment", "list"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=WATCHDOG_S,
        )  # fmt: skip
        return asked.returncode == 0 and all(
            pool["reserved_bytes"] >= pool["pool_bytes"] or "problem" in pool
            for pool in json.loads(asked.stdout)["segments"]
        )

    def change(self, **options):
        """From the next start on."""
        self._options |= options

    @property
    def pid(self):
        return self._process.pid

    def send(self, number):
        """Sends a signal. Returns after the stop for SIGSTOP."""
        if number == signal.SIGSTOP:
            stop_process(self.pid)
        else:
            self._process.send_signal(number)

    def end(self, number=signal.SIGTERM):
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(WATCHDOG_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextlib.contextmanager
def agents():
    """Makes agents, which end with the block: their pools are the machine's memory."""
    with contextlib.ExitStack() as stack:

        def make(**options):
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="mc-test-", ignore_cleanup_errors=True)
            )
            agent = Agent(directory, **options)
            stack.callback(agent.end)
            agent.start()
            return agent

        yield make


@pytest.fixture
def runtime_dir(tmp_path, monkeypatch):
    """The directory of the agents that this test's processes start, which end with the test."""
    monkeypatch.delenv("MC_AGENT", raising=False)
    monkeypatch.setenv("MC_RUNTIME_DIR", str(tmp_path / "mc"))
    monkeypatch.setenv("MC_AGENT_KEEP_SECONDS", str(round(5 * TIME_SCALE)))
    yield tmp_path / "mc"
    end_agents(tmp_path / "mc")


def two_hosts(make):
    """Two agents of one cluster, when their master knows both and all objects. The first one is its
    master."""
    import mckv

    master = f"127.0.0.1:{free_port()}"
    pair = [
        make(listen=f"127.0.0.1:{free_port()}", **{option: master})
        for option in ("master_listen", "masters")
    ]
    for agent in pair:
        with mckv.Client(agent.socket) as client:
            until(lambda client=client: client.ask({"verb": "status"})["cluster"]["members"] == 2)
            # A new master waits for reports before it says that there is no object.
            until(lambda client=client: client.exists_batch([b"nowhere"]) == [False])
    return pair


@pytest.fixture(scope="module")
def hosts_of_module(make_module_agent):
    return two_hosts(make_module_agent)


@pytest.fixture
def make_agent():
    with agents() as make:
        yield make


@pytest.fixture(scope="module")
def make_module_agent():
    with agents() as make:
        yield make


@pytest.fixture(scope="session")
def shared_agent():
    with agents() as make:
        yield make()


@pytest.fixture(params=["embedded", "agent"])
def client(request):
    """A client with an empty pool: one inside this process, or the shared agent's."""
    import mckv

    if request.param == "embedded":
        opened = mckv.Client("embedded", config={"pool_bytes": "128MiB"})
    else:
        agent = request.getfixturevalue("shared_agent")
        opened = mckv.Client(agent.socket, label=request.node.name[:60])
    with opened:
        yield opened


_numbers = iter(range(1, 1 << 60))


@pytest.fixture
def key():
    """A new key; key(i) for more of them."""
    number = next(_numbers)

    class Name(str):
        def __call__(self, i):
            return f"{self}.{i}"

    return Name(f"key.{os.getpid()}.{number}")


@pytest.fixture(scope="session")
def run_python():
    """Runs a program in an interpreter of its own: (exit status, stdout, stderr)."""

    def run(text, *arguments, timeout=TEST_LIMIT_S):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", text, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return done.returncode, done.stdout, done.stderr

    return run
