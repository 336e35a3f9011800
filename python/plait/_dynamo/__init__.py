"""What scripts tell PyTorch's compiler, under its older name. There is none: functions run as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from plait._engine.missing_names import refusing as _refusing
from plait.compiler import allow_in_graph, disable, is_compiling, reset

__all__ = [
    "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "forbid_in_graph",
    "graph_break", "is_compiling", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "reset",
    "run",
]  # fmt: skip

config = SimpleNamespace()  # takes any option

assume_constant_result = disallow_in_graph = forbid_in_graph = run = allow_in_graph


def graph_break(msg: str = "") -> None:
    """Has no effect: there is no graph."""


def mark_dynamic(t: Any, index: Any = None, **kwargs: Any) -> None:
    """Has no effect: there is no graph."""


mark_static = mark_static_address = maybe_mark_dynamic = mark_dynamic

__getattr__ = _refusing(
    __name__, "OptimizedModule explain export list_backends optimize optimize_assert register_backend",
    "there is no compiler; call the function itself",
)  # fmt: skip

from plait._dynamo import eval_frame as eval_frame  # noqa: E402  # which takes names from here
