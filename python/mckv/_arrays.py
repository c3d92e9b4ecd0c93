# SPDX-License-Identifier: Apache-2.0
"""A view's bytes as read-only numpy arrays and torch tensors, without a copy."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mckv._native import View


def _shaped(array: Any, shape: Sequence[int] | None) -> Any:
    return array if shape is None else array.reshape(tuple(shape))


def as_numpy(view: View | memoryview, dtype: object, shape: Sequence[int] | None) -> Any:
    import numpy

    memory: Any = view
    kind: Any = numpy.uint8 if dtype is None else dtype
    return _shaped(numpy.frombuffer(memory, dtype=kind), shape)


def as_torch(view: View | memoryview, dtype: Any, shape: Sequence[int] | None) -> Any:
    import torch

    with warnings.catch_warnings():
        # torch warns about read-only memory; ReadOnlyTensor refuses writes, so the warning is void.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(view, dtype=torch.uint8 if dtype is None else dtype)
    return _shaped(flat, shape).as_subclass(_read_only_tensor())


@functools.cache
def _read_only_tensor() -> type:
    """A torch.Tensor that raises on every operation that would write to the tensor's memory."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    class ReadOnlyTensor(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            written = [kwargs.get("out")]
            if (name.endswith("_") and not name.endswith("__")) or name in _WRITERS:
                written.append(args[:1])
            if any(isinstance(one, ReadOnlyTensor) for one in tree_leaves(written)):
                raise ValueError(
                    f"{name}: this tensor is a view of the pool and read-only; use .clone()"
                )
            with torch._C.DisableTorchFunctionSubclass():
                pool = {
                    one.untyped_storage().data_ptr()
                    for one in tree_leaves((args, kwargs))
                    if isinstance(one, ReadOnlyTensor)
                }

                def seal(made: Any) -> Any:
                    """A result over pool memory stays read-only; a new result is a plain tensor."""
                    if isinstance(made, torch.Tensor):
                        return (
                            made.as_subclass(ReadOnlyTensor)
                            if made.untyped_storage().data_ptr() in pool
                            else made
                        )
                    if type(made).__module__ == "numpy" and hasattr(made, "flags"):
                        made.flags.writeable = False
                    return made

                return tree_map(seal, func(*args, **kwargs))

    return ReadOnlyTensor


_WRITERS = frozenset(
    f"__{name}__"
    for name in (
        "setitem iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
    ).split()
)
