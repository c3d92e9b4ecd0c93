# SPDX-License-Identifier: Apache-2.0
"""Child processes that never outlive the benchmark.

Children owns the processes started through it, and a private directory with their logs. Leaving its
`with` block, also by Ctrl-C or SIGTERM, ends them by pid, newest first, and removes the directory.
Should this process be killed outright, the kernel kills them. Main thread only, once a process.
"""

import ctypes
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class BenchError(Exception):
    """A message for the person who runs the benchmark."""


stopping = False


def _stop(number, _frame):
    # Only the first signal interrupts: a second signal must not interrupt the clean-up.
    global stopping
    if not stopping:
        stopping = True
        raise SystemExit(128 + number)


def _in_child():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class Children:
    def __init__(self, grace_s=3.0):
        self._grace_s = grace_s
        self._started = []

    def __enter__(self):
        for number in STOP_SIGNALS:
            signal.signal(number, _stop)
        self.dir = tempfile.mkdtemp(prefix="mc-peer-")  # created with mode 0700
        return self

    def __exit__(self, *_):
        global stopping
        stopping = True
        for child in self._started[::-1]:
            self.stop(child)
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, name, argv, env=None, stdout=None):
        """Starts `argv` in a session of its own: the terminal's Ctrl-C reaches only us."""
        log = os.path.join(self.dir, name + ".log")
        # Signals are blocked, so that no signal arrives between the fork and the entry in the list.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            with open(log, "ab") as log_file:
                child = subprocess.Popen(
                    argv, env=env, stdin=subprocess.DEVNULL, stdout=stdout or log_file,
                    stderr=log_file, start_new_session=True, preexec_fn=_in_child)
            child.log = log
            child.name = name
            self._started.append(child)
        except OSError as error:
            raise BenchError(f"cannot start {name}: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        return child

    def stop(self, child):
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(self._grace_s)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if child.stdout:
            child.stdout.close()
        if child in self._started:
            self._started.remove(child)

    def output(self, name, argv, timeout_s, env=None):
        """Runs `argv` to its end and returns what it printed."""
        child = self.start(name, argv, env, stdout=subprocess.PIPE)
        try:
            printed, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{name} ran over {timeout_s:.0f} s\n{tail(child)}") from None
        self.stop(child)
        if child.returncode != 0:
            raise BenchError(f"{name} ended with {child.returncode}\n{tail(child)}")
        return printed.decode()

    def wait_until(self, child, ready, what, timeout_s=15.0):
        deadline = time.monotonic() + timeout_s
        while not ready():
            if child.poll() is not None:
                raise BenchError(f"{child.name} ended with {child.returncode}\n{tail(child)}")
            if time.monotonic() > deadline:
                raise BenchError(f"{what}: not within {timeout_s:.0f} s\n{tail(child)}")
            time.sleep(0.02)


def tail(child, lines=15):
    with open(child.log, errors="replace") as log:
        return "".join(log.readlines()[-lines:])


def listens(family, address, kinds=(socket.SOCK_STREAM,)):
    """Whether a socket of one of `kinds` accepts at `address`."""
    for kind in kinds:
        with socket.socket(family, kind) as probe:
            probe.settimeout(0.5)
            try:
                probe.connect(address)
                return True
            except OSError:
                continue
    return False


def free_ports(count):
    """Loopback ports nobody holds now. They are held together, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def last_json(text):
    """The last line of what a child printed, its result."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise BenchError("a child printed no result")
    return json.loads(lines[-1])


def peer_package(venv):
    """The directory of Mooncake's package in what `install` made."""
    found = glob.glob(f"{venv}/lib/python*/site-packages/mooncake")
    if not found:
        raise BenchError(f"no Mooncake in {venv}; run tests/bench/peer/install {venv} first")
    return found[0]


def peer_environment(venv):
    """With the libraries that `install` unpacked, and nothing of ours."""
    peer_package(venv)
    libraries = ":".join(glob.glob(f"{venv}/debian/usr/lib/*-linux-gnu")
                         + glob.glob(f"{venv}/debian/lib/*-linux-gnu"))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "GLOG_minloglevel": "3"}
    environment.pop("PYTHONPATH", None)
    return environment
