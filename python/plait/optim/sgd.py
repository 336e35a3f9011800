"""Stochastic gradient descent."""

from __future__ import annotations

from plait._tensor import Tensor
from plait.optim._engine import BETAS, EngineOptimizer, arguments, pairs
from plait.optim.optimizer import ParamsT


class SGD(EngineOptimizer):
    """Stochastic gradient descent, with momentum or Nesterov's (Sutskever et al. 2013).

    Args:
        params: parameters or groups of them
        lr: the learning rate
        momentum: how much of the last move goes on
        dampening: how much less a gradient adds to it
        weight_decay: times the parameter is added to the gradient
        nesterov: look ahead along the momentum
        maximize: go up, not down
        foreach, fused: have no effect: a step is one launch
        differentiable: not there
    """

    _algorithm = "sgd"
    _hyper = pairs("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")
    _tensors = ("momentum_buffer",)
    _counts = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, arguments(locals()))


class Lion(EngineOptimizer):
    """The optimiser of Chen et al. 2023, "Symbolic discovery of optimization algorithms": moves by signs.

    Args:
        params: parameters or groups of them
        lr: the learning rate, 3 to 10 times less than Adam's
        betas: of the mean that a move mixes with the gradient, and of the one that is kept
        weight_decay: decoupled
        maximize: go up, not down
    """

    _algorithm = "lion"
    _hyper = pairs("lr", "weight_decay", "maximize", **BETAS)
    _tensors = ("exp_avg",)
    _counts = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))
