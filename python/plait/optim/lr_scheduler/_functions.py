"""Schedules that functions of the epoch describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.optim.lr_scheduler._base import LRScheduler
from plait.optim.optimizer import Optimizer

__all__ = ["LambdaLR", "MultiplicativeLR"]


class LambdaLR(LRScheduler):
    """Multiplies each group's initial rate by what a function, one for all or one for each, makes of the epoch."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = _functions(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Returns the rates of `last_epoch`."""
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Returns what the schedule must know to go on; of callable objects their attributes, of functions nothing."""
        return _without_functions(super().state_dict(), self.lr_lambdas)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned."""
        _with_functions(self, state_dict, super().load_state_dict)


class MultiplicativeLR(LambdaLR):
    """Multiplies each group's rate at every step by what a function makes of the epoch."""

    def get_lr(self) -> list[float]:
        """Returns the rates of `last_epoch`, from those of the epoch before."""
        rates = [float(g["lr"]) for g in self.optimizer.param_groups]
        if self._is_initial:
            return rates
        return [lr * f(self.last_epoch) for f, lr in zip(self.lr_lambdas, rates, strict=True)]


def _functions(optimizer: Optimizer, given: Any) -> list[Callable[[int], float]]:
    n = len(optimizer.param_groups)
    functions = list(given) if isinstance(given, list | tuple) else [given] * n
    if len(functions) != n:
        raise ValueError(f"Expected {n} lr_lambdas, but got {len(functions)}")
    return functions


def _without_functions(state: dict[str, Any], functions: list[Any]) -> dict[str, Any]:
    state["lr_lambdas"] = [
        None if not hasattr(f, "__dict__") or hasattr(f, "__code__") else dict(f.__dict__) for f in functions
    ]
    return state


def _with_functions(schedule: LambdaLR, state: dict[str, Any], load: Callable[[dict[str, Any]], None]) -> None:
    load({k: v for k, v in state.items() if k != "lr_lambdas"})
    for f, saved in zip(schedule.lr_lambdas, state.get("lr_lambdas", ()), strict=False):
        if saved is not None:
            f.__dict__.update(saved)
