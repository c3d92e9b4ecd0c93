# SPDX-License-Identifier: Apache-2.0
"""What the tests of one machine share: its processes."""

import os
import pathlib
import signal
import time

STOP_LIMIT_S = 30


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


def stop_process(pid):
    """Stops a process. os.kill() returns earlier, and a thread that still runs may answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_LIMIT_S
    while not is_stopped(pid):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)
