"""Methods that look at matrices as a whole."""

from __future__ import annotations

from typing import Any

from plait._tensor import Tensor
from plait.optim._engine import EngineOptimizer, arguments, pairs
from plait.optim.optimizer import ParamsT


class Adafactor(EngineOptimizer):
    """The optimiser of Shazeer and Stern 2018, "Adafactor: adaptive learning rates with sublinear memory cost".

    Args:
        params: parameters or groups of them
        lr: the largest learning rate
        beta2_decay: the power of the step that the means of squares decay by
        eps: the smallest square (None stands for the dtype's) and the smallest size of a parameter
        d: the largest root mean square of an update
        weight_decay: decoupled
        foreach: has no effect
        maximize: go up, not down
    """

    _algorithm = "adafactor"
    _hyper = pairs("lr", "beta2_decay", "d", "weight_decay", "maximize", eps1=("eps", 0), eps2=("eps", 1))
    _tensors = ("row_var", "col_var", "variance")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if eps[0] is not None and not eps[0] >= 0:
            raise ValueError(f"adafactor: eps[0] must be None or at least 0, got {eps[0]}")
        super().__init__(params, arguments(locals()))

    def _values(self, group: dict[str, Any]) -> tuple[float, ...]:
        eps1, eps2 = group["eps"]
        return super()._values({**group, "eps": (-1.0 if eps1 is None else eps1, eps2)})


class Muon(EngineOptimizer):
    """Momentum made orthogonal by Newton-Schulz iterations (Jordan et al. 2024); for matrices only.

    Args:
        params: matrices or groups of them
        lr: the learning rate
        weight_decay: decoupled
        momentum: of the running mean of gradients
        nesterov: look ahead along the momentum
        ns_coefficients: of the polynomial of an iteration
        eps: the smallest norm that is divided by
        ns_steps: the number of iterations
        adjust_lr_fn: how the rate depends on the shape: "original" or "match_rms_adamw"
    """

    _algorithm = "muon"
    _hyper = pairs(
        "lr", "weight_decay", "momentum", "nesterov", "eps", "ns_steps", a=("ns_coefficients", 0),
        b=("ns_coefficients", 1), c=("ns_coefficients", 2), match_rms="adjust_lr_fn",
    )  # fmt: skip
    _tensors = ("momentum_buffer",)
    _counts = False

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, arguments(locals()))

    def _values(self, group: dict[str, Any]) -> tuple[float, ...]:
        adjust = group["adjust_lr_fn"]
        if adjust not in (None, "original", "match_rms_adamw"):
            raise ValueError(f'muon: adjust_lr_fn must be "original" or "match_rms_adamw", got {adjust!r}')
        return super()._values({**group, "adjust_lr_fn": adjust == "match_rms_adamw"})
