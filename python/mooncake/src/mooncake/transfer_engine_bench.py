# SPDX-License-Identifier: Apache-2.0
"""transfer_engine_bench with Mooncake's flags: a target that offers memory, and an initiator that
writes or reads batches of blocks and prints the throughput."""

from __future__ import annotations

import argparse
import ctypes
import mmap
import signal
import sys
import threading
import time
from typing import NoReturn

from mooncake.engine import TransferEngine, TransferOpcode

_UNITS = {
    "GB": 1e9, "GiB": 2**30, "Gb": 1e9 / 8, "MB": 1e6, "MiB": 2**20, "Mb": 1e6 / 8, "KB": 1e3,
    "KiB": 2**10, "Kb": 1e3 / 8,
}  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="transfer_engine_bench", description=__doc__, allow_abbrev=False
    )

    def flag(name: str, default: str | int, text: str, **more: object) -> None:
        spellings = [f"--{name}", f"-{name}"]
        parser.add_argument(*spellings, default=default, type=type(default), help=text, **more)  # type: ignore[arg-type]

    flag("mode", "initiator", "who moves the bytes", choices=["initiator", "target"])
    flag("local_server_name", "127.0.0.1", "this host's address")
    flag("metadata_server", "P2PHANDSHAKE", "or a store: redis:// etcd:// http://")
    flag("segment_id", "", "initiator: the target's name, host:port as it prints it")
    flag("operation", "read", "of the initiator", choices=["read", "write"])
    flag("protocol", "tcp", "tcp; rdma or efa, where both hosts have devices")
    flag("batch_size", 128, "requests of one batch")
    flag("block_size", 65536, "bytes of a request")
    flag("buffer_size", 1 << 30, "bytes of the buffer")
    flag("duration", 10, "seconds")
    flag("threads", 12, "that submit")
    flag("report_unit", "GB", "of the rate", choices=list(_UNITS))
    flag("report_precision", 2, "digits")
    flag("device_name", "", "RDMA devices, mlx5_0,mlx5_1; all without")
    for name in ("nic_priority_matrix", "backend"):
        flag(name, "", "taken, and means nothing here")
    parser.add_argument("--auto_discovery", "-auto_discovery", nargs="?", help="the same")
    return parser


def _buffer(size: int) -> tuple[mmap.mmap, int]:
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _fail(text: str) -> NoReturn:
    sys.exit(f"transfer_engine_bench: {text}")


def _target(engine: TransferEngine, options: argparse.Namespace) -> None:
    host = options.local_server_name
    if options.metadata_server == "P2PHANDSHAKE":
        host = f"{host.rsplit(':', 1)[0] if host.count(':') == 1 else host}:{engine.get_rpc_port()}"
    print(f"target: --segment_id={host}; ends with SIGINT or SIGTERM", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


def _initiate(engine: TransferEngine, options: argparse.Namespace, local: int) -> None:
    peer = options.segment_id
    if not peer:
        _fail("say --segment_id=HOST:PORT, as the target prints it")
    # The last buffer is the one of the target below; no device reaches the first, the managed one.
    buffers = engine._buffers(peer)
    if not buffers:
        _fail(f"the target {peer} does not answer; see the log above")
    remote, there_bytes = buffers[-1]
    block, batch = options.block_size, options.batch_size
    if block * batch * options.threads > min(options.buffer_size, there_bytes):
        _fail("block_size x batch_size x threads must fit buffer_size on both sides")
    opcode = TransferOpcode.Read if options.operation == "read" else TransferOpcode.Write
    batches = [0] * options.threads
    failed = threading.Event()
    end = time.monotonic() + options.duration

    def work(thread: int) -> None:
        first = thread * block * batch
        offsets = [first + i * block for i in range(batch)]
        here, there = [local + at for at in offsets], [remote + at for at in offsets]
        while time.monotonic() < end and not failed.is_set():
            if engine.batch_transfer_sync(peer, here, there, [block] * batch, opcode) != 0:
                failed.set()
                return
            batches[thread] += 1

    started = time.monotonic()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    if failed.is_set():
        _fail("a transfer failed; see the log above")
    rate = sum(batches) * block * batch / seconds / _UNITS[options.report_unit]
    print(
        f"Test completed: duration {seconds:.2f}, batch count {sum(batches)}, "
        f"throughput {rate:.{options.report_precision}f} {options.report_unit}/s",
        flush=True,
    )


def main() -> None:
    options = _parser().parse_args()
    if options.mode == "target":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    engine = TransferEngine()
    name, server = options.local_server_name, options.metadata_server
    if engine.initialize(name, server, options.protocol, options.device_name) != 0:
        _fail("the engine cannot be opened; see the log above")
    memory, address = _buffer(options.buffer_size)
    if engine.register_memory(address, options.buffer_size) != 0:
        _fail("the buffer cannot be registered; see the log above")
    if options.mode == "target":
        _target(engine, options)
    else:
        _initiate(engine, options, address)
    engine.unregister_memory(address)
    del memory
