"""Models on the meta device: their tensors get memory and values when they are sharded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from plait import _core
from plait._engine.runtime import check, own
from plait._errors import DistributedError
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup
from plait.distributed._objects import exchange
from plait.nn.modules.module import Module
from plait.nn.parameter import BUFFER, PARAMETER, Parameter, adopt, is_lazy, set_category


def meta_digest(t: Tensor) -> str:
    """Returns a text that tells the values that a tensor on the meta device will get from others; "" elsewhere."""
    return _core.bind_TensorMetaDigest(t._h) if t.is_meta and not is_lazy(t) else ""


def compare_meta(group: ProcessGroup, named: Mapping[Parameter, str]) -> None:
    """Raises an error on all ranks of a group unless they give tensors on the meta device the same values.

    Args:
        group: the ranks that have copies of the tensors
        named: the parameters, the same on each rank, with their names
    """
    mine = {name: digest for t, name in named.items() if (digest := meta_digest(t))}
    if not mine:
        return
    said = [json.loads(p) for p in exchange(group, "what is on the meta device", json.dumps(mine).encode())]
    for rank, theirs in zip(group._ranks, said, strict=True):
        for name, digest in said[0].items():
            if theirs.get(name) != digest:
                raise DistributedError(
                    f"{name} is on the meta device, and rank {rank} would give it other values than rank "
                    f"{group._ranks[0]}: call manual_seed with the same number on all ranks before the model is made"
                )


def materialize(owner: Module, init: Callable[[Module], Any] | None, ignored: set[int]) -> None:
    """Creates a module's buffers and ignored parameters that are on the meta device. `init` creates all tensors."""
    own_tensors = (*owner._parameters.values(), *owner._buffers.values())
    if init is not None and any(t is not None and t.is_meta for t in own_tensors):
        init(owner)
    number = -1  # the rank's own device
    for name, b in owner._buffers.items():
        if b is not None and not is_lazy(b) and b.is_meta:
            made = own(check(_core.bind_TensorMaterialize(b._h, number)))
            set_category(made, BUFFER)
            owner._buffers[name] = made
    for p in owner._parameters.values():
        if p is not None and id(p) in ignored and not is_lazy(p) and p.is_meta:
            adopt(p, own(check(_core.bind_TensorMaterialize(p._h, number))))
            set_category(p, PARAMETER)
