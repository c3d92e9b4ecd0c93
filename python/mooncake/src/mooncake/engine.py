# SPDX-License-Identifier: Apache-2.0
"""mooncake.engine over mckv.TransferEngine: names, signatures and returns as Mooncake's.

Calls return 0 or a negative number, as in Mooncake, and log the cause. Before initialize() calls
return -1, 0, "" or []; Mooncake would end the process. Bytes move from process to process within a
host. Between hosts, protocol "rdma" uses the RDMA devices of both hosts, "efa" libfabric, and TCP
carries what devices cannot reach. CUDA device memory takes a copy through host memory. Waits let
other threads run.
"""

from __future__ import annotations

import ctypes
import enum
import logging
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import mckv

from mooncake import _environment
from mooncake._managed import ManagedBuffers
from mooncake._topology import local_topology

__all__ = ["InnerTransferEngine", "TransferEngine", "TransferNotify", "TransferOpcode"]

logger = logging.getLogger("mooncake")

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False

_INVALID = -1
_NOT_REGISTERED = -3
_OVERLAPPED = -7
_NO_ANSWER = -102
_ABSENT = ("CoroRPCInterface", "RpcInterface", "SharedSegment", "create_rpc_client")


class TransferOpcode(enum.IntEnum):
    Read = 0
    Write = 1


Read = TransferOpcode.Read
Write = TransferOpcode.Write
_Opcode: TypeAlias = TransferOpcode  # in a class with an attribute of this name


class TransferNotify:
    """A short message for the peer, after the data of its transfer."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg

    def __repr__(self) -> str:
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


class InnerTransferEngine:
    """The opaque result of get_engine(), for MooncakeDistributedStore.setup(engine=...)."""

    def __init__(self, engine: mckv.TransferEngine) -> None:
        self._engine = engine


def _host_of(local_hostname: str) -> str:
    """The host of "host", "host:port", "[v6]" or "[v6]:port"."""
    if local_hostname.startswith("["):
        return local_hostname[: local_hostname.find("]") + 1]
    return local_hostname.rsplit(":", 1)[0] if local_hostname.count(":") == 1 else local_hostname


def _metadata_url(server: str, kind: str | None) -> str | None:
    if server == "P2PHANDSHAKE":
        return None
    return server if "://" in server else f"{kind or 'etcd'}://{server}"


def _timeout(sizes: Sequence[int]) -> float:
    """30 s, or $MC_TRANSFER_TIMEOUT (at least 5), and a second for each GB."""
    try:
        seconds = max(5.0, float(os.environ.get("MC_TRANSFER_TIMEOUT", "30")))
    except ValueError:
        seconds = 30.0
    return min(3600.0, seconds + sum(sizes) / 1e9)


class TransferEngine:
    """One-sided reads and writes between registered memory of two processes."""

    TransferOpcode = TransferOpcode

    def __init__(self) -> None:
        self._engine: mckv.TransferEngine | None = None
        self._segments: dict[str, int] = {}
        self._managed: ManagedBuffers | None = None
        self._registered: dict[int, int] = {}

    # ---- Life ---------------------------------------------------------------------------------

    def initialize(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, /
    ) -> int:
        """Opens the engine. 0, or -1 with the cause in the log.

        local_hostname must be an address of this host. Except on loopback, $MC_CLUSTER_KEY_FILE
        names the file with the key that all engines share. protocol: "tcp"; "rdma", with the
        devices of device_name ("mlx5_0,mlx5_1") or $MC_TE_FILTERS, else all devices with a link;
        "efa". Without devices, bytes go over TCP, with a warning.
        """
        return self._open(local_hostname, metadata_server, protocol, device_name, None)

    def initialize_ext(
        self,
        local_hostname: str,
        metadata_server: str,
        protocol: str,
        device_name: str,
        metadata_type: str,
        /,
    ) -> int:
        """initialize() with the store's kind in metadata_type, for a metadata_server without it."""
        return self._open(local_hostname, metadata_server, protocol, device_name, metadata_type)

    def _open(self, host: str, server: str, protocol: str, devices: str, kind: str | None) -> int:
        if self._engine is not None:
            return 0
        _environment.begin()
        if protocol not in ("tcp", "rdma", "efa"):
            logger.error("mc: initialize: protocol %r is not there; say tcp or rdma", protocol)
            return _INVALID
        by_tcp = protocol == "tcp" or os.environ.get("MC_FORCE_TCP", "0") not in ("", "0")
        try:
            metadata = _metadata_url(server, kind)
            if metadata is not None:
                metadata = _environment.redis_url(metadata)
            engine = mckv.TransferEngine(
                f"{_host_of(host)}:0",
                metadata=metadata,
                name=None if metadata is None else host,
                cluster=os.environ.get("MC_METADATA_CLUSTER_ID") or None,
                key_file=os.environ.get("MC_CLUSTER_KEY_FILE"),
                same_host=os.environ.get("MC_FORCE_TCP", "0") in ("", "0"),
                transports="tcp" if by_tcp else "auto",
                devices=devices or os.environ.get("MC_TE_FILTERS") or None,
            )
            if not by_tcp and not engine.transport:
                logger.warning(
                    "mc: initialize: bytes go over TCP: %s", engine.describe().partition("\n")[0]
                )
            managed = ManagedBuffers()
            # Most of that memory never has pages.
            engine.register_addresses([managed.address], [managed.size], pinned=False)
        except (mckv.McError, OSError) as error:
            logger.error("mc: initialize(%r, %r): %s", host, server, error)
            return _INVALID
        self._managed = managed
        self._engine = engine
        return 0

    def get_rpc_port(self) -> int:
        """The port in this engine's name f"{host}:{port}"."""
        return 0 if self._engine is None else self._engine.port

    def get_engine(self) -> InnerTransferEngine | None:
        return None if self._engine is None else InnerTransferEngine(self._engine)

    def get_engine_ptr(self) -> int:
        return 0 if self._engine is None else id(self._engine)

    def get_local_topology(self, device_name: str | None = None) -> str:
        """Memory locations with preferred and other RDMA NICs, as JSON; "" on failure."""
        try:
            return local_topology(device_name or "")
        except RuntimeError as error:
            logger.error("mc: get_local_topology: %s", error)
            return ""

    def send_probe(self, peer_server_name: str) -> int:
        """0: an engine answers; -102: no engine answers."""
        if self._engine is None:
            return _INVALID
        try:
            self._engine.probe(peer_server_name)
        except mckv.McError as error:
            logger.warning("mc: send_probe(%r): %s", peer_server_name, error)
            return _NO_ANSWER
        return 0

    def warmup_efa_segment(self, segment_name: str) -> int:
        return 0 if self._segment(segment_name) is not None else _INVALID

    # ---- Memory -------------------------------------------------------------------------------

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """0; -7: overlaps a registered range; -1: not mapped."""
        return self.batch_register_memory([buffer_addr], [capacity], location)

    def batch_register_memory(
        self, buffer_addresses: list[int], capacities: list[int], location: str = "*"
    ) -> int:
        if self._engine is None or len(buffer_addresses) != len(capacities):
            return _INVALID
        if not buffer_addresses:
            return 0
        try:
            self._engine.register_addresses(buffer_addresses, capacities, location=location)
        except mckv.McError as error:
            logger.error("mc: register_memory: %s", error)
            return _OVERLAPPED if "overlaps" in str(error) else _INVALID
        self._registered.update(zip(buffer_addresses, capacities, strict=True))
        return 0

    def unregister_memory(self, buffer_addr: int, /) -> int:
        """0; -3: not registered. No transfer accesses the memory afterwards."""
        return self.batch_unregister_memory([buffer_addr])

    def batch_unregister_memory(self, buffer_addresses: list[int], /) -> int:
        if self._engine is None:
            return _INVALID
        if not buffer_addresses:
            return 0
        for address in buffer_addresses:
            self._registered.pop(address, None)
        try:
            self._engine.unregister(buffer_addresses)
        except mckv.NotFoundError:
            return _NOT_REGISTERED
        except mckv.McError as error:
            logger.error("mc: unregister_memory: %s", error)
            return _INVALID
        return 0

    def get_first_buffer_address(self, segment_name: str, /) -> int:
        """The peer's first registered address: its managed buffers. 0: none."""
        buffers = self._buffers(segment_name)
        return buffers[0][0] if buffers else 0

    def _buffers(self, segment_name: str) -> list[tuple[int, int]]:
        """Address and size of each of the peer's registered buffers, in their order."""
        segment = self._segment(segment_name)
        if self._engine is None or segment is None:
            return []
        try:
            return [(region[0], region[1]) for region in self._engine.regions(segment)]
        except mckv.McError as error:
            self._failed("list buffers", segment_name, error)
            return []

    def allocate_managed_buffer(self, length: int, /) -> int:
        """Allocates engine memory that peers may access; 0: no room."""
        return 0 if self._managed is None else self._managed.allocate(length)

    def free_managed_buffer(self, address: int, length: int, /) -> int:
        return _INVALID if self._managed is None else self._managed.free(address, length)

    def write_bytes_to_buffer(self, address: int, data: bytes | str, length: int, /) -> int:
        """Writes into a managed or registered buffer. 0; -1 for another address."""
        text = data.encode() if isinstance(data, str) else data
        if length > len(text) or not self._is_ours(address, length):
            return _INVALID
        ctypes.memmove(address, text, length)
        return 0

    def read_bytes_from_buffer(self, address: int, length: int, /) -> bytes:
        """Bytes of a managed or registered buffer; b"" for another address."""
        return ctypes.string_at(address, length) if self._is_ours(address, length) else b""

    def _is_ours(self, address: int, length: int) -> bool:
        if length < 0 or self._managed is None:
            return False
        ranges = [(self._managed.address, self._managed.size), *self._registered.items()]
        return any(a <= address and address + length <= a + size for a, size in ranges)

    # ---- Synchronous calls --------------------------------------------------------------------

    def transfer_sync_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Copies local memory to the peer. 0: complete; -1: error."""
        return self._run(
            target_hostname, [buffer], [peer_buffer_address], [length], Write, None, transport_hint
        )

    def transfer_sync_read(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        return self._run(
            target_hostname, [buffer], [peer_buffer_address], [length], Read, None, transport_hint
        )

    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: _Opcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        return self._run(
            target_hostname,
            [buffer],
            [peer_buffer_address],
            [length],
            opcode,
            notify,
            transport_hint,
        )

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        return self._run(
            target_hostname, buffers, peer_buffer_addresses, lengths, Write, None, transport_hint
        )

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        return self._run(
            target_hostname, buffers, peer_buffer_addresses, lengths, Read, None, transport_hint
        )

    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: _Opcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        return self._run(
            target_hostname,
            buffers,
            peer_buffer_addresses,
            lengths,
            opcode,
            notify,
            transport_hint,
        )

    def _run(
        self,
        target: str,
        local: list[int],
        remote: list[int],
        sizes: list[int],
        opcode: _Opcode,
        notify: TransferNotify | None,
        hint: str,
    ) -> int:
        prepared = self._prepare(target, local, remote, sizes, hint)
        if prepared is None or self._engine is None:
            return _INVALID
        segment, local, remote, sizes = prepared
        note = None if notify is None else (notify.name.encode(), notify.msg.encode())
        move = self._engine.write if opcode == Write else self._engine.read
        try:
            if sizes:
                move(segment, local, remote, sizes, timeout=_timeout(sizes), notify=note)
            elif note is not None:
                self._engine.notify(segment, *note)
        except mckv.McError as error:
            return self._failed("transfer", target, error)
        return 0

    # ---- Asynchronous calls --------------------------------------------------------------------

    def transfer_submit_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Number of a batch, for transfer_check_status(); 0 on an error."""
        return self._submit(
            target_hostname, [buffer], [peer_buffer_address], [length], Write, transport_hint
        )

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        return self._submit(
            target_hostname, buffers, peer_buffer_addresses, lengths, Write, transport_hint
        )

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        return self._submit(
            target_hostname, buffers, peer_buffer_addresses, lengths, Read, transport_hint
        )

    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: _Opcode,
        transport_hint: str = "",
    ) -> int:
        return self._submit(
            target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint
        )

    def _submit(
        self,
        target: str,
        local: list[int],
        remote: list[int],
        sizes: list[int],
        opcode: _Opcode,
        hint: str,
    ) -> int:
        prepared = self._prepare(target, local, remote, sizes, hint)
        if prepared is None or self._engine is None:
            return 0
        segment, local, remote, sizes = prepared
        if not sizes:
            return 0
        try:
            return self._engine.submit(
                opcode == Write, segment, local, remote, sizes, timeout=_timeout(sizes)
            )
        except mckv.McError as error:
            self._failed("transfer", target, error)
            return 0

    def transfer_check_status(self, batch_id: int, /) -> int:
        """0 running, 1 done, -1 failed, -2 timed out. The end frees the number."""
        if self._engine is None:
            return _INVALID
        try:
            if not self._engine.poll(batch_id)[0]:
                return 0
        except mckv.McError as error:
            logger.error("mc: transfer_check_status(%d): %s", batch_id, error)
            return _INVALID
        return self._finish(batch_id)

    def get_batch_transfer_status(self, batch_ids: list[int], /) -> int:
        """Waits for all batches and frees the numbers: 0; -1 if a batch failed."""
        results = [self._finish(batch_id) for batch_id in batch_ids]
        return 0 if all(result == 1 for result in results) else _INVALID

    def _finish(self, batch_id: int) -> int:
        if self._engine is None:
            return _INVALID
        result = 1
        try:
            self._engine.wait(batch_id)
        except mckv.DeadlineError as error:
            logger.error("mc: transfer: %s", error)
            result = -2
        except mckv.McError as error:
            logger.error("mc: transfer: %s", error)
            result = _INVALID
        try:
            self._engine.free(batch_id)
        except mckv.McError:
            result = _INVALID
        return result

    # ---- Notifications ------------------------------------------------------------------------

    def get_notifies(self) -> list[TransferNotify]:
        """The notifications since the last call."""
        if self._engine is None:
            return []
        taken = self._engine.notifications()
        return [TransferNotify(n.decode("utf-8", "replace"), m.decode("utf-8", "replace"))
                for n, m in taken]  # fmt: skip

    # ---- Segments -----------------------------------------------------------------------------

    def _segment(self, name: str) -> int | None:
        if self._engine is None:
            return None
        segment = self._segments.get(name)
        if segment is None:
            try:
                segment = self._segments[name] = self._engine.open(name)
            except mckv.McError as error:
                self._failed("open", name, error)
        return segment

    def _prepare(
        self, target: str, local: list[int], remote: list[int], sizes: list[int], hint: str
    ) -> tuple[int, list[int], list[int], list[int]] | None:
        if not len(local) == len(remote) == len(sizes):
            logger.error("mc: transfer: buffers, addresses and lengths must be as many")
            return None
        if hint not in ("", "tcp", "rdma", "efa"):
            logger.error("mc: transfer: the transport %r is not there", hint)
            return None
        segment = self._segment(target)
        if segment is None:
            return None
        if 0 in sizes:
            kept = [i for i, size in enumerate(sizes) if size != 0]
            local, remote, sizes = ([row[i] for i in kept] for row in (local, remote, sizes))
        return segment, local, remote, sizes

    def _failed(self, what: str, name: str, error: mckv.McError) -> int:
        if isinstance(error, mckv.AgentUnavailableError):
            # Looks the name up again: a restarted engine may have another address.
            self._segments.pop(name, None)
            error.remedy = "see that the peer's process runs and is reached; no agent is needed"
        logger.error("mc: %s(%r): %s", what, name, error)
        return _INVALID


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError(f"mooncake.engine.{name} is not part of mckv-mooncake")
    raise AttributeError(f"module 'mooncake.engine' has no attribute {name!r}")
