# SPDX-License-Identifier: Apache-2.0
"""mckv: a KV-cache pool for LLM inference, from Python.

    import mckv

    client = mckv.Client()                 # this host's agent; or mckv.Client("embedded")
    client.put("key", b"value")
    client.get("key")                      # b"value", a copy
    client.view("key").numpy()             # in place: read-only, pinned while referenced

Sizes are bytes, times are seconds (float). Keys are str (stored as UTF-8) or bytes, 1 to 1,024
bytes. Every error is an McError with `status`, `remedy` and `retry`. Any thread may call. A
call that waits or copies more than 8 KiB lets other threads run.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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
    DiskAwayError,
    ForkedError,
    GroupAbortedError,
    HolderAwayError,
    InternalError,
    InvalidArgumentError,
    McError,
    NoMasterError,
    NoMemoryError,
    NoSpaceError,
    NoSuchNamespaceError,
    NotAdvertisedError,
    NotFoundError,
    Pin,
    QuotaExceededError,
    Retry,
    SessionLostError,
    Status,
    TooLargeError,
    UnsupportedError,
    VersionMismatchError,
    Visibility,
    WrongKeyError,
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
    "HolderAwayError",
    "DiskAwayError",
    "InternalError",
    "InvalidArgumentError",
    "McError",
    "NoMemoryError",
    "NoMasterError",
    "NoSpaceError",
    "NoSuchNamespaceError",
    "NotAdvertisedError",
    "NotFoundError",
    "Pin",
    "QuotaExceededError",
    "RAISE",
    "Removal",
    "Reservation",
    "Retry",
    "SessionBuffer",
    "SessionLostError",
    "Stat",
    "Status",
    "Task",
    "TensorHeader",
    "TooLargeError",
    "TransferEngine",
    "UnsupportedError",
    "VersionMismatchError",
    "WrongKeyError",
    "View",
    "Visibility",
    "__version__",
    "program",
]

atexit.register(_native.on_interpreter_exit)


def __getattr__(name: str) -> Any:
    # Loaded at first use: the engine links libraries that the pool does not need.
    if name != "TransferEngine":
        raise AttributeError(f"module 'mckv' has no attribute {name!r}")
    from mckv import _transfer

    atexit.register(_transfer.on_interpreter_exit)
    globals()["TransferEngine"] = _transfer.TransferEngine
    return _transfer.TransferEngine


@dataclasses.dataclass(frozen=True)
class Stat:
    """Facts about an object. length: bytes; pin_left: seconds left of a soft pin.

    If only other hosts hold the object, every field except length is 0.
    """

    length: int
    version: int
    checksum: int
    extent_count: int
    pin: Pin
    pin_left: float
    group: int
    parent_hash: int


# The numbers of mc_verify.
_VERIFY = {None: 0, "never": 1, "sampled": 2, "always": 3}


class Removal(NamedTuple):
    """The result of Client.remove_matching()."""

    removed: int
    """Number of copies: an object with replicas counts once for each host that held it."""
    unconfirmed: int
    """Number of hosts that are down, or have not answered by the deadline.

    These hosts remove their objects later.
    """


class Replica(NamedTuple):
    """An object on a host."""

    address: str
    """Of the host's agent."""
    tier: Literal["pool", "disk"]
    """The disk has the object if the pool does not."""


class Task(NamedTuple):
    """A copy or a move of an object, which the cluster's master carries out."""

    id: tuple[int, int]
    """For Client.task()."""
    type: str
    """"copy" or "move"."""
    state: str
    """"pending", "running", "failed" or "done"."""
    begun: float
    """Seconds since 1970."""
    changed: float
    """When the state changed last, in seconds since 1970."""
    node: int
    """Node id of the latest host that was to copy the object; 0: none yet."""
    message: str
    """Why the task failed."""


class Client(_native.Client):
    """A session with the pool of this host, or with a pool inside this process.

    agent: None for this host's agent ($MC_AGENT, else /run/mc/agent.sock, else
    /dev/shm/mc-UID/agent.sock); the path of an agent's socket; or "embedded": a pool of this
    process alone that ends with it.
    namespace: the namespace of the objects ("default"). label: shown by `mcctl status`.
    timeout: seconds; the default deadline of calls and of the wait for the agent (5).
    staging_bytes: session memory for alloc() and isolated namespaces (0: 64 MiB at first use).
    channel_count: threads that use the client at once without waiting for each other (0: 16).
    config: only with "embedded", options of mc-agent: {"pool_bytes": "1GiB"}.
    verify: which reads compare the bytes with their checksum: "never", "sampled" or "always"
    (None: $MC_VERIFY, else "sampled"). A mismatch is a miss; get() without default raises
    CorruptError.

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
        verify: Literal["never", "sampled", "always"] | None = None,
    ) -> None:
        if verify not in _VERIFY:
            raise InvalidArgumentError(f"verify is {verify!r}: use never, sampled or always")
        lines = None
        if config is not None:
            for name, value in config.items():
                if "\n" in f"{name}{value}" or "=" in name:
                    raise InvalidArgumentError(f"config: {name!r} and its value are one line each")
            lines = "".join(f"{name}={value}\n" for name, value in config.items())
        super().__init__(
            agent,
            namespace,
            label,
            timeout,
            staging_bytes,
            channel_count,
            lines,
            _VERIFY[verify],
        )

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
        """Facts about the object. Raises NotFoundError."""
        (found,) = self.stat_batch((key,))
        if found is None:
            raise NotFoundError(_native.status_text(Status.NOT_FOUND))
        return found

    def stat_batch(self, keys: Iterable[str | bytes]) -> list[Stat | None]:
        """stat() of many keys; None for a miss. Raises what stat() raises for an outage."""
        return [
            None
            if one is None
            else Stat(one[0], one[1], one[2], one[3], Pin(one[4]), one[5], one[6], one[7])
            for one in self.stat_tuples(keys)
        ]

    def ask(self, question: Mapping[str, object], timeout: float | None = None) -> dict[str, Any]:
        """Sends the agent an administrative request: {"verb": "status"}, "segments", "ls", ...

        libmc/client/admin.h lists requests and answers. A refusal raises.
        """
        answer = json.loads(self.ask_text(json.dumps(question), timeout))
        assert isinstance(answer, dict)
        return answer

    def keys(
        self,
        prefix: str | bytes = b"",
        *,
        namespace: str = "default",
        local: bool = False,
        timeout: float | None = None,
    ) -> Iterator[bytes]:
        """The keys of the namespace that start with prefix, page by page.

        In a cluster of all hosts, in order; with local, or without a cluster, of this host, in no
        order. A key that is put or removed meanwhile may be missing or present. timeout: of a page.
        AgentUnavailableError after the keys of the other hosts if a host has not answered.
        """
        question: dict[str, object] = {
            "verb": "ls",
            "namespace": namespace,
            "prefix": _escaped(prefix),
            "local": local,
            "timeout_ms": _walk_ms(timeout),
        }
        silent = 0
        while True:
            page = self.ask(question, _WALK_S if timeout is None else timeout)
            for item in page["objects"]:
                yield urllib.parse.unquote_to_bytes(item["key"])
            silent = max(silent, page.get("unconfirmed", 0))
            question["cursor"] = page["cursor"]
            if not page["cursor"]:
                break
        if silent:
            raise AgentUnavailableError(f"{silent} hosts have not answered; their keys are missing")

    def holders(
        self, keys: Iterable[str | bytes], *, namespace: str = "default"
    ) -> list[list[str]]:
        """For each key, the addresses of the agents that hold the object; [] for a miss.

        Raises: see replicas().
        """
        found = self.replicas(keys, namespace=namespace)
        return [[one.address for one in replicas] for replicas in found]

    def replicas(
        self, keys: Iterable[str | bytes], *, namespace: str = "default"
    ) -> list[list[Replica]]:
        """For each key, the hosts with the object; [] for a miss. A host in front is read first.

        Raises: UnsupportedError without a cluster; BusyError while no master leads.
        """
        nodes = {node["node"]: node["address"] for node in self.ask({"verb": "nodes"})["nodes"]}
        names = [_escaped(key) for key in keys]
        found: list[list[Replica]] = []
        for first in range(0, len(names), _MAX_WHERE_KEYS):
            some = names[first : first + _MAX_WHERE_KEYS]
            answer = self.ask({"verb": "where", "namespace": namespace, "keys": some})
            for held, on_disk in zip(answer["holders"], answer["on_disk"], strict=True):
                known = [one for one in held if one in nodes]
                found.append(
                    [Replica(nodes[one], "disk" if one in on_disk else "pool") for one in known]
                )
        return found

    def copy(
        self, key: str | bytes, hosts: Iterable[int | str], *, namespace: str = "default"
    ) -> tuple[int, int]:
        """Begins a task that copies the object to each host; the id for task().

        hosts: node ids or addresses of at most 8 agents (mcctl nodes). Raises: NotFoundError,
        InvalidArgumentError (a host is no member), BusyError (a host takes no objects now, or no
        master leads), UnsupportedError (no cluster, or an object in stripes).
        """
        order = {"verb": "copy", "targets": list(hosts)}
        return self._begin_task(key, namespace, order)

    def move(
        self, key: str | bytes, source: int | str, target: int | str, *, namespace: str = "default"
    ) -> tuple[int, int]:
        """As copy(). The source, which holds the object, drops it when the target holds it."""
        return self._begin_task(
            key, namespace, {"verb": "move", "source": source, "target": target}
        )

    def _begin_task(
        self, key: str | bytes, namespace: str, order: Mapping[str, object]
    ) -> tuple[int, int]:
        answer = self.ask({**order, "key": _escaped(key), "namespace": namespace})
        epoch, number = answer["task"]
        return epoch, number

    def task(self, task: tuple[int, int]) -> Task:
        """The state of a task of copy() or move(), of any client.

        NotFoundError: another master leads by now, or 4,096 later tasks have begun.
        """
        found = self.ask({"verb": "task", "task": list(task)})
        epoch, number = found["task"]
        return Task(
            (epoch, number),
            found["type"],
            found["state"],
            found["begun_ms"] / 1e3,
            found["changed_ms"] / 1e3,
            int(found["node"]),
            found["message"],
        )

    def remove_matching(
        self,
        prefix: str | bytes = b"",
        *,
        regex: str | bytes | None = None,
        namespace: str = "default",
        local: bool = False,
        timeout: float | None = None,
    ) -> Removal:
        """Removes the objects whose key starts with prefix, or in whose key regex matches.

        In a cluster on all hosts; a host that is away removes its objects before it serves again.
        With local, or without a cluster, on this host. An object that is put meanwhile may stay.
        regex: RE2's syntax in a cluster, without look-aheads and back-references
        (InvalidArgumentError names the construct), else Python's; both compare bytes. After
        timeout: DeadlineError, and the removal goes on.
        """
        question: dict[str, object] = {
            "verb": "rm",
            "namespace": namespace,
            "local": local,
            "timeout_ms": _walk_ms(timeout),
        }
        question["prefix" if regex is None else "regex"] = _escaped(
            prefix if regex is None else regex
        )
        try:
            # The agent answers by the deadline.
            answer = self.ask(question, (_WALK_S if timeout is None else timeout) + 1)
        except UnsupportedError:
            return self._remove_here(prefix, regex, namespace)
        return Removal(answer["removed"], answer["unconfirmed"] + answer.get("away", 0))

    def _remove_here(
        self, prefix: str | bytes, regex: str | bytes | None, namespace: str
    ) -> Removal:
        if regex is None:
            doomed = list(self.keys(prefix, namespace=namespace))
        else:
            try:
                pattern = re.compile(regex.encode() if isinstance(regex, str) else regex)
            except re.error as error:
                raise InvalidArgumentError(f"not a regular expression: {error}") from error
            doomed = [key for key in self.keys(namespace=namespace) if pattern.search(key)]
        return Removal(sum(one == Status.OK for one in self.remove_batch(doomed)), 0)

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
        replicas: int = 1,
        visibility: int | None = None,
        host: int = 0,
    ) -> None:
        """Stores a numpy array, torch tensor or other DLPack tensor with its dtype and shape.

        In host memory, at most 8 dimensions; one whose elements are not in order is copied first.
        With tp_size > 1 the tensor is this rank's shard: each rank puts a shard under the same key
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
            replicas=replicas,
            visibility=visibility,
            host=host,
        )

    def put_sharded(
        self, key: str | bytes, tensor: Any, *, tp_size: int, dim: int = 0, upsert: bool = False
    ) -> None:
        """Cuts a whole tensor along dim like torch.chunk() and stores all shards.

        All shards become visible together, or none (a group). get_tensor(tp_rank=, tp_size=)
        reads one shard.
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
        """The tensor as numpy array or torch tensor (like="torch") of the stored dtype and shape.

        With copy=False, a read-only view of the pool, pinned while referenced. Raises
        NotFoundError, CorruptError (the object is no tensor), UnsupportedError.
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


_MAX_WHERE_KEYS = 256  # of an agent's answer
_WALK_S = 60.0  # a listing or a removal by pattern, if the caller gives no time


def _walk_ms(timeout: float | None) -> int:
    return max(1, round((_WALK_S if timeout is None else timeout) * 1000))


def _escaped(key: str | bytes) -> str:
    return urllib.parse.quote(key, safe="/")


def _as_buffer(data: Any) -> Any:
    """A torch tensor's memory as a buffer; any other object unchanged."""
    if hasattr(data, "contiguous"):
        import torch

        return data.reshape(-1).view(torch.uint8).numpy()
    return data
