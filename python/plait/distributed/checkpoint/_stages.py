"""Full states of models whose layers are on the ranks of a pipeline."""

from __future__ import annotations

from typing import Any

from plait._tensor import Tensor
from plait.distributed._form import Form
from plait.distributed._groups import ProcessGroup
from plait.distributed._objects import all_gather_object
from plait.distributed.checkpoint._moving import reshard
from plait.distributed.checkpoint._nested import fill, flatten


def gather_stages(state: dict[str, Any], group: ProcessGroup, where: Any, here: bool) -> dict[str, Any]:
    """Returns a state of all stages, with full tensors. All ranks call it.

    Args:
        state: of this rank's stages
        group: the ranks of the pipeline
        where: the device of the tensors; None means that of this rank's
        here: whether this rank wants the state; otherwise it gets an empty dict
    """
    have = {name: t for name, t in flatten(state).items() if isinstance(t, Tensor)}
    outlines: list[Any] = [None] * group.size()
    all_gather_object(outlines, _outline(state), group._for("the state of a pipeline"))
    merged = outlines[0]
    for other in outlines[1:]:
        merged = _merged(merged, other)
    if where is None:
        where = next((t.device for t in have.values() if t.dim()), None)
    want: dict[str, Tensor] = {}
    made: dict[str, Any] = {}
    if here:
        made = fill(merged, lambda name, v: want.setdefault(name, v.empty(where)) if isinstance(v, Form) else v)
    reshard(have, want)
    return made


def _outline(state: Any) -> Any:
    """Returns a nested state with forms in place of tensors."""
    if isinstance(state, Tensor):
        return Form.of(state)
    if isinstance(state, dict):
        return {key: _outline(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_outline(value) for value in state]
    return state


def _merged(a: Any, b: Any) -> Any:
    """Returns the union of two stages' states. A group of parameters has those of both."""
    if isinstance(a, dict) and isinstance(b, dict):
        both = {**b, **a}
        for key in a.keys() & b.keys():
            joined = key == "params" and isinstance(a[key], list)
            both[key] = list(dict.fromkeys(a[key] + b[key])) if joined else _merged(a[key], b[key])
        return both
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [_merged(x, y) for x, y in zip(a, b, strict=True)]
    return a
