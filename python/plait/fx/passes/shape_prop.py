"""Shapes and dtypes of the values in a graph, found by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

from plait._dtype import dtype as DType
from plait._layout import MemoryFormat, Size, contiguous_format
from plait._tensor import Tensor
from plait.fx.graph_module import GraphModule
from plait.fx.interpreter import Interpreter
from plait.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values. `is_quantized` is False and `qparams` empty: none are quantized."""

    shape: Size
    dtype: DType
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: MemoryFormat | None
    is_quantized: bool = False
    qparams: dict[str, Any] = {}  # noqa: RUF012


def _extract_tensor_metadata(result: Tensor) -> TensorMetadata:
    """Returns what is known of a tensor without its values."""
    order = contiguous_format if result.is_contiguous() else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, tuple(result.stride()), order)


class ShapeProp(Interpreter):
    """Runs a graph and notes in the nodes' `meta` the shapes and dtypes, as `tensor_meta`, and the `type` of values.

    Args:
        gm: the module
        fake_mode: must be None
    """

    def __init__(self, gm: GraphModule, fake_mode: None = None) -> None:
        super().__init__(gm)
        if fake_mode is not None:
            raise NotImplementedError('ShapeProp: fake_mode is not supported; give it tensors of the device "meta"')

    def run_node(self, n: Node) -> Any:
        """Runs a node and notes what its value is."""
        result = super().run_node(n)
        found = False

        def extract(x: Any) -> Any:
            nonlocal found
            if not isinstance(x, Tensor):
                return x
            found = True
            return _extract_tensor_metadata(x)

        meta = map_aggregate(result, extract)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph and returns its result."""
        return self.run(*args)
