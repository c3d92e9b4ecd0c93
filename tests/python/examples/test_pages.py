# SPDX-License-Identifier: Apache-2.0
"""The commands and programs of the pages about Python run as printed (tests/docs/commands)."""

import pathlib
import subprocess
import sys

import mckv
import pytest
from machine import TEST_LIMIT_S

COMMANDS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "commands"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "python/README.md",
        "python/examples/README.md",
        "python/mckv/proxy/README.md",
        "python/mooncake/README.md",
    ],
)
def test_the_commands_of_a_page_run(page):
    binaries = pathlib.Path(mckv.program("mc-agent")).parent
    done = subprocess.run(
        [COMMANDS, f"--bin={binaries}", f"--python={sys.executable}", page],
        capture_output=True,
        text=True,
        timeout=TEST_LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    if skipped:
        pytest.skip(skipped[0])
