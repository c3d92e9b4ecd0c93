# SPDX-License-Identifier: Apache-2.0
"""What the tests of one machine share: patience, ports and processes."""

import contextlib
import fcntl
import os
import pathlib
import random
import signal
import socket
import subprocess
import time

# How many times slower than usual the machine is (tests/time_scale), from 1 to 8. Each wait, and
# each deadline that a test gives to the product, is a multiple.
TIME_SCALE = min(max(float(os.environ.get("MC_TEST_TIME_SCALE") or 1), 1), 8)
# Longest wait for an event. A longer wait is a failure.
WATCHDOG_S = 30 * TIME_SCALE
# Longest test.
TEST_LIMIT_S = 120 * TIME_SCALE
# Below the kernel's usual range for outgoing connections. tests/conformance/store/store_servers.cc
# has the same range and the same directory of lock files.
PORTS = range(10000, 32000)
_held = []


def free_port():
    """A free port for a server of a test.

    A lock file holds the port until this process ends, so that no other test gets the same port.
    No process gets such a port from the kernel unasked.
    """
    directory = pathlib.Path(f"/tmp/mc-test-ports-{os.geteuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            file = stack.enter_context(open(directory / str(port), "w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("", port))
            _held.append(stack.pop_all())
            return port
    raise RuntimeError(f"no port is free; see {directory}")


def is_stopped(pid):
    """True if no thread of the process runs. A thread that has ended counts as stopped."""
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            # "TID (NAME) STATE …", and the name may contain ")".
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "TtZX":
            return False
    return True


def has_ended(pid):
    """True also before the process's parent has noticed the end."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX"
    return True


def stop_process(pid):
    """Stops a process. os.kill() returns earlier, and a thread that still runs may answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + WATCHDOG_S
    while not is_stopped(pid):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def until(call):
    """Waits until call() is true, and fails if it never is: no event tells of the state."""
    deadline = time.monotonic() + WATCHDOG_S
    while not call():
        assert time.monotonic() < deadline, "the awaited state has not come"
        time.sleep(0.02)


@contextlib.contextmanager
def run_master(cluster, port=None):
    """A master of a new cluster on this host: yields its address."""
    import mckv

    port = port or free_port()
    process = subprocess.Popen(
        [mckv.program("mc-master"), f"--listen=127.0.0.1:{port}", f"--cluster-id={cluster}",
         f"--recover-ms={round(100 * TIME_SCALE)}", "--log-level=warn"],
    )  # fmt: skip
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(WATCHDOG_S)


def end_agents(directory):
    """Ends the agents that mcctl join has started below this directory."""
    import mckv

    for path in pathlib.Path(directory).glob("**/agent.sock"):
        with contextlib.suppress(mckv.McError), mckv.Client(str(path), timeout=1) as client:
            pid = client.ask({"verb": "status"})["pid"]
            os.kill(pid, signal.SIGTERM)
            until(lambda pid=pid: has_ended(pid))
