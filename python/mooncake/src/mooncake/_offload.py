# SPDX-License-Identifier: Apache-2.0
"""Mooncake's SSD offload: the tier on disks of this host's agent.

The agent that setup() starts gets a file in the folder of ssd_offload_path, as large as the limits
of the environment allow. An agent that runs already keeps the disks that it has.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
import time

import mckv

from mooncake import _environment

logger = logging.getLogger("mooncake")

_FOLDER = "/data/file_storage"
_FILE = "mc.tier"
_LEAST_BYTES = 64 << 20  # of the agent's option tier_bytes
_MOST_BYTES = 2 << 40
_PERCENT = 90  # of the room of the file system
_LIMITS = (
    "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES",
    "MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE",
    "MOONCAKE_OFFLOAD_BUCKET_MAX_PHYSICAL_BYTES",
)
_BACKEND = "MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR"
_OTHER_BACKENDS = ("distributed_storage_backend", "nvme_kv_storage_backend")
_OPENING_S = 2.0
_LOOK_S = 0.01


@dataclasses.dataclass(frozen=True)
class Wish:
    """What this process asks of the tier of an agent that it starts."""

    folder: str = ""  # empty: no tier
    named: bool = False  # the user has named the folder
    bytes: int = 0  # of the file; 0: its present size
    problem: str = ""  # why the folder cannot be used; empty: it can

    def options(self) -> dict[str, str]:
        """Variables for the agent. Those of the environment come first, and stay together."""
        if not self.folder or self.problem or os.environ.get("MC_AGENT_TIER_PATHS"):
            return {}
        return {"MC_AGENT_TIER_PATHS": self.folder, "MC_AGENT_TIER_BYTES": str(self.bytes)}


def wish(path: str) -> Wish:
    """The tier at path, else at MOONCAKE_OFFLOAD_FILE_STORAGE_PATH, else in Mooncake's folder.

    Makes the folder. Raises mckv.UnsupportedError for a storage backend without local files.
    """
    backend = os.environ.get(_BACKEND, "")
    if backend in _OTHER_BACKENDS:
        raise mckv.UnsupportedError(
            f"{_BACKEND}={backend}: the agent keeps objects on files and block devices of its "
            "host; unset the variable"
        )
    named = path or os.environ.get("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "")
    folder = named or _FOLDER
    try:
        _make(folder)
        return Wish(folder, bool(named), _bytes_of(folder))
    except (OSError, ValueError) as error:
        return Wish(folder, bool(named), problem=f"ssd_offload_path: {error}")


def _make(folder: str) -> None:
    """Raises OSError, or ValueError for a text that names no folder of an agent."""
    parts = pathlib.PurePath(folder).parts
    if not os.path.isabs(folder) or ".." in parts or "," in folder:
        raise ValueError(f"{folder} is no absolute path without '..' and commas")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"this user may not write to {folder}")


def _bytes_of(folder: str) -> int:
    """The size of the file in the folder; 0: the size that it has. A shorter file loses objects."""
    set_names = [name for name in _LIMITS if os.environ.get(name, "").strip() not in ("", "0")]
    limits = [limit for name in set_names if (limit := _environment.count(name, 0))]
    present = 0
    file = os.path.join(folder, _FILE)
    if os.path.exists(file):
        present = os.stat(file).st_size
    if present and not limits:
        return 0
    limit = min(limits, default=_MOST_BYTES)
    if limit < _LEAST_BYTES:
        raise ValueError(f"a limit of {limit} bytes is below the least size, {_LEAST_BYTES}")
    system = os.statvfs(folder)
    room = (present + system.f_bavail * system.f_frsize) * _PERCENT // 100
    wanted = limit if limit <= present else max(present, min(limit, room))
    if wanted < _LEAST_BYTES:
        raise ValueError(
            f"{folder} has room for {room} bytes; the tier has at least {_LEAST_BYTES}"
        )
    return wanted


def check(client: mckv.Client, wanted: Wish) -> None:
    """Names in the log what the agent's disks lack of the wish.

    Raises mckv.InvalidArgumentError if there are no disks because of the wish.
    """
    disks = _disks_of(client)
    refused = [one for one in disks if one["state"] in ("refused", "failed")]
    if len(refused) < len(disks):
        if wanted.named and all(not _is_in(wanted.folder, one["path"]) for one in disks):
            logger.warning(
                "mc: this host's agent keeps objects on %s; ssd_offload_path=%s has no effect",
                ", ".join(one["path"] for one in disks),
                wanted.folder,
            )
        return
    if disks:
        why = "; ".join(one.get("problem", one["state"]) for one in refused)
        logger.error("mc: enable_ssd_offload has no effect: %s", why)
    elif wanted.problem:
        raise mckv.InvalidArgumentError(wanted.problem)
    else:
        logger.warning(
            "mc: enable_ssd_offload has no effect: this host's agent was started without disks; "
            "end all processes that use the agent, or name tier_paths in the agent's configuration"
        )


def _disks_of(client: mckv.Client) -> list[dict[str, str]]:
    """The agent's disks, once their first blocks are read, and after two seconds in any case.

    The status has no event that tells of this: the call asks again every 10 ms.
    """
    deadline = time.monotonic() + _OPENING_S
    while True:
        disks = client.ask({"verb": "status"}).get("tier", {}).get("disks", [])
        if all(one["state"] != "opening" for one in disks) or time.monotonic() > deadline:
            return list(disks)
        time.sleep(_LOOK_S)


def _is_in(folder: str, path: str) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))
