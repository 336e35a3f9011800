"""Training with different numbers of batches per rank, with the names of torch.distributed.algorithms.join."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from plait.nn.parallel.distributed import DistributedDataParallel


class Join:
    """A context manager for different numbers of batches per rank: see `DistributedDataParallel.join`.

    Args:
        joinables: a list with one `DistributedDataParallel`
        enable: whether to do anything
        throw_on_early_termination: raise on every rank as soon as one rank has no more batches
        kwargs: other arguments of `DistributedDataParallel.join`, such as `divide_by_initial_world_size`

    Raises:
        ValueError: if there is not exactly one module.
    """

    def __init__(
        self,
        joinables: Sequence[DistributedDataParallel],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        modules = list(joinables)
        if len(modules) != 1 or not isinstance(modules[0], DistributedDataParallel):
            got = ", ".join(type(m).__name__ for m in modules) or "none"
            raise ValueError(f"Join: want one DistributedDataParallel, got {got}")
        self._joins = contextlib.ExitStack()
        self._enter = modules[0].join(enable=enable, throw_on_early_termination=throw_on_early_termination, **kwargs)

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """Does nothing, since `DistributedDataParallel.forward` notifies the other ranks."""

    def __enter__(self) -> Self:
        self._joins.enter_context(self._enter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._joins.__exit__(kind, value, trace)
