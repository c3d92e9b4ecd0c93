# SPDX-License-Identifier: Apache-2.0
"""Each program of python/examples runs against an agent and ends well."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
from machine import TEST_LIMIT_S

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "python" / "examples"


def run(name, agent):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        env=dict(os.environ, MC_AGENT=agent.socket),
        capture_output=True,
        text=True,
        timeout=TEST_LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["numpy_blocks.py", "asyncio_batches.py", "two_hosts.py"])
def test_an_example_runs(name, shared_agent):
    assert run(name, shared_agent)


def test_the_example_with_torch_runs(shared_agent):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed here; tests/run --engines runs this example")
    assert "all equal" in run("torch_tensors.py", shared_agent)


def test_every_example_is_run_and_described():
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    tested = pathlib.Path(__file__).read_text()
    page = (EXAMPLES / "README.md").read_text()
    assert all(name in tested and f"`{name}`" in page for name in programs)
