# SPDX-License-Identifier: Apache-2.0
"""mcctl as a command."""

import json
import subprocess

import mckv
from machine import WATCHDOG_S


def mcctl(*words, agent=None, **more):
    """Runs mcctl. The result has returncode, stdout and stderr."""
    program = [mckv.program("mcctl"), *(["--agent", agent] if agent else [])]
    return subprocess.run(
        [*program, *words], capture_output=True, text=True, timeout=WATCHDOG_S,
        stdin=subprocess.DEVNULL, **more,
    )  # fmt: skip


def documents(text):
    """The JSON documents of an output, one after the other."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:]
