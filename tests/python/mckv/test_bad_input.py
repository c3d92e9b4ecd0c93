# SPDX-License-Identifier: Apache-2.0
"""Whatever is passed, an exception is the worst that happens."""

import pathlib
import re
import subprocess
import sys

import pytest


@pytest.mark.watchdog(1200)
@pytest.mark.parametrize("seed", range(3))
def test_random_calls_never_end_the_interpreter(seed, long):
    program = pathlib.Path(__file__).with_name("random_calls.py")
    done = subprocess.run(
        [sys.executable, str(program), str(seed), str(300_000 if long else 5000)],
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    raised, went_well = map(int, re.findall(r"(\d+) ", done.stdout)[:2])
    assert raised > 1000 and went_well > 100
