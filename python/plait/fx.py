"""Graphs of modules: there is no tracing. Names can be imported, and raise when they are used."""

from __future__ import annotations

from typing import TypeVar

from plait._engine.missing_names import refusing as _refusing

__all__ = ["has_side_effect", "wrap"]

T = TypeVar("T")


def wrap(fn_or_name: T) -> T:
    """Returns a function, or its name, as it is: nothing is traced."""
    return fn_or_name


has_side_effect = wrap

__getattr__ = _refusing(
    __name__,
    "Graph GraphModule Interpreter Node Proxy Tracer Transformer map_arg replace_pattern symbolic_trace",
    "there is no tracing of modules; call the module itself",
)
