"""Schedules of learning rates. Their formulas are the engine's; rates go by way of an optimiser's `param_groups`."""

from __future__ import annotations

import json
import math
import warnings
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from plait import _core
from plait._runtime import address, check
from plait.optim.optimizer import Optimizer

_BEGIN, _STEP, _CLOSED = 0, 1, 2


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
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first rate is not used",
                UserWarning,
                stacklevel=2,
            )
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
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            group["lr"] = lr
        self._last_lr = [float(g["lr"]) for g in self.optimizer.param_groups]


_LRScheduler = LRScheduler


class EngineLR(LRScheduler):
    """A schedule whose formula is the engine's."""

    _kind: ClassVar[str]
    _names: ClassVar[tuple[str, ...]] = ()  # attributes that are options of the engine's

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
        return self._rates(_BEGIN if self._is_initial and self.last_epoch == 0 else _STEP, self.last_epoch)

    def _get_closed_form_lr(self) -> list[float]:
        return self._rates(_CLOSED, self.last_epoch)


def _momentum(group: dict[str, Any]) -> float:
    return float(group["betas"][0] if "betas" in group else group["momentum"])


def _set_momentum(group: dict[str, Any], value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class StepLR(EngineLR):
    """Multiplies the rate by gamma every step_size epochs."""

    _kind, _names = "step", ("step_size", "gamma")

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

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)


class LinearLR(EngineLR):
    """Takes the rate linearly from start_factor to end_factor times the initial one over total_iters epochs."""

    _kind, _names = "linear", ("start_factor", "end_factor", "total_iters")

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


class CosineAnnealingWarmRestarts(EngineLR):
    """Takes the rate to eta_min along a cosine and starts anew: after T_0 epochs, then each time T_mult times as many.

    `step` takes fractions of epochs.
    """

    _kind, _names = "restarts", ("T_0", "T_mult", "eta_min")

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

    _kind = "one_cycle"
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

    _kind = "cyclic"
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
        super().__init__(optimizer, last_epoch)

    def _options(self) -> dict[str, Any]:
        out = super()._options()
        if self.scale_fn is not None:
            cycle = math.floor(1 + self.last_epoch / (self.step_size_up + self.step_size_down))
            out["scale"] = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        return out


def _list(value: float | Sequence[float]) -> list[float]:
    return [float(v) for v in value] if isinstance(value, list | tuple) else [float(value)]  # type: ignore[arg-type]


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


class SequentialLR(LRScheduler):
    """Runs one schedule after the other: number i+1 starts at epoch milestones[i]."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: want one milestone less than schedulers, got {len(milestones)} for {len(schedulers)}"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("SequentialLR: all schedulers must belong to the given optimizer")
        self._schedulers, self._milestones = schedulers, list(milestones)
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for s in schedulers:
            s.last_epoch -= 1  # takes the first step of each back
        self._restart(schedulers[0])
        self._last_lr = schedulers[0].get_last_lr()

    @staticmethod
    def _restart(s: LRScheduler) -> None:
        before, s._is_initial = s._is_initial, True
        s._step_count = 0
        s.step()
        s._is_initial = before

    def step(self, epoch: float | None = None) -> None:
        """Moves to the next epoch."""
        if epoch is not None:
            raise TypeError("SequentialLR: step takes no epoch")
        self.last_epoch += 1
        which = bisect_right(self._milestones, self.last_epoch)
        s = self._schedulers[which]
        if which > 0 and self._milestones[which - 1] == self.last_epoch:
            s.step(0)
        else:
            s.step()
        self._last_lr = s.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Returns what the schedules must know to go on."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**state, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for s, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            s.load_state_dict(state)


class ChainedScheduler(SequentialLR):
    """Steps several schedules together."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler: got no schedulers")
        self.optimizer = optimizer or schedulers[0].optimizer
        if any(s.optimizer is not self.optimizer for s in schedulers):
            raise ValueError("ChainedScheduler: all schedulers must belong to the same optimizer")
        self._schedulers = list(schedulers)
        self._last_lr = [float(g["lr"]) for g in self.optimizer.param_groups]

    def step(self, epoch: float | None = None) -> None:
        """Moves every schedule to its next epoch."""
        for s in self._schedulers:
            s.step()
        self._last_lr = [float(g["lr"]) for g in self.optimizer.param_groups]


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
        """Takes the metric of an epoch."""
        self.last_epoch += 1
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
