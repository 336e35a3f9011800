"""Schedules made of others, one after the other or all together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from plait.optim.lr_scheduler._base import LRScheduler
from plait.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


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

    def step(self) -> None:  # type: ignore[override]
        """Moves to the next epoch."""
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

    def step(self) -> None:  # type: ignore[override]
        """Moves every schedule to its next epoch."""
        for s in self._schedulers:
            s.step()
        self._last_lr = [float(g["lr"]) for g in self.optimizer.param_groups]
