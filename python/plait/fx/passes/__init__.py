"""Passes over graphs: what they find or make of them."""

from plait.fx.passes import graph_manipulation as graph_manipulation
from plait.fx.passes import shape_prop as shape_prop
from plait.fx.passes import split_module as split_module

__all__ = ["graph_manipulation", "shape_prop", "split_module"]
