"""Graphs of modules: traced, changed, and run as modules again."""

from plait.fx import immutable_collections as immutable_collections
from plait.fx import node as node
from plait.fx import proxy as proxy
from plait.fx._symbolic_trace import PH as PH
from plait.fx._symbolic_trace import ProxyableClassMeta as ProxyableClassMeta
from plait.fx._symbolic_trace import Tracer as Tracer
from plait.fx._symbolic_trace import symbolic_trace as symbolic_trace
from plait.fx._symbolic_trace import wrap as wrap
from plait.fx.graph import CodeGen as CodeGen
from plait.fx.graph import Graph as Graph
from plait.fx.graph_module import GraphModule as GraphModule
from plait.fx.interpreter import Interpreter as Interpreter
from plait.fx.interpreter import Transformer as Transformer
from plait.fx.node import Node as Node
from plait.fx.node import has_side_effect as has_side_effect
from plait.fx.node import map_arg as map_arg
from plait.fx.proxy import Proxy as Proxy
from plait.fx.subgraph_rewriter import replace_pattern as replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta", "Tracer",
    "Transformer", "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip
