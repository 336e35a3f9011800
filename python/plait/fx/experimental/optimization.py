"""Graphs for inference: convolutions take batch norms in, and dropout goes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from plait import fx, nn
from plait.nn.utils.fusion import fuse_conv_bn_eval

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_PAIRS = [(nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d)]
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def matches_module_pattern(pattern: Iterable[type], node: fx.Node, modules: dict[str, Any]) -> bool:
    """Returns whether a node calls a module of the second class with what one of the first class returns.

    Args:
        pattern: the two classes
        node: the second node
        modules: by dotted names
    """
    if not node.args or not isinstance(node.args[0], fx.Node):
        return False
    calls = zip(pattern, (node.args[0], node), strict=True)
    return all(n.op == "call_module" and type(modules.get(str(n.target))) is kind for kind, n in calls)


def replace_node_module(node: fx.Node, modules: dict[str, Any], new_module: nn.Module) -> None:
    """Has a node call another module, which takes the name of the one it called.

    Args:
        node: of the op "call_module"
        modules: by dotted names; the new one is put in
        new_module: what is called
    """
    parent, _, name = str(node.target).rpartition(".")
    modules[str(node.target)] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """Returns the module's graph in which convolutions have taken in the batch norms behind them.

    Args:
        model: in evaluation mode
        inplace: change the model's convolutions, instead of a copy's
        no_trace: the model is a `GraphModule` already
    """
    if not inplace:
        model = copy.deepcopy(model)
    traced: Any = model if no_trace and isinstance(model, fx.GraphModule) else fx.symbolic_trace(model)
    modules = dict(traced.named_modules())
    for pattern in _PAIRS:
        for node in traced.graph.nodes:
            if not matches_module_pattern(pattern, node, modules):
                continue
            before: Any = node.args[0]
            bn = modules[node.target]
            if len(before.users) > 1 or not bn.track_running_stats:
                continue  # others need the convolution as it is; or the statistics are those of each batch
            replace_node_module(before, modules, fuse_conv_bn_eval(modules[before.target], bn))
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    return fx.GraphModule(traced, traced.graph)


class _WithoutDropout(fx.Transformer):
    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(self.submodules[target], _DROPOUT):
            return args[0]
        return super().call_module(target, args, kwargs)


def remove_dropout(model: nn.Module) -> nn.Module:
    """Returns the module's graph without modules of dropout."""
    return _WithoutDropout(fx.symbolic_trace(model)).transform()
