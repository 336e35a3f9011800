"""Weight norm by a hook before forward: the older form, with the parameters weight_g and weight_v."""

from __future__ import annotations

from typing import Any

from plait import _ops
from plait._tensor import Tensor
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter
from plait.nn.utils.parametrizations import norm_except_dim

__all__ = ["remove_weight_norm", "weight_norm"]


class WeightNorm:
    """The hook: computes a weight from its norms and directions."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        """Returns the weight."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return _ops.mul(v, _ops.div(g, norm_except_dim(v, 2, self.dim)))

    def __call__(self, module: Any, _args: Any) -> None:
        """Sets the weight before forward."""
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a weight the product of norms and directions (Salimans and Kingma, 2016), and returns the module.

    Args:
        module: whose weight it is
        name: its name
        dim: along which each slice has a norm of its own; None for one norm
    """
    if any(isinstance(h, WeightNorm) and h.name == name for h in module._forward_pre_hooks.values()):
        raise RuntimeError(f"weight_norm: {name!r} has one already")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, 2, hook.dim).detach()))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes a weight an ordinary parameter again, and returns the module."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute_weight(module).detach()
            delattr(module, name)
            del module._parameters[name + "_g"], module._parameters[name + "_v"]
            module.register_parameter(name, Parameter(weight))
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"remove_weight_norm: {name!r} of {type(module).__name__} has none")
