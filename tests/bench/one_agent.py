# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: an agent of their own, a client by ctypes, results.

The agent lives in a private directory and ends with the script, whatever ends that. One thread.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tests/bench/peer"))
from children import LIBC, PR_SET_PDEATHSIG, BenchError, Children, listens  # noqa: E402

BATCH = 1024  # MC_MAX_BATCH_ITEMS


def parser(text):
    """A parser with what all scripts understand."""
    result = argparse.ArgumentParser(description=text)
    result.add_argument("--bin", default=os.path.join(ROOT, "build/bin"),
                        help="where mc-agent and mcctl are (default: build/bin)")
    result.add_argument("--lib", help="libmc.so (default: lib/libmc.so beside --bin)")
    result.add_argument("--json", action="store_true", help="one JSON line a row")
    result.add_argument("--check", action="store_true", help="exit 2 when a target is missed")
    return result


def program(options, name):
    path = os.path.join(options.bin, name)
    if not os.access(path, os.X_OK):
        raise BenchError(f"{path}: no such program; build it with: ctl/build release")
    return path


def library_path(options):
    path = options.lib or os.path.join(options.bin, "../lib/libmc.so")
    if not os.path.exists(path):
        raise BenchError(f"{path}: no such library; build it with: ctl/build release")
    return os.path.abspath(path)


def start_agent(children, options, pool_bytes, *arguments, store="none"):
    """An agent that listens; .socket is its address. It succeeds an agent whose store kept memory."""
    directory = os.path.join(children.dir, "agent")
    os.makedirs(directory, 0o700, exist_ok=True)
    path = os.path.join(directory, "agent.sock")
    agent = children.start("mc-agent", [
        program(options, "mc-agent"), "--runtime-dir", directory, "--pool-bytes", str(pool_bytes),
        "--descriptor-store", store, *arguments])
    children.wait_until(agent, lambda: listens(socket.AF_UNIX, path, (
        socket.SOCK_SEQPACKET, socket.SOCK_STREAM)), "mc-agent listens")
    agent.socket = path
    return agent


def die_with_parent():
    """For a forked child: the kernel ends it when this script is gone."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_ns(pid):
    """Time that all threads of a process have run, from the scheduler's own account."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


class Slice(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class PutItem(ctypes.Structure):
    _fields_ = [("key", Slice), ("pieces", ctypes.POINTER(Slice)), ("piece_count", ctypes.c_size_t),
                ("parent", Slice), ("status", ctypes.c_int)]


class OpenOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("agent", ctypes.c_char_p),
                ("name_space", ctypes.c_char_p), ("label", ctypes.c_char_p),
                ("timeout_ns", ctypes.c_uint64), ("staging_bytes", ctypes.c_uint64),
                ("embedded_config", ctypes.c_char_p), ("channel_count", ctypes.c_uint32)]


class Client:
    """A client that opens and puts; the structures are those of libmc/include/mc/mc.h."""

    def __init__(self, library, agent_socket, timeout_ns=0):
        self._libmc = ctypes.CDLL(library)
        self._libmc.mc_last_error.restype = ctypes.c_char_p
        self._client = ctypes.c_void_p()
        options = OpenOptions(struct_size=ctypes.sizeof(OpenOptions), agent=agent_socket.encode(),
                              timeout_ns=timeout_ns)
        self._check(self._libmc.mc_open(ctypes.byref(options), ctypes.byref(self._client)))

    def _check(self, status):
        if status != 0:
            raise BenchError(f"libmc: {self._libmc.mc_last_error().decode()}")

    def put_random_keys(self, count, key_bytes, value_bytes):
        value = ctypes.create_string_buffer(value_bytes)
        piece = Slice(ctypes.addressof(value), value_bytes)
        items = (PutItem * BATCH)()
        while count > 0:
            keys = ctypes.create_string_buffer(os.urandom(key_bytes * BATCH))
            for number, item in enumerate(items):
                item.key = Slice(ctypes.addressof(keys) + number * key_bytes, key_bytes)
                item.pieces = ctypes.pointer(piece)
                item.piece_count = 1
            step = min(count, BATCH)
            self._check(self._libmc.mc_put_batch(self._client, items, ctypes.c_size_t(step), None))
            count -= step

    def put(self, key, value):
        piece = Slice(ctypes.cast(value, ctypes.c_void_p), len(value))
        at = Slice(ctypes.cast(key, ctypes.c_void_p), len(key))
        self._check(self._libmc.mc_put(self._client, at, piece, None))

    def exists(self, key):
        """The status of mc_exists(); 0 means that the object is there."""
        return self._libmc.mc_exists(self._client, key)

    def close(self):
        self._libmc.mc_close(self._client)


def report(options, rows):
    """Prints rows (what, value, unit, target text, met: bool or None); returns the exit status."""
    for what, value, unit, target, met in rows:
        if options.json:
            print(json.dumps({"what": what, "value": value, "unit": unit, "target": target,
                              "met": met}))
        else:
            shown = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
            verdict = {None: "", True: "met", False: "MISSED"}[met]
            print(f"{what:58}{shown:>16} {unit:14}{target:22}{verdict}")
    return 2 if options.check and any(met is False for *_, met in rows) else 0
