# SPDX-License-Identifier: Apache-2.0
"""Completion of mcctl in real shells: a user types a part of a line and the tabulator."""

import fcntl
import os
import pty
import select
import shutil
import subprocess
import termios
import time

import mckv
import pytest
from machine import WATCHDOG_S

# Each shell: its command, the name of the installed script, and the lines before the completion. A
# function in mcctl's place prints its arguments.
SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "mcctl",
        'mcctl() {{ echo "GOT:$*:"; }}; source {folder}/mcctl',
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "_mcctl",
        "fpath=({folder} $fpath); autoload -U compinit; compinit -D -u; "
        'mcctl() {{ print -r -- "GOT:$*:" }}',
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        "mcctl.fish",
        'function mcctl; echo "GOT:$argv:"; end; source {folder}/mcctl.fish',
    ),
}


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, name, folder, environment):
        command, script, setup = SHELLS[name]
        text = subprocess.run(
            [mckv.program("mcctl"), "completion", name],
            capture_output=True, timeout=WATCHDOG_S, check=True,
        ).stdout  # fmt: skip
        folder.joinpath(script).write_bytes(text)
        self._output = b""
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={"PATH": f"{os.path.dirname(mckv.program('mcctl'))}:{os.environ['PATH']}",
                 "HOME": str(folder), "TERM": "dumb", **environment},
        )  # fmt: skip
        os.close(theirs)
        # Quotes keep the echo of the line from being the answer.
        self.write(setup.format(folder=folder) + "; echo READY':'\n")
        self.read_until(b"READY:")

    def write(self, text):
        os.write(self._terminal, text.encode())

    def read_until(self, end):
        deadline = time.monotonic() + WATCHDOG_S
        while end not in self._output:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._terminal], [], [], max(left, 0))
            assert ready, f"{end!r} is not in {self._output!r}"
            self._output += os.read(self._terminal, 4096)
        text, _, self._output = self._output.partition(end)
        return text.decode()

    def completed(self, line):
        """The arguments of mcctl after the tabulator."""
        self.write(f"mcctl {line}\t\n")
        self.read_until(b"GOT:")
        return self.read_until(b":")

    def close(self):
        self._process.kill()
        self._process.wait(WATCHDOG_S)
        os.close(self._terminal)


@pytest.fixture(params=SHELLS)
def shell(request, tmp_path, shared_agent):
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is missing: ctl/install-deps test installs {request.param}")
    tmp_path.joinpath("only-here.bin").touch()
    shell = Shell(request.param, tmp_path, {"MC_AGENT": shared_agent.socket})
    try:
        yield shell
    finally:
        shell.close()


def test_shells_complete_verbs_options_values_and_files(shell):
    for typed, meant in {
        "docto": "doctor",
        "segment res": "segment resize",
        "--json segment res": "--json segment resize",
        "put --ups": "put --upsert",
        "put --timeout": "put --timeout-ms",
        "put key file --pin ha": "put key file --pin hard",
        "completion zs": "completion zsh",
        "put key only-he": "put key only-here.bin",
        "--agent only-he": "--agent only-here.bin",
    }.items():
        assert shell.completed(typed).strip() == meant


def test_shells_complete_the_names_of_the_agents_namespaces(shell):
    assert shell.completed("--namespace defa").strip() == "--namespace default"
