"""Methods that adapt the rate of each element. foreach, fused and capturable have no effect: a step is one launch."""

from __future__ import annotations

from typing import Any

from plait._tensor import Tensor
from plait._tensors.arrays import tensor
from plait.optim._engine import EngineOptimizer, arguments, pairs
from plait.optim.optimizer import ParamsT


class Adagrad(EngineOptimizer):
    """The optimiser of Duchi, Hazan and Singer 2011.

    Args:
        params: parameters or groups of them
        lr: the learning rate
        lr_decay: how fast it falls with the steps
        weight_decay: times the parameter is added to the gradient
        initial_accumulator_value: what the sums of squares start from
        eps: added to the denominator
        maximize: go up, not down
    """

    _algorithm = "adagrad"
    _hyper = pairs("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize")
    _tensors = ("sum",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, arguments(locals()))


class Adadelta(EngineOptimizer):
    """The optimiser of Zeiler 2012.

    Args:
        params: parameters or groups of them
        lr: scales the moves
        rho: of the running means of squares
        eps: added under the roots
        weight_decay: times the parameter is added to the gradient
        maximize: go up, not down
    """

    _algorithm = "adadelta"
    _hyper = pairs("lr", "rho", "eps", "weight_decay", "maximize")
    _tensors = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))


class RMSprop(EngineOptimizer):
    """The optimiser of Hinton's lecture 6e (2012); centered, that of Graves 2013.

    Args:
        params: parameters or groups of them
        lr: the learning rate
        alpha: of the running mean of squares
        eps: added to the denominator
        weight_decay: times the parameter is added to the gradient
        momentum: how much of the last move goes on
        centered: divide by the deviation from the mean gradient
        maximize: go up, not down
    """

    _algorithm = "rmsprop"
    _hyper = pairs("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize")
    _tensors = ("square_avg", "momentum_buffer", "grad_avg")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))


class Rprop(EngineOptimizer):
    """Resilient backpropagation (Riedmiller and Braun 1993), for gradients of the whole data.

    Args:
        params: parameters or groups of them
        lr: the first step
        etas: factors by which a step shrinks and grows
        step_sizes: the smallest and the largest step
        maximize: go up, not down
    """

    _algorithm = "rprop"
    _hyper = pairs(
        "lr",
        "maximize",
        eta_minus=("etas", 0),
        eta_plus=("etas", 1),
        step_min=("step_sizes", 0),
        step_max=("step_sizes", 1),
    )
    _tensors = ("prev", "step_size")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))


class ASGD(EngineOptimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992); state "ax" is the mean.

    Args:
        params: parameters or groups of them
        lr: the learning rate
        lambd: decay of parameter and rate
        alpha: the power by which the rate falls
        t0: steps before averaging starts
        weight_decay: times the parameter is added to the gradient
        maximize: go up, not down
    """

    _algorithm = "asgd"
    _hyper = pairs("lr", "lambd", "alpha", "t0", "weight_decay", "maximize")
    _tensors = ("ax",)
    _numbers = ("eta",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def _kept(self, p: Tensor) -> dict[str, Any]:
        out = super()._kept(p)
        if out:
            t0 = next(g["t0"] for g in self.param_groups if any(q is p for q in g["params"]))
            out["mu"] = tensor(1 / max(1.0, float(out["step"]) - t0))
        return out
