"""Schedules that raise and lower the rate, and the momentum with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from plait.optim.lr_scheduler._base import EngineLR
from plait.optim.optimizer import Optimizer

__all__ = ["CyclicLR", "OneCycleLR"]


class OneCycleLR(EngineLR):
    """Takes the rate up and then down to almost 0 in one cycle, and the momentum the other way (Smith and Topin 2018).

    Args:
        optimizer: whose rates change
        max_lr: the highest rate: one for all groups or one for each
        total_steps: of the cycle; or epochs times steps_per_epoch
        epochs: see total_steps
        steps_per_epoch: see total_steps
        pct_start: the part in which the rate rises
        anneal_strategy: "cos" or "linear"
        cycle_momentum: whether the momentum changes
        base_momentum: at the highest rate
        max_momentum: at the ends
        div_factor: the first rate is max_lr over this
        final_div_factor: the last rate is the first over this
        three_phase: come down as fast as up, then go on to the last rate
        last_epoch: the last step that was made
    """

    _kind, _from_last = "one_cycle", False
    _names = (
        "max_lr", "total_steps", "pct_start", "linear", "cycle_momentum", "base_momentum", "max_momentum", "div_factor",
        "final_div_factor", "three_phase",
    )  # fmt: skip

    def __init__(
        self, optimizer: Optimizer, max_lr: float | list[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float = 0.85,
        max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: want total_steps, or both epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f'anneal_strategy must be "cos" or "linear", got {anneal_strategy!r}')
        if cycle_momentum and not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.max_lr = _list(max_lr)
        self.total_steps, self.pct_start, self.linear = total_steps, pct_start, anneal_strategy == "linear"
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        self.div_factor, self.final_div_factor, self.three_phase = div_factor, final_div_factor, three_phase
        if last_epoch == -1:
            each = self.max_lr * (len(optimizer.param_groups) if len(self.max_lr) == 1 else 1)
            if len(each) != len(optimizer.param_groups):
                raise ValueError(f"max_lr: got {len(each)} values for {len(optimizer.param_groups)} groups")
            for g, most in zip(optimizer.param_groups, each, strict=True):
                g["initial_lr"], g["max_lr"] = most / div_factor, most
                g["min_lr"] = g["initial_lr"] / final_div_factor
                if cycle_momentum:
                    g["max_momentum"], g["base_momentum"] = max_momentum, base_momentum
        super().__init__(optimizer, last_epoch)


class CyclicLR(EngineLR):
    """Takes the rate up and down between two bounds in straight lines, and the momentum the other way (Smith 2017).

    Args:
        optimizer: whose rates change
        base_lr: the lowest rate: one for all groups or one for each
        max_lr: the highest rate, likewise
        step_size_up: steps up
        step_size_down: steps down; as many by default
        mode: "triangular", "triangular2" (half the height every cycle) or "exp_range" (gamma to the power of the step)
        gamma: see mode
        scale_fn: the height, of the cycle or the step; in the place of mode
        scale_mode: "cycle" or "iterations"
        cycle_momentum: whether the momentum changes
        base_momentum: at the highest rate
        max_momentum: at the lowest rate
        last_epoch: the last step that was made
    """

    _kind, _from_last = "cyclic", False
    _names = (
        "base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "cycle_momentum", "base_momentum",
        "max_momentum",
    )  # fmt: skip

    def __init__(
        self, optimizer: Optimizer, base_lr: float | list[float], max_lr: float | list[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError(f"mode is invalid and scale_fn is None: got {mode!r}")
        if cycle_momentum and not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.base_lr, self.max_lr = _list(base_lr), _list(max_lr)
        self.step_size_up = int(step_size_up)
        self.step_size_down = int(step_size_down or step_size_up)
        self.mode, self.gamma, self.scale_fn, self.scale_mode = mode, gamma, scale_fn, scale_mode
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        if last_epoch == -1:
            n = len(optimizer.param_groups)
            for g, low in zip(optimizer.param_groups, self.base_lr * (n if len(self.base_lr) == 1 else 1), strict=True):
                g["initial_lr"] = low
                if cycle_momentum:
                    g["max_momentum"], g["base_momentum"] = max_momentum, base_momentum
        super().__init__(optimizer, last_epoch)

    def _options(self) -> dict[str, Any]:
        out = super()._options()
        if self.scale_fn is not None:
            cycle = math.floor(1 + self.last_epoch / (self.step_size_up + self.step_size_down))
            out["scale"] = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        return out


def _list(value: float | Sequence[float]) -> list[float]:
    return [float(v) for v in value] if isinstance(value, list | tuple) else [float(value)]  # type: ignore[arg-type]
