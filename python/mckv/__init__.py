# SPDX-License-Identifier: Apache-2.0
"""mckv: a KV-cache pool for LLM inference, from Python.

    import mckv

    client = mckv.Client()                 # this host's agent; or mckv.Client("embedded")
    client.put("key", b"value")
    client.get("key")                      # b"value", a copy
    client.view("key").numpy()             # in place: read-only, pinned while referenced

Sizes are bytes, times are seconds (float). Keys are str (stored as UTF-8) or bytes, 1 to 1,024
bytes. Every error is an McError with `status`, `remedy` and `retry`. Calls are safe from any
thread and let other threads run while they wait or copy more than 8 KiB.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mckv import _native, _tensors
from mckv._async import AsyncClient
from mckv._errors import (
    RAISE,
    AccessDeniedError,
    AgentUnavailableError,
    BufferTooSmallError,
    BusyError,
    CancelledError,
    ClosedError,
    CorruptError,
    DeadlineError,
    DeviceFailedError,
    ForkedError,
    GroupAbortedError,
    InternalError,
    InvalidArgumentError,
    McError,
    NoMemoryError,
    NoSpaceError,
    NoSuchNamespaceError,
    NotFoundError,
    Pin,
    QuotaExceededError,
    Retry,
    SessionLostError,
    Status,
    TooLargeError,
    UnsupportedError,
    VersionMismatchError,
)
from mckv._native import Group, Reservation, SessionBuffer, View
from mckv._programs import program
from mckv._tensors import TensorHeader

if TYPE_CHECKING:
    from mckv._transfer import TransferEngine

__version__ = _native.VERSION

__all__ = [
    "AccessDeniedError",
    "AgentUnavailableError",
    "AsyncClient",
    "BufferTooSmallError",
    "BusyError",
    "CancelledError",
    "Client",
    "ClosedError",
    "CorruptError",
    "DeadlineError",
    "DeviceFailedError",
    "ForkedError",
    "Group",
    "GroupAbortedError",
    "InternalError",
    "InvalidArgumentError",
    "McError",
    "NoMemoryError",
    "NoSpaceError",
    "NoSuchNamespaceError",
    "NotFoundError",
    "Pin",
    "QuotaExceededError",
    "RAISE",
    "Reservation",
    "Retry",
    "SessionBuffer",
    "SessionLostError",
    "Stat",
    "Status",
    "TensorHeader",
    "TooLargeError",
    "TransferEngine",
    "UnsupportedError",
    "VersionMismatchError",
    "View",
    "__version__",
    "program",
]

atexit.register(_native.on_interpreter_exit)


def __getattr__(name: str) -> Any:
    # Loaded when asked for: it links what the pool alone does not need.
    if name != "TransferEngine":
        raise AttributeError(f"module 'mckv' has no attribute {name!r}")
    from mckv import _transfer

    atexit.register(_transfer.on_interpreter_exit)
    globals()["TransferEngine"] = _transfer.TransferEngine
    return _transfer.TransferEngine


@dataclasses.dataclass(frozen=True)
class Stat:
    """What the pool knows of an object. length: bytes; pin_left: seconds of a soft pin.

    Of an object that only other hosts hold, the length; all else is 0, extent_count too.
    """

    length: int
    version: int
    checksum: int
    extent_count: int
    pin: Pin
    pin_left: float
    group: int
    parent_hash: int


class Client(_native.Client):
    """A session with the pool of this host, or with a pool inside this process.

    agent: None for this host's agent ($MC_AGENT, else /run/mc/agent.sock, else
    /dev/shm/mc-UID/agent.sock); the path of an agent's socket; or "embedded": a pool of this
    process alone that ends with it.
    namespace: whose objects (default "default"). label: shown by `mcctl status`.
    timeout: seconds, default deadline of calls and of the wait for the agent here (5).
    staging_bytes: session memory for alloc() and isolated namespaces (0: 64 MiB at first use).
    channel_count: threads that use the client at once without waiting for one another (0: 16).
    config: only with "embedded", options of mc-agent: {"pool_bytes": "1GiB"}.

    Raises AgentUnavailableError, AccessDeniedError, NoSuchNamespaceError, VersionMismatchError,
    InvalidArgumentError. A Client does not survive fork(): in the child every call raises
    ForkedError. It is a context manager; close() is safe while views of it live.
    """

    def __init__(
        self,
        agent: str | None = None,
        *,
        namespace: str | None = None,
        label: str | None = None,
        timeout: float | None = None,
        staging_bytes: int = 0,
        channel_count: int = 0,
        config: Mapping[str, object] | None = None,
    ) -> None:
        lines = None
        if config is not None:
            for name, value in config.items():
                if "\n" in f"{name}{value}" or "=" in name:
                    raise InvalidArgumentError(f"config: {name!r} and its value are one line each")
            lines = "".join(f"{name}={value}\n" for name, value in config.items())
        super().__init__(agent, namespace, label, timeout, staging_bytes, channel_count, lines)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __contains__(self, key: str | bytes) -> bool:
        return self.exists(key)

    def asyncio(self) -> AsyncClient:
        """The calls of this client for the running event loop."""
        return AsyncClient(self)

    def stat(self, key: str | bytes) -> Stat:
        """What the pool knows of the object. Raises NotFoundError."""
        (found,) = self.stat_batch((key,))
        if found is None:
            raise NotFoundError(_native.status_text(Status.NOT_FOUND))
        return found

    def stat_batch(self, keys: Iterable[str | bytes]) -> list[Stat | None]:
        """stat() of many; None for a miss."""
        return [
            None
            if one is None
            else Stat(one[0], one[1], one[2], one[3], Pin(one[4]), one[5], one[6], one[7])
            for one in self.stat_tuples(keys)
        ]

    def ask(self, question: Mapping[str, object], timeout: float | None = None) -> dict[str, Any]:
        """Asks the agent what mcctl asks it: {"verb": "status"}, "segments", "ls", "resize", ...

        libmc/client/admin.h lists questions and answers. A refusal raises.
        """
        answer = json.loads(self.ask_text(json.dumps(question), timeout))
        assert isinstance(answer, dict)
        return answer

    def keys(self, prefix: str | bytes = b"", *, namespace: str = "default") -> Iterator[bytes]:
        """The keys of the namespace that start with prefix, in no order; asks the agent in pages.

        Objects put or removed meanwhile may be among them or not.
        """
        start = prefix.encode() if isinstance(prefix, str) else prefix
        # Only its plain beginning can be said in JSON; the rest is looked at here.
        plain = start.split(b"%")[0].decode("ascii", "ignore") if start.isascii() else ""
        cursor = 0
        while True:
            page = self.ask(
                {"verb": "ls", "namespace": namespace, "prefix": plain, "cursor": cursor}
            )
            for item in page["objects"]:
                key = urllib.parse.unquote_to_bytes(item["key"])
                if key.startswith(start):
                    yield key
            cursor = page["cursor"]
            if not cursor:
                return

    # ---- Tensors -------------------------------------------------------------------------------

    def put_tensor(
        self,
        key: str | bytes,
        tensor: Any,
        *,
        tp_rank: int = 0,
        tp_size: int = 1,
        parent: str | bytes | None = None,
        pin: int | None = None,
        pin_ttl: float | None = None,
        upsert: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Stores a numpy array, torch tensor or other DLPack tensor with its dtype and shape.

        In host memory, at most 8 dimensions; one whose elements are not in order is copied first.
        With tp_size > 1 it is this rank's shard of a tensor: each rank puts its own under one key
        (or see put_sharded()). Other arguments and errors: put(); UnsupportedError for a dtype or
        device that cannot be stored.
        """
        header = _tensors.header_of(tensor)
        data = _tensors.contiguous(tensor)
        parts = [header.encode()] if header.data_bytes == 0 else [header.encode(), data]
        self.put(
            _tensors.shard_key(key, tp_rank, tp_size),
            parts,
            parent=parent,
            pin=pin,
            pin_ttl=pin_ttl,
            upsert=upsert,
            timeout=timeout,
        )

    def put_sharded(
        self, key: str | bytes, tensor: Any, *, tp_size: int, dim: int = 0, upsert: bool = False
    ) -> None:
        """Cuts a whole tensor along dim as torch.chunk() does and stores the shards at once.

        All or none becomes visible (a group). Read one with get_tensor(tp_rank=, tp_size=).
        """
        with self.group() as group:
            for rank in range(tp_size):
                part = _tensors.shard(tensor, dim, rank, tp_size)
                data = _tensors.contiguous(part)
                header = _tensors.header_of(part).encode()
                group.put(
                    _tensors.shard_key(key, rank, tp_size),
                    b"".join((header, memoryview(_as_buffer(data)))),
                    upsert=upsert,
                )

    def get_tensor(
        self,
        key: str | bytes,
        *,
        like: str = "numpy",
        copy: bool = False,
        tp_rank: int = 0,
        tp_size: int = 1,
    ) -> Any:
        """The tensor as numpy array or torch tensor (like="torch"), with dtype and shape as put.

        Without copy it is a read-only view of the pool, pinned while referenced. Raises
        NotFoundError, CorruptError (no tensor is stored here), UnsupportedError.
        """
        view = self.view(_tensors.shard_key(key, tp_rank, tp_size))
        return _tensors.of_view(view, like, copy)

    def get_tensor_into(
        self, key: str | bytes, tensor: Any, *, tp_rank: int = 0, tp_size: int = 1
    ) -> None:
        """Copies the stored tensor into a writable one of the same dtype and shape."""
        name = _tensors.shard_key(key, tp_rank, tp_size)
        with self.view(name) as view:
            start = view.tobytes()[:128] if view.span_count != 1 else bytes(memoryview(view)[:128])
            stored = TensorHeader.decode(start, len(view))
        wanted = _tensors.header_of(tensor)
        if stored != wanted:
            raise InvalidArgumentError(
                f"a tensor of {stored.dtype} {stored.shape} is stored, not one of "
                f"{wanted.dtype} {wanted.shape}"
            )
        if stored.data_bytes:
            self.get_into(name, tensor, stored.header_bytes, stored.data_bytes)


def _as_buffer(data: Any) -> Any:
    """A torch tensor's memory with the buffer protocol; anything else as it is."""
    if hasattr(data, "contiguous"):
        import torch

        return data.reshape(-1).view(torch.uint8).numpy()
    return data
