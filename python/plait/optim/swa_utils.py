"""Averages of a model's parameters over training (Izmailov et al. 2018), exponential or plain, and their schedule."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from plait import _core
from plait._engine.runtime import address, check
from plait._modes import no_grad
from plait._tensor import Tensor
from plait._tensors.arrays import tensor
from plait.nn import Module
from plait.optim.lr_scheduler import LRScheduler
from plait.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from plait._device import DeviceLike


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Returns the update of an exponential average of one parameter."""
    _check_decay(decay)

    @no_grad()
    def update(averaged: Tensor, current: Tensor, _count: Any) -> Tensor:
        return averaged * decay + current * (1 - decay)

    return update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Returns the update of a plain average of one parameter."""

    @no_grad()
    def update(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged + (current - averaged) / (float(count) + 1)

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """Returns the update in place of exponential averages of a list of parameters."""
    _check_decay(decay)

    @no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], _count: Any) -> None:
        for a, c in zip(averaged, current, strict=True):
            a.lerp_(c.to(a.dtype), 1 - decay) if a.dtype.is_floating_point or a.dtype.is_complex else a.copy_(c)

    return update


def get_swa_multi_avg_fn() -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """Returns the update in place of plain averages of a list of parameters."""

    @no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], count: Any) -> None:
        part = 1 / (float(count) + 1)
        for a, c in zip(averaged, current, strict=True):
            a.lerp_(c.to(a.dtype), part) if a.dtype.is_floating_point or a.dtype.is_complex else a.copy_(c)

    return update


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ValueError(f"Invalid decay value {decay}, want 0 to 1")


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of that model's.

    Args:
        model: is copied
        device: where the copy goes
        avg_fn: returns the new average of the average, the parameter and the count so far
        multi_avg_fn: the same in place, for lists
        use_buffers: average buffers too, which are copied otherwise
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable[[list[Tensor], list[Tensor], Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: want avg_fn or multi_avg_fn, got both")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the averaged copy."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Takes the parameters of the model, as they are now, into the average."""
        averaged, current = self._values(self.module), self._values(model)
        if int(self.n_averaged) == 0:
            for a, c in zip(averaged, current, strict=True):
                a.copy_(c)
        elif self.avg_fn is not None:
            for a, c in zip(averaged, current, strict=True):
                a.copy_(self.avg_fn(a, c.to(a.device), self.n_averaged))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            update(averaged, [c.to(a.device) for a, c in zip(averaged, current, strict=True)], self.n_averaged)
        if not self.use_buffers:
            for a, c in zip(self.module.buffers(), model.buffers(), strict=True):
                a.detach().copy_(c.detach())
        self.n_averaged.add_(1)

    def _values(self, model: Module) -> list[Tensor]:
        buffers: Iterable[Tensor] = model.buffers() if self.use_buffers else ()
        return [t.detach() for t in itertools.chain(model.parameters(), buffers)]


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: DeviceLike | None = None) -> None:
    """Computes the running statistics of a model's batch normalisation anew, in one pass over data.

    Args:
        loader: batches, or lists of which the first is the batch
        model: its momenta and mode are restored afterwards
        device: where batches go
    """
    momenta = {}
    for m in model.modules():
        if hasattr(m, "reset_running_stats") and hasattr(m, "running_mean"):
            m.reset_running_stats()
            momenta[m] = m.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for m in momenta:
        m.momentum = None
    try:
        for batch in loader:
            x = batch[0] if isinstance(batch, list | tuple) else batch
            model(x if device is None else x.to(device))
    finally:
        for m, momentum in momenta.items():
            m.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Takes the rates from what they are to swa_lr, and keeps them there.

    Args:
        optimizer: whose rates change
        swa_lr: one for all groups or one for each
        anneal_epochs: how many steps it takes
        anneal_strategy: "cos" or "linear"
        last_epoch: the last epoch that was trained
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f'anneal_strategy must be "cos" or "linear", got {anneal_strategy!r}')
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        n = len(optimizer.param_groups)
        rates = list(swa_lr) if isinstance(swa_lr, list | tuple) else [swa_lr] * n
        for g, lr in zip(optimizer.param_groups, rates, strict=True):
            g["swa_lr"] = lr
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Returns the rates of the next step, from those of the one before."""
        groups = self.optimizer.param_groups
        rates, targets = array("d", [float(g["lr"]) for g in groups]), array("d", [float(g["swa_lr"]) for g in groups])
        linear = self.anneal_strategy == "linear"
        given = (address(rates), address(targets), len(rates), self._step_count - 1, self.anneal_epochs, linear)
        check(_core.bind_ScheduleAnneal(*given))
        return rates.tolist()
