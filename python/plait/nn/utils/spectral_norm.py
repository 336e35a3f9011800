"""Spectral norm by a hook before forward: the older form, with weight_orig, weight_u and weight_v."""

from __future__ import annotations

from typing import Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor
from plait._tensors.beside import beside
from plait.nn import functional as F
from plait.nn.modules.conv import _ConvTranspose
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter

__all__ = ["remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The hook: divides a weight by its largest singular value."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if not 0 < n_power_iterations <= 10_000:  # a few suffice; a size given by mistake would take hours
            raise ValueError(
                f"spectral_norm: n_power_iterations must lie between 1 and 10000, got {n_power_iterations}"
            )
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def matrix(self, weight: Tensor) -> Tensor:
        """Returns the weight as a matrix, a row for each output."""
        return _ops.flatten(_ops.movedim(weight, self.dim, 0) if self.dim else weight, 1)

    def compute_weight(self, module: Any, steps: int) -> Tensor:
        """Returns the weight, after some steps towards its largest singular value."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.matrix(weight)
        with no_grad():
            for _ in range(steps):
                v.copy_(F.normalize(_ops.mv(_ops.t(matrix), u), dim=0, eps=self.eps))
                u.copy_(F.normalize(_ops.mv(matrix, v), dim=0, eps=self.eps))
        # Backward must see the vectors of this pass, and the next one changes them in place.
        return _ops.div(weight, _ops.dot(_ops.clone(u), _ops.mv(matrix, _ops.clone(v))))

    def __call__(self, module: Any, _args: Any) -> None:
        """Sets the weight before forward."""
        setattr(module, self.name, self.compute_weight(module, self.n_power_iterations if module.training else 0))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value (Miyato et al., 2018), and returns the module.

    Args:
        module: whose weight it is
        name: its name
        n_power_iterations: steps towards that value in each forward in training, at most 10,000
        eps: added to norms
        dim: the outputs' dimension; 1 for transposed convolutions, else 0
    """
    if any(isinstance(h, SpectralNorm) and h.name == name for h in module._forward_pre_hooks.values()):
        raise RuntimeError(f"spectral_norm: {name!r} has one already")
    hook = SpectralNorm(
        name, n_power_iterations, (1 if isinstance(module, _ConvTranspose) else 0) if dim is None else dim, eps
    )
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}")
    if weight.dtype.is_complex:
        raise TypeError(f"spectral_norm: not defined for {weight.dtype.name}")
    del module._parameters[name]
    matrix = hook.matrix(weight.detach())
    module.register_parameter(name + "_orig", weight)
    for suffix, n in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
        start = beside(matrix, _ops.randn(n, dtype=matrix.dtype, device=matrix.device))
        module.register_buffer(name + suffix, F.normalize(start, dim=0, eps=eps))
    setattr(module, name, weight.detach())
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes a weight an ordinary parameter again, and returns the module."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            weight = hook.compute_weight(module, 0).detach()
            delattr(module, name)
            del module._buffers[name + "_u"], module._buffers[name + "_v"], module._parameters[name + "_orig"]
            module.register_parameter(name, Parameter(weight))
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"remove_spectral_norm: {name!r} of {type(module).__name__} has none")
