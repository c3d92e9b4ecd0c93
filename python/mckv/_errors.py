# SPDX-License-Identifier: Apache-2.0
"""Statuses of mc.h as Python exceptions: one class per status, with cause and remedy."""

import enum
from typing import Final


class Status(enum.IntEnum):
    """The result of a call, or of one item of a batch (mc_status in mc.h)."""

    OK = 0
    INVALID_ARGUMENT = 1
    TOO_LARGE = 2
    BUFFER_TOO_SMALL = 3
    TIMEOUT = 4
    CANCELLED = 5
    BUSY = 6
    NO_SPACE = 7
    QUOTA_EXCEEDED = 8
    UNSUPPORTED = 9
    NOT_FOUND = 20
    CORRUPT = 21
    GROUP_ABORTED = 22
    HOLDER_AWAY = 23
    DISK_AWAY = 24
    FORKED = 40
    CLOSED = 41
    SESSION_LOST = 42
    PERMISSION_DENIED = 43
    VERSION_MISMATCH = 44
    NO_SUCH_NAMESPACE = 45
    DEVICE_FAILED = 46
    WRONG_KEY = 47
    AGENT_UNAVAILABLE = 60
    NO_MEMORY = 61
    INTERNAL = 62
    NO_MASTER = 63
    NOT_ADVERTISED = 64


class Retry(enum.IntEnum):
    """Whether the same call may succeed later."""

    NEVER = 0
    LATER = 1
    REOPEN = 2  # with a new Client


class Pin(enum.IntEnum):
    """When an object may be evicted: as any other, only as a last resort, or never."""

    NONE = 0
    SOFT = 1
    HARD = 2


class Visibility(enum.IntEnum):
    """When a put returns: every host of the cluster, or every client of this host finds the object.

    Without a master, CLUSTER is like LOCAL. REPLICATED: as many hosts as `replicas` says hold the
    object; NoMasterError, DeadlineError: this host holds the object, and there may be too few
    copies.
    """

    CLUSTER = 0
    LOCAL = 1
    REPLICATED = 2


class _Raise:
    def __repr__(self) -> str:
        return "RAISE"


RAISE: Final = _Raise()
"""The default of `default` in Client.get() and Client.view(): a miss raises NotFoundError."""


class McError(Exception):
    """Base class of mckv's exceptions. str() is the cause; see also remedy, status and retry."""

    status: Status = Status.INTERNAL
    remedy: str = "report it, with the agent's log"
    retry: Retry = Retry.NEVER

    def __init__(self, cause: str = "") -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.cause} [MC_{self.status.name}; remedy: {self.remedy}]"


class InvalidArgumentError(McError, ValueError):
    status = Status.INVALID_ARGUMENT
    remedy = "correct the argument"


class TooLargeError(McError, ValueError):
    status = Status.TOO_LARGE
    remedy = "put less at once, or enlarge the pool (mcctl segment resize)"


class BufferTooSmallError(McError, ValueError):
    status = Status.BUFFER_TOO_SMALL
    remedy = "offer a buffer of stat(key).length bytes"


class DeadlineError(McError, TimeoutError):
    status = Status.TIMEOUT
    remedy = "allow a longer timeout; the request may still take effect"
    retry = Retry.LATER


class CancelledError(McError):
    status = Status.CANCELLED
    remedy = "none needed: it was asked for"
    retry = Retry.LATER


class BusyError(McError):
    status = Status.BUSY
    remedy = "try again; release views, or open the client with a larger channel_count"
    retry = Retry.LATER


class NoSpaceError(McError):
    status = Status.NO_SPACE
    remedy = "release views and pins, wait, or enlarge the pool (mcctl segment resize)"
    retry = Retry.LATER


class QuotaExceededError(McError):
    status = Status.QUOTA_EXCEEDED
    remedy = "commit or abandon reservations first"
    retry = Retry.LATER


class UnsupportedError(McError, NotImplementedError):
    status = Status.UNSUPPORTED
    remedy = "do without: this agent, namespace or build has no such thing"


class NotFoundError(McError, KeyError):
    status = Status.NOT_FOUND
    remedy = "compute the value and put it"


class CorruptError(McError):
    status = Status.CORRUPT
    remedy = "remove the key and compute the value again"


class GroupAbortedError(McError):
    status = Status.GROUP_ABORTED
    remedy = "begin a new group"
    retry = Retry.LATER


class HolderAwayError(McError, ConnectionError):
    status = Status.HOLDER_AWAY
    remedy = "try again, or compute the value; mcctl nodes shows which hosts are away"
    retry = Retry.LATER


class DiskAwayError(McError, OSError):
    status = Status.DISK_AWAY
    remedy = "try again, or compute the value; mcctl status shows the disks"
    retry = Retry.LATER


class ForkedError(McError):
    status = Status.FORKED
    remedy = "open a Client of its own in the child process"
    retry = Retry.REOPEN


class ClosedError(McError):
    status = Status.CLOSED
    remedy = "open a new Client"
    retry = Retry.REOPEN


class SessionLostError(McError):
    status = Status.SESSION_LOST
    remedy = "begin again with a new view, reservation or group; else open a new Client"
    retry = Retry.REOPEN


class AccessDeniedError(McError, PermissionError):
    status = Status.PERMISSION_DENIED
    remedy = "let this user or namespace in (the agent's allow list)"


class VersionMismatchError(McError):
    status = Status.VERSION_MISMATCH
    remedy = "install the agent and mckv of one version"


class NoSuchNamespaceError(McError):
    status = Status.NO_SUCH_NAMESPACE
    remedy = "create the namespace (mcctl namespace create)"


class DeviceFailedError(McError):
    status = Status.DEVICE_FAILED
    remedy = "keep the tensor alive until the call returns; else reset the device"


class WrongKeyError(McError, PermissionError):
    status = Status.WRONG_KEY
    remedy = "give both sides the same cluster key file"


class AgentUnavailableError(McError, ConnectionError):
    status = Status.AGENT_UNAVAILABLE
    remedy = 'start mc-agent, set MC_AGENT to its socket, or use Client("embedded")'
    retry = Retry.LATER


class NoMemoryError(McError, MemoryError):
    status = Status.NO_MEMORY
    remedy = "free memory, descriptors or threads of this process or host"
    retry = Retry.LATER


class InternalError(McError):
    status = Status.INTERNAL


class NoMasterError(McError, ConnectionError):
    status = Status.NO_MASTER
    remedy = "try again, or compute the value; mcctl cluster status shows why no master answers"
    retry = Retry.LATER


class NotAdvertisedError(McError):
    status = Status.NOT_ADVERTISED
    remedy = "set the agent's option listen to an address that other hosts reach"


_CLASSES: dict[int, type[McError]] = {int(kind.status): kind for kind in McError.__subclasses__()}


def error_for(status: int, text: bytes) -> McError:
    """The exception for a status other than OK. text: libmc's error text, any bytes."""
    return _CLASSES.get(status, InternalError)(text.decode("utf-8", "replace"))


# Remedies for errors of a peer's engine, not of the pool.
_TRANSFER_REMEDIES: Final = {
    Status.TIMEOUT: "allow a longer timeout; until the batch has ended bytes may still land",
    Status.BUSY: "free batches that ended, close segments or unregister memory; else try again",
    Status.UNSUPPORTED: "move it through memory of the host",
    Status.NOT_FOUND: "ask for memory that the peer has registered (regions()), and for a name "
    "that an engine has",
    Status.CORRUPT: "restart the peer's engine; is it one of this version?",
    Status.FORKED: "open a TransferEngine of its own in the child process",
    Status.CLOSED: "open a new TransferEngine",
    Status.PERMISSION_DENIED: "register the memory with the rights that are used",
    Status.WRONG_KEY: "give both engines one key_file",
    Status.VERSION_MISMATCH: "install mckv of one version on both hosts",
    Status.AGENT_UNAVAILABLE: "start the peer's engine, or the store of names, or correct its "
    "address; then open the segment again",
    Status.INTERNAL: "report it, with what both engines did",
}


def transfer_error_for(status: int, text: bytes) -> McError:
    """error_for() of a TransferEngine."""
    error = error_for(status, text)
    error.remedy = _TRANSFER_REMEDIES.get(error.status, error.remedy)
    return error
