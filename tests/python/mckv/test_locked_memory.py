# SPDX-License-Identifier: Apache-2.0
"""A process that locks all its memory takes no memory that no agent has reserved."""

import pytest

# Prints the shared memory of the process in KiB.
SCRIPT = """
import ctypes, sys
with open("/proc/self/oom_score_adj", "w") as adjustment:
    adjustment.write("1000")
MCL_FUTURE = 2
if ctypes.CDLL(None).mlockall(MCL_FUTURE) != 0:
    sys.exit(77)
import mckv
config = {"pool_bytes": "16MiB", "max_pool_bytes": "1GiB"} if sys.argv[1] == "embedded" else None
with mckv.Client(sys.argv[1], config=config) as client:
    client.put("key", b"value" * 1000)
    assert client.get("key") == b"value" * 1000
    with open("/proc/self/status") as status:
        print(next(line.split()[1] for line in status if line.startswith("RssShmem:")))
"""


@pytest.mark.parametrize("place", ["embedded", "agent"])
def test_a_process_that_locks_its_memory_takes_no_unused_memory(place, make_agent, run_python):
    agent = "embedded"
    if place == "agent":
        agent = make_agent(pool_bytes="16MiB", max_pool_bytes="1GiB").socket
    status, output, errors = run_python(SCRIPT, agent)
    if status == 77:
        pytest.skip("this user may not lock memory (RLIMIT_MEMLOCK)")
    assert status == 0, errors
    assert int(output) < 200 * 1024
