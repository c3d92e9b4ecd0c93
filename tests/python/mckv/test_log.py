# SPDX-License-Identifier: Apache-2.0
"""The log of an agent: on standard error. tests/booted has the journal."""

import contextlib
import fcntl
import os
import subprocess

import mckv
import pytest
from machine import TIME_SCALE, WATCHDOG_S


@pytest.fixture
def unread(tmp_path):
    """An agent that logs to a pipe: (socket, process, the pipe's other end)."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [mckv.program("mc-agent"), f"--runtime-dir={tmp_path}", "--pool-bytes=64MiB",
         "--log-level=debug", "--metrics-listen=off", f"--keep-seconds={round(5 * TIME_SCALE)}"],
        stderr=writer,
    )  # fmt: skip
    os.close(writer)
    with contextlib.closing(os.fdopen(reader)) as log:
        for line in log:
            if "event=ready" in line:
                break
        yield str(tmp_path / "agent.sock"), process, log
        process.terminate()
        process.wait(WATCHDOG_S)


def test_an_agent_whose_log_nobody_reads_serves_and_stops(unread):
    socket, process, _ = unread
    # The end of a session is a line of 40 bytes or more: beyond the pipe.
    for number in range(200):
        with mckv.Client(socket, timeout=WATCHDOG_S) as client:
            client.put(b"%d" % number, b"value")
    process.terminate()
    assert process.wait(WATCHDOG_S) == 0


def test_the_last_line_of_an_agent_says_that_the_agent_has_stopped(unread):
    _, process, log = unread
    process.terminate()
    assert "event=stopped" in log.read().splitlines()[-1]
