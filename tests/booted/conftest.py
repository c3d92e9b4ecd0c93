# SPDX-License-Identifier: Apache-2.0
"""The installed units, in a container that a real systemd has booted (tests/booted/box)."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

from machine import WATCHDOG_S, until  # noqa: E402

CONFIG = pathlib.Path("/etc/mc")
DROP_INS = pathlib.Path("/run/systemd/system")


def run(*command, **options):
    """The output of a command that must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WATCHDOG_S, check=False, **options
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class Unit:
    """A service of this system."""

    def __init__(self, name, config):
        self.name = name
        self._config = CONFIG / config
        last = run("journalctl", "--lines=1", "--output=json")
        self._begun = json.loads(last)["__CURSOR"]

    def configure(self, text, **settings):
        """Writes the configuration, and a drop-in with the settings of [Service]."""
        self._config.write_text(text)
        self._config.chmod(0o640)
        shutil.chown(self._config, group="mc")
        self.set(**settings)

    def set(self, **settings):
        folder = DROP_INS / f"{self.name}.service.d"
        shutil.rmtree(folder, ignore_errors=True)
        if settings:
            folder.mkdir(parents=True)
            lines = "".join(f"{name}={value}\n" for name, value in settings.items())
            (folder / "test.conf").write_text("[Service]\n" + lines)
        run("systemctl", "daemon-reload")

    def do(self, verb):
        done = self.try_to(verb)
        said = "\n".join(entry["MESSAGE"] for entry in self.journal())
        assert done.returncode == 0, f"{verb} {self.name}: {done.stderr}{said}"

    def try_to(self, verb):
        return subprocess.run(
            ["systemctl", verb, self.name],
            capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
        )  # fmt: skip

    def show(self, name):
        return run("systemctl", "show", "--value", f"--property={name}", self.name).strip()

    @property
    def pid(self):
        return int(self.show("MainPID"))

    def journal(self):
        """The entries about the unit since the test began, as dictionaries."""
        lines = run(
            "journalctl",
            "--output=json",
            f"--after-cursor={self._begun}",
            "-u",
            self.name,
        ).splitlines()
        return [json.loads(line) for line in lines]

    def events(self):
        """The names of the events that the program logged, by the journal's field MC_EVENT."""
        return [entry["MC_EVENT"] for entry in self.journal() if "MC_EVENT" in entry]

    def says(self, *words):
        """True if an entry of the journal has all the words."""
        return any(all(word in entry["MESSAGE"] for word in words) for entry in self.journal())

    def kill(self, signal="KILL"):
        run("systemctl", "kill", f"--signal={signal}", "--kill-whom=main", self.name)

    def try_without_port(self, configure):
        """Starts the unit while its port is taken: the journal names the port, and the unit runs
        once the port is free. configure: writes the configuration with a port."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            configure(port)
            self.try_to("start")
            until(lambda: self.says(str(port)))
            assert not self.is_active()
        until(self.is_active)

    def await_restart(self, restarts):
        until(lambda: int(self.show("NRestarts")) > restarts and self.is_active())

    def is_active(self):
        return self.show("ActiveState") == "active"

    def end(self):
        subprocess.run(["systemctl", "stop", self.name], timeout=WATCHDOG_S, check=True)
        subprocess.run(["systemctl", "reset-failed", self.name], capture_output=True, check=False)
        self._config.unlink(missing_ok=True)
        self.set()


class Load:
    """A client in a thread that gets objects and puts others until the end of the block."""

    def __init__(self, socket, objects):
        self._socket, self._objects = socket, objects
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.gets = 0
        self._wrong = []
        self._longest_get_s = self._longest_put_s = 0.0

    def _run(self):
        import mckv

        with mckv.Client(self._socket, timeout=WATCHDOG_S) as client:
            while not self._ended.is_set():
                for key, value in self._objects.items():
                    begun = time.monotonic()
                    if client.get(key) != value:
                        self._wrong.append(key)
                    self._longest_get_s = max(self._longest_get_s, time.monotonic() - begun)
                    self.gets += 1
                begun = time.monotonic()
                client.put(b"put %d" % (self.gets % 1000), b"x" * 5000)
                self._longest_put_s = max(self._longest_put_s, time.monotonic() - begun)

    def goes_on(self):
        before = self.gets
        until(lambda: self.gets > before + 1000 or not self._thread.is_alive())
        assert self._thread.is_alive()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join(WATCHDOG_S)
        assert not self._thread.is_alive() and not self._wrong
        print(
            f"{self.gets} gets, the longest took {self._longest_get_s * 1e3:.0f} ms, "
            f"the longest put {self._longest_put_s * 1e3:.0f} ms"
        )


@pytest.fixture(scope="session", autouse=True)
def installed():
    """What the page's section "Install" does after the files are in place."""
    assert pathlib.Path("/run/systemd/system").is_dir(), "run this by tests/run --booted"
    assert os.geteuid() == 0
    if pathlib.Path("/usr/bin/mc-agent").exists():  # else the packages do so
        run("systemd-sysusers")
        run("systemd-tmpfiles", "--create", "mc-agent.conf", "mc-master.conf")
        run("systemctl", "daemon-reload")


@pytest.fixture
def agent():
    unit = Unit("mc-agent", "agent.toml")
    yield unit
    unit.end()


@pytest.fixture
def master():
    unit = Unit("mc-master", "master.toml")
    yield unit
    unit.end()
