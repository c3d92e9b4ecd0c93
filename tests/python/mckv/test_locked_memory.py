# SPDX-License-Identifier: Apache-2.0
"""A process that locks all its memory takes no memory that no agent has reserved."""

import pytest

# Prints the shared memory of the process in KiB.
SCRIPT = """
import ctypes, mmap, sys

MCL_FUTURE, MLOCK_ONFAULT, MAP_NORESERVE = 2, 1, 0x4000

def field(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

def within_limit(size):
    # Locks no page. The limit is RLIMIT_MEMLOCK.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, size, flags=flags)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return ctypes.CDLL(None).mlock2(address, ctypes.c_size_t(size), MLOCK_ONFAULT) == 0

with open("/proc/self/oom_score_adj", "w") as adjustment:
    adjustment.write("1000")
if not within_limit(8 << 30) or ctypes.CDLL(None).mlockall(MCL_FUTURE) != 0:
    sys.exit(77)
page = mmap.mmap(-1, mmap.PAGESIZE)
if field("VmLck:") == 0:  # a sanitizer makes mlockall() do nothing
    sys.exit(77)
import mckv
config = {"pool_bytes": "16MiB", "max_pool_bytes": "1GiB"} if sys.argv[1] == "embedded" else None
with mckv.Client(sys.argv[1], config=config) as client:
    client.put("key", b"value" * 1000)
    assert client.get("key") == b"value" * 1000
    print(field("RssShmem:"))
"""


@pytest.mark.parametrize("place", ["embedded", "agent"])
def test_a_process_that_locks_its_memory_takes_no_unused_memory(place, make_agent, run_python):
    agent = "embedded"
    if place == "agent":
        agent = make_agent(pool_bytes="16MiB", max_pool_bytes="1GiB").socket
    status, output, errors = run_python(SCRIPT, agent)
    if status == 77:
        pytest.skip(
            "mlockall() has no effect here: a sanitizer disables it, or ulimit -l is too low"
        )
    assert status == 0, errors
    assert int(output) < 200 * 1024
