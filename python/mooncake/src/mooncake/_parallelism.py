# SPDX-License-Identifier: Apache-2.0
"""ParallelAxis, TensorParallelism, ReadTarget; names and manifests of shards.

The key of a shard is the tensor's key and the names of the axes, in the order dp, tp, ep, pp:

    KEY_tp_RANK                                          along one TP axis and nothing else
    KEY__dp_RANKofSIZE__tp_RANKofSIZE_sdDIM__ep_RANKofSIZE_eidEXPERT__pp_RANKofSIZE_sidSTAGE
    KEY__writer_RANKofSIZE_sdDIM                         one writer's part of a whole tensor

Shards along TP and writers' parts have a manifest (KEY__parallelism_manifest,
KEY__writer_manifest) of 96 bytes, which describes the whole tensor, little-endian:

    offset  size  field
    0       4     magic 0x574d414e
    4       2     version, 1
    6       2     bytes, 96
    8       4     element type, as in the tensors' header
    12      4     dimensions
    16      4     split dimension
    20      4     parts
    24      8     zero
    32      64    shape of the whole, int64 each, -1 where there is no dimension
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

KINDS = ("dp", "tp", "ep", "pp")
MODES = ("as_stored", "shard", "full")
MAX_AXES = 4
MAX_PARTS = 65536
_MANIFEST = struct.Struct("<IHHIIiIQ8q")
_MAGIC = 0x574D414E


class ParallelAxis:
    """One axis along which a tensor is split or replicated: kind "dp", "tp", "ep" or "pp"."""

    def __init__(self) -> None:
        self.kind = ""
        self.rank = 0
        self.size = 1
        self.split_dim: int | None = None
        self.expert_id: int | None = None
        self.stage_id: int | None = None


class TensorParallelism:
    """The axes of a tensor: at most one axis of each kind."""

    def __init__(self) -> None:
        self.axes: list[ParallelAxis] = []


class ReadTarget:
    """The wanted form of a stored tensor: "as_stored", "shard" of this parallelism, or "full"."""

    def __init__(self) -> None:
        self.mode = "as_stored"
        self.parallelism: TensorParallelism | None = None


@dataclasses.dataclass(frozen=True)
class Axis:
    """A checked axis. dim: dimension that a TP axis splits, else -1; tag: expert or stage, else 0;
    extent: of this shard along dim, else 0."""

    kind: int
    rank: int
    size: int
    dim: int
    tag: int
    extent: int = 0

    @property
    def name(self) -> str:
        tail = ("", f"_sd{self.dim}", f"_eid{self.tag}", f"_sid{self.tag}")[self.kind]
        return f"{KINDS[self.kind]}_{self.rank}of{self.size}{tail}"

    def same_place(self, other: Axis) -> bool:
        return dataclasses.replace(self, extent=0) == dataclasses.replace(other, extent=0)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise ValueError(f"{value!r} is no rank, size, dimension, expert or stage")
    return value


def checked_axes(parallelism: Any) -> tuple[Axis, ...]:
    """The axes in the order of KINDS. Raises ValueError with the reason."""
    given = getattr(parallelism, "axes", None)
    if not isinstance(given, list | tuple) or not given:
        raise ValueError("a TensorParallelism needs at least one axis")
    axes = sorted((_axis(one) for one in given), key=lambda one: one.kind)
    if len({one.kind for one in axes}) < len(axes):
        raise ValueError("two axes of one kind")
    return tuple(axes)


def _axis(given: Any) -> Axis:
    kind = getattr(given, "kind", None)
    if kind not in KINDS:
        raise ValueError(f"an axis is one of {', '.join(KINDS)}, not {kind!r}")
    rank, size = _whole(given.rank), _whole(given.size)
    if rank >= size:
        raise ValueError(f"rank {rank} of {size}")
    needs = {"tp": "split_dim", "ep": "expert_id", "pp": "stage_id"}.get(kind)
    for name in ("split_dim", "expert_id", "stage_id"):
        if (getattr(given, name) is None) == (name == needs):
            raise ValueError(f"a {kind} axis {'needs' if name == needs else 'has no'} {name}")
    dim = _whole(given.split_dim) if kind == "tp" else -1
    tag = 0 if kind in ("dp", "tp") else _whole(getattr(given, needs or ""))
    return Axis(KINDS.index(kind), rank, size, dim, tag)


def writer_axis(partition: Any) -> Axis:
    """One writer's part: an object with rank, size and split_dim. Raises ValueError."""
    if any(not hasattr(partition, name) for name in ("rank", "size", "split_dim")):
        raise ValueError("a writer_partition has rank, size and split_dim")
    rank, size = _whole(partition.rank), _whole(partition.size)
    if rank >= size:
        raise ValueError(f"writer {rank} of {size}")
    return Axis(KINDS.index("tp"), rank, size, _whole(partition.split_dim), 0)


def tp_axis(axes: tuple[Axis, ...]) -> Axis | None:
    return next((one for one in axes if KINDS[one.kind] == "tp"), None)


def shard_key(key: str, axes: tuple[Axis, ...]) -> str:
    if len(axes) == 1 and KINDS[axes[0].kind] == "tp":
        return f"{key}_tp_{axes[0].rank}"
    return "__".join((key, *(one.name for one in axes)))


def writer_key(key: str, part: Axis) -> str:
    return f"{key}__writer_{part.rank}of{part.size}_sd{part.dim}"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The whole tensor of shards. type: number of the element type."""

    type: int
    dim: int
    parts: int
    shape: tuple[int, ...]

    def encode(self) -> bytes:
        return _MANIFEST.pack(
            _MAGIC, 1, _MANIFEST.size, self.type, len(self.shape), self.dim, self.parts, 0,
            *self.shape, *[-1] * (8 - len(self.shape)),
        )  # fmt: skip

    @staticmethod
    def decode(text: bytes) -> Manifest:
        """Raises ValueError for invalid bytes."""
        if len(text) != _MANIFEST.size:
            raise ValueError("a manifest has 96 bytes")
        magic, version, size, kind, dimensions, dim, parts, zero, *sides = _MANIFEST.unpack(text)
        if (magic, version, size, zero) != (_MAGIC, 1, _MANIFEST.size, 0) or dimensions > 8:
            raise ValueError("no manifest, or one of another version")
        shape = tuple(sides[:dimensions])
        if not 0 <= dim < dimensions or min(shape) < 0 or not 0 < parts <= MAX_PARTS:
            raise ValueError("a manifest that does not agree with itself")
        if shape[dim] % parts:
            raise ValueError("parts of different sizes")
        return Manifest(kind, dim, parts, shape)
