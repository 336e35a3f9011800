"""Schedules that follow a formula from epoch to epoch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from plait.optim.lr_scheduler._base import EngineLR
from plait.optim.optimizer import Optimizer

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LinearLR",
    "MultiStepLR",
    "PolynomialLR",
    "StepLR",
]


class StepLR(EngineLR):
    """Multiplies the rate by gamma every step_size epochs."""

    _kind, _names = "step", ("step_size", "gamma")
    _begins_at_zero = True

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)


class MultiStepLR(EngineLR):
    """Multiplies the rate by gamma at each of the milestones."""

    _kind = "multi_step"

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _options(self) -> dict[str, Any]:
        return {"milestones": sorted(int(m) for m in Counter(self.milestones).elements()), "gamma": self.gamma}


class ConstantLR(EngineLR):
    """Multiplies the rate by factor for the first total_iters epochs."""

    _kind, _names = "constant", ("factor", "total_iters")
    _begins_at_zero = True

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)


class LinearLR(EngineLR):
    """Takes the rate linearly from start_factor to end_factor times the initial one over total_iters epochs."""

    _kind, _names = "linear", ("start_factor", "end_factor", "total_iters")
    _begins_at_zero = True

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)


class ExponentialLR(EngineLR):
    """Multiplies the rate by gamma every epoch."""

    _kind, _names = "exponential", ("gamma",)

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)


class PolynomialLR(EngineLR):
    """Takes the rate to 0 over total_iters epochs as a power of what is left of them."""

    _kind, _names = "polynomial", ("total_iters", "power")

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)


class CosineAnnealingLR(EngineLR):
    """Takes the rate to eta_min and back along half waves of a cosine of T_max epochs (Loshchilov and Hutter 2017)."""

    _kind, _names = "cosine", ("T_max", "eta_min")

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Returns the rates of `last_epoch`, from those of the epoch before, or from the first ones before any step."""
        if not self._is_initial and self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        return super().get_lr()


class CosineAnnealingWarmRestarts(EngineLR):
    """Takes the rate to eta_min along a cosine and starts anew: after T_0 epochs, then each time T_mult times as many.

    `step` takes fractions of epochs.
    """

    _kind, _names = "restarts", ("T_0", "T_mult", "eta_min")
    _from_last = False

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or not isinstance(T_mult, int):
            raise ValueError(f"Expected integers for T_0 and T_mult, got {T_0} and {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """Moves to the next epoch, or to the one given, which may be a fraction."""
        super().step(epoch)
        self.last_epoch = math.floor(self.last_epoch)
