"""Adam and its variants. Arguments foreach, fused and capturable have no effect: a step is one launch."""

from __future__ import annotations

from typing import Any

from plait._tensor import Tensor
from plait.optim._engine import BETAS, EngineOptimizer, arguments, pairs
from plait.optim.optimizer import ParamsT


class Adam(EngineOptimizer):
    """The optimiser of Kingma and Ba 2015; with amsgrad that of Reddi, Kale and Kumar 2018.

    Args:
        params: parameters or groups of them
        lr: the learning rate
        betas: of the running means of gradients and of their squares
        eps: added to the denominator
        weight_decay: times the parameter is added to the gradient
        amsgrad: divide by the largest mean of squares so far
        foreach: has no effect
        maximize: go up, not down
        capturable: has no effect
        differentiable: not there
        fused: has no effect
        decoupled_weight_decay: shrink the parameter itself, as AdamW
    """

    _algorithm = "adam"
    _hyper = pairs("lr", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay", **BETAS)
    _tensors = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); arguments as of `Adam`."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def _values(self, group: dict[str, Any]) -> tuple[float, ...]:
        group["decoupled_weight_decay"] = True  # an older saved state does not say so
        return super()._values(group)


class Adamax(EngineOptimizer):
    """The variant of Adam with the infinity norm, of the same paper; arguments as of `Adam`."""

    _algorithm = "adamax"
    _hyper = pairs("lr", "eps", "weight_decay", "maximize", **BETAS)
    _tensors = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))


class NAdam(EngineOptimizer):
    """Adam with Nesterov's momentum (Dozat 2016); arguments as of `Adam`.

    Args:
        params: parameters or groups of them
        momentum_decay: how fast the momentum of early steps grows
    """

    _algorithm = "nadam"
    _hyper = pairs("lr", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay", "maximize", **BETAS)
    _tensors = ("exp_avg", "exp_avg_sq")
    _numbers = ("mu_product",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))


class RAdam(EngineOptimizer):
    """The rectified Adam of Liu et al. 2020, which starts without the adaptive rate; arguments as of `Adam`."""

    _algorithm = "radam"
    _hyper = pairs("lr", "eps", "weight_decay", "decoupled_weight_decay", "maximize", **BETAS)
    _tensors = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))
