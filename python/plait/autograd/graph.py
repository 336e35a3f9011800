"""The recorded graph."""

from __future__ import annotations

from typing import Any, NoReturn

from plait._errors import MissingFeatureError


class saved_tensors_hooks:  # noqa: N801
    """Not there: what nodes save cannot be seen from Python."""

    def __init__(self, pack_hook: Any, unpack_hook: Any) -> None:
        _missing("saved_tensors_hooks")


class save_on_cpu:  # noqa: N801
    """Not there: use `plait.utils.checkpoint`."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        _missing("save_on_cpu")


def _missing(name: str) -> NoReturn:
    raise MissingFeatureError(f"autograd.graph.{name}: hooks on saved values are not there; use plait.utils.checkpoint")
