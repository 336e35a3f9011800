"""The base of schedules, and of those whose formulas are the engine's."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any, ClassVar

from plait import _core
from plait._engine.replay import refuse
from plait._engine.runtime import address, check
from plait._engine.warnings import warn
from plait.optim.optimizer import Optimizer

BEGIN, STEP, CLOSED = 0, 1, 2


class LRScheduler:
    """The base of schedules, also of those that users write: a subclass overrides `get_lr`.

    Args:
        optimizer: whose rates change; "initial_lr" in its groups says what they start from
        last_epoch: the last epoch that was trained; -1 for none
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer")
        self.optimizer = optimizer
        self.base_lrs = [float(g["initial_lr"]) for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Returns what the schedule must know to go on; functions are not saved."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned; the rates are in the optimiser's own."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """Returns the rates that were set last, by group."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """Returns the rates of `last_epoch`, from those of the epoch before."""
        raise NotImplementedError(f"{type(self).__name__}.get_lr")

    def step(self, epoch: float | None = None) -> None:
        """Moves to the next epoch, after the optimiser's step.

        Args:
            epoch: the one to move to, for schedules with a closed form
        """
        if self._step_count == 1 and not self.optimizer._stepped:
            warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first rate is not used")
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch  # type: ignore[assignment]
            closed = getattr(self, "_get_closed_form_lr", None)
            values = self.get_lr() if closed is None else closed()
        self._set(values)

    def _set(self, values: Sequence[float]) -> None:
        refuse("a schedule steps inside the function: step it outside")
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            group["lr"] = lr
        self._last_lr = [float(g["lr"]) for g in self.optimizer.param_groups]


class EngineLR(LRScheduler):
    """A schedule whose formula is the engine's."""

    _kind: ClassVar[str]
    _names: ClassVar[tuple[str, ...]] = ()  # attributes that are options of the engine's
    _from_last: ClassVar[bool] = True  # rates follow from those of the epoch before, not from the first ones
    _begins_at_zero: ClassVar[bool] = (
        False  # epoch 0 has the rates of the beginning, even where `last_epoch` was set to it
    )

    def _options(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in self._names}

    def _rates(self, how: int, epoch: float) -> list[float]:
        groups = self.optimizer.param_groups
        base = array("d", self.base_lrs)
        rates = array("d", [float(g["lr"]) for g in groups])
        momenta = array("d", [_momentum(g) for g in groups]) if getattr(self, "cycle_momentum", False) else None
        at = 0 if momenta is None else address(momenta)
        options = json.dumps(self._options())
        n = len(groups)
        check(_core.bind_ScheduleRates(self._kind, options, how, epoch, address(base), address(rates), at, n))
        if momenta is not None:
            for g, m in zip(groups, momenta, strict=True):
                _set_momentum(g, m)
        return rates.tolist()

    def get_lr(self) -> list[float]:
        """Returns the rates of `last_epoch`, from those of the epoch before."""
        if self.last_epoch == 0 and (self._is_initial or self._begins_at_zero):
            return self._rates(BEGIN, 0)
        if not self._is_initial:
            return self._rates(STEP, self.last_epoch)
        if self._from_last:  # a run that goes on has this epoch's rates in its optimiser's state already
            return [float(g["lr"]) for g in self.optimizer.param_groups]
        return self._rates(STEP, self.last_epoch)

    def _get_closed_form_lr(self) -> list[float]:
        return self._rates(CLOSED, self.last_epoch)


def _momentum(group: dict[str, Any]) -> float:
    return float(group["betas"][0] if "betas" in group else group["momentum"])


def _set_momentum(group: dict[str, Any], value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value
