# SPDX-License-Identifier: Apache-2.0
"""The pool for an engine: a step never fails, and never waits long, because of the pool.

While the pool is unreachable, every lookup is a miss and no put stores anything. After a failure
the pool pauses, twice as long after each failure. Owns the client. Any thread may call.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import mckv
from mckv._errors import error_for

logger = logging.getLogger("mckv.engines")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_MAX_VERSION_BYTES = 256
# Errors of one object or request. Any other error means that the agent or session is unusable.
_OF_THE_CALL = (
    mckv.NotFoundError,
    mckv.CorruptError,
    mckv.HolderAwayError,
    mckv.DiskAwayError,
    mckv.NoMasterError,
    mckv.NoSpaceError,
    mckv.BusyError,
    mckv.TooLargeError,
)


class Keys:
    """Names of blocks: PREFIX/FINGERPRINT/HASH. The fingerprint is a hash of all properties by
    which blocks of two engines may differ, and of the version of the live weights.

    version_file: holds the name of the weights' version, equal for engines with equal weights.
    None: the version has no name.
    """

    def __init__(self, prefix: str, what: dict[str, Any], version_file: str | None = None) -> None:
        self._prefix, self._what, self._file = prefix, what, version_file
        self._named = self._name()
        self._use(self._named)

    def renew(self) -> None:
        """The weights may have changed: no key that was made before is made again.

        Engines that then find the same new name in their version files share blocks again. Without
        a new name, this engine shares no blocks with others.
        """
        named = self._name()
        self._use(named if named != self._named else f"{named} {uuid.uuid4().hex}")
        self._named = named

    def _name(self) -> str:
        if self._file is None:
            return ""
        try:
            with open(self._file, encoding="utf-8") as file:
                return file.read(_MAX_VERSION_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            logger.warning("cannot read the weights' version: %s", error)
            return ""

    def _use(self, version: str) -> None:
        text = json.dumps({**self._what, "weights": version}, sort_keys=True, default=str).encode()
        digest = hashlib.blake2b(text, digest_size=12).hexdigest()
        self.start = f"{self._prefix}/{digest}/".encode()

    def of(self, block_hash: bytes) -> bytes:
        return self.start + block_hash.hex().encode()


class Pool:
    """Opens the client when the agent is there; until then methods report misses."""

    def __init__(
        self, agent: str | None, namespace: str | None, label: str, timeout_s: float
    ) -> None:
        self._agent, self._namespace, self._label = agent, namespace, label
        self._timeout_s = timeout_s
        self._client: mckv.Client | None = None
        self._lock = threading.Lock()  # of the four
        self._pause_s = 0.0
        self._until = 0.0
        self._told_until = 0.0

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _open(self) -> mckv.Client | None:
        with self._lock:
            if self._until > time.monotonic():
                return None
            if self._client is not None:
                return self._client
            try:
                self._client = mckv.Client(
                    self._agent,
                    namespace=self._namespace,
                    label=self._label,
                    timeout=self._timeout_s,
                )
                return self._client
            except mckv.McError as error:
                failure = error
        self._failed("open", failure)
        return None

    def _failed(self, what: str, error: mckv.McError) -> None:
        if isinstance(error, _OF_THE_CALL):
            return
        with self._lock:
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            self._until = time.monotonic() + self._pause_s
        logger.warning("failed=%s pause_s=%g cause=%s", what, self._pause_s, error)
        if error.retry == mckv.Retry.REOPEN:
            self.close()

    def _worked(self) -> None:
        with self._lock:
            self._pause_s = 0.0

    def leading(self, keys: Sequence[bytes]) -> int:
        """The number of leading keys that the pool holds."""
        found = self.exists(keys) if keys else []
        return found.index(False) if False in found else len(found)

    def exists(self, keys: Sequence[bytes]) -> list[bool]:
        """For each key, whether the pool is known to hold the object."""
        client = self._open()
        if client is None:
            return [False] * len(keys)
        try:
            found = client.exists_batch(keys)
        except mckv.McError as error:
            self._failed("look-up", error)
            return [False] * len(keys)
        if None in found:
            self._tell_of_outage()
        return [bool(one) for one in found]

    def _tell_of_outage(self) -> None:
        with self._lock:
            if self._told_until > time.monotonic():
                return
            self._told_until = time.monotonic() + _LONGEST_PAUSE_S
        logger.warning(
            "no master answers: other hosts' blocks count as misses; mcctl cluster status"
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The agent's answer (Client.ask); None while the pool is unreachable.

        Raises UnsupportedError if this kind of agent has no such request.
        """
        client = self._open()
        if client is None:
            return None
        try:
            answer = client.ask(question, self._timeout_s)
        except mckv.UnsupportedError:
            raise
        except mckv.McError as error:
            self._failed("ask", error)
            return None
        self._worked()
        return answer

    def small(self, key: bytes, most_bytes: int) -> bytes | None:
        """The object's bytes; None for a miss or a longer object."""
        client = self._open()
        if client is None:
            return None
        buffer = bytearray(most_bytes)
        try:
            return bytes(buffer[: client.get_into(key, buffer)])
        except mckv.BufferTooSmallError:
            return None
        except mckv.McError as error:
            self._failed("get", error)
            return None

    def tell(self, key: bytes, value: bytes, replace: bool) -> bool:
        """Puts a small object. True: the pool holds the object. replace: overwrite an object."""
        client = self._open()
        if client is None:
            return False
        try:
            client.put(key, value, upsert=replace, timeout=self._timeout_s)
            return True
        except mckv.McError as error:
            self._failed("tell", error)
            return False

    def missing(self, keys: Sequence[bytes]) -> list[bool]:
        """The keys to save: none while the pool is unreachable."""
        client = self._open()
        if client is None:
            return [False] * len(keys)
        try:
            return [not one for one in client.exists_batch(keys)]
        except mckv.McError as error:
            self._failed("look-up", error)
            return [False] * len(keys)

    def views(self, keys: Sequence[bytes]) -> list[Any]:
        """A pinned view of each object, or None."""
        client = self._open()
        if client is None:
            return [None] * len(keys)
        try:
            found: list[Any] = client.view_batch(keys)
        except mckv.McError as error:
            self._failed("load", error)
            return [None] * len(keys)
        self._worked()
        return found

    def read(
        self,
        keys: Sequence[bytes],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
    ) -> list[bool]:
        """Copies objects to addresses, piece by piece. True: every object was copied whole."""
        client = self._open()
        if client is None:
            return [False] * len(keys)
        try:
            done = client.get_addresses(keys, addresses, sizes)
        except mckv.McError as error:
            self._failed("load", error)
            return [False] * len(keys)
        self._worked()
        return [got == sum(one) for got, one in zip(done, sizes, strict=True)]

    def remove(self, keys: Sequence[bytes]) -> None:
        client = self._open()
        if client is not None:
            try:
                client.remove_batch(keys, timeout=self._timeout_s)
            except mckv.McError as error:
                self._failed("remove", error)

    def put(
        self,
        keys: Sequence[bytes],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        parents: Sequence[bytes | None],
    ) -> list[bool]:
        """Stores objects, each gathered from several addresses. For each, whether it was stored."""
        client = self._open()
        if client is None:
            return [False] * len(keys)
        try:
            done = client.put_addresses(
                keys, addresses, sizes, parents=parents, timeout=self._timeout_s
            )
        except mckv.McError as error:
            self._failed("save", error)
            return [False] * len(keys)
        for status in set(done):
            if status not in (mckv.Status.OK, mckv.Status.NO_SPACE, mckv.Status.TOO_LARGE):
                self._failed("save", error_for(status, b"an object was refused"))
                break
        else:
            self._worked()
        return [status == mckv.Status.OK for status in done]
