"""The schedule that follows a metric."""

from __future__ import annotations

import math
from array import array
from typing import Any

from plait import _core
from plait._engine.runtime import address, check
from plait.optim.lr_scheduler._base import LRScheduler
from plait.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Reduces the rate when a metric has stopped to improve.

    Args:
        optimizer: whose rates change
        mode: "min" for a metric that is to shrink, "max" for one that is to grow
        factor: of the rate at each reduction
        patience: steps without improvement that are allowed
        threshold: by how much a value must be better to count
        threshold_mode: "rel" for a part of the best value, "abs" for a difference
        cooldown: steps after a reduction in which none is counted
        min_lr: the lowest rate: one for all groups or one for each
        eps: reductions by no more than this are not made
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | list[float] = 0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        n = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, list | tuple) else [min_lr] * n
        if len(self.min_lrs) != n:
            raise ValueError(f"expected {n} min_lrs, got {len(self.min_lrs)}")
        self.optimizer = optimizer
        self.mode, self.factor, self.patience, self.cooldown = mode, factor, patience, cooldown
        self.threshold, self.threshold_mode, self.eps = threshold, threshold_mode, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = [float(g["lr"]) for g in optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """Whether a reduction was made so lately that none is counted."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: float | None = None) -> None:  # type: ignore[override]
        """Takes the metric of an epoch, by default the next one."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else int(epoch)
        groups = self.optimizer.param_groups
        rates, least = array("d", [float(g["lr"]) for g in groups]), array("d", self.min_lrs)
        state = array("d", (self.best, self.num_bad_epochs, self.cooldown_counter))
        numbers = array("d", (self.factor, self.patience, self.threshold, self.cooldown, self.eps))
        grows, absolute = self.mode == "max", self.threshold_mode == "abs"
        given = (address(numbers), address(least), address(rates), len(rates), address(state))
        check(_core.bind_SchedulePlateau(float(metrics), grows, absolute, *given))
        self.best, self.num_bad_epochs, self.cooldown_counter = state[0], int(state[1]), int(state[2])
        for g, rate in zip(groups, rates, strict=True):
            if float(g["lr"]) != rate:
                g["lr"] = rate
        self._last_lr = [float(g["lr"]) for g in self.optimizer.param_groups]
