"""Non-reentrant activation checkpointing: nodes save a token instead of a value. When backward needs a value, it calls
the function again and collects the values in the same order."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from plait import _core
from plait._autograd.backward import passes
from plait._autograd.saved_tensors import saved_tensors_hooks
from plait._device import device
from plait._engine.param_swap import places, swapped
from plait._errors import CheckpointError
from plait._modes import autocast_of, enable_grad, no_grad
from plait._random import Position
from plait._tensor import Tensor
from plait.autograd.function import FunctionCtx, saved_by


class _Stop(Exception):
    """Ends recomputation early, once all saved values are there."""


class _Token:
    """Stands for a saved value in a node. `values` holds the recomputed value by backward pass, until it is used."""

    __slots__ = ("__weakref__", "values")

    def __init__(self) -> None:
        self.values: dict[int, Tensor | None] = {}


def _describe(t: Tensor) -> dict[str, Any]:
    return {"shape": t.shape, "dtype": t.dtype, "device": t.device}


# What `determinism_check` compares of the first run and recomputation.
CHECKS: dict[str, Callable[[Tensor], Any]] = {"default": _describe, "none": lambda _: None}


class RandomState:
    """A saved random state of some devices."""

    def __init__(self, devices: set[device]) -> None:
        self._then = Position(devices)

    @contextlib.contextmanager
    def again(self) -> Any:
        """Inside, the saved state is restored. Afterwards the current state continues."""
        now = self._then.now()
        self._then.back()
        try:
            yield
        finally:
            now.back()


class Frame:
    """One checkpointed call of a function.

    Args:
        function: the function
        args: its arguments; tensors are saved as by a node, so that an outer checkpoint recomputes them, and in-place
            changes are detected
        kwargs: its keyword arguments
        random: the random state to restore for recomputation, if any
        again: the context manager for recomputation
        early_stop: whether recomputation stops once all values are there
        describe: returns the properties of a value that recomputation must reproduce
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        random: RandomState | None,
        again: AbstractContextManager[Any],
        early_stop: bool,
        describe: Callable[[Tensor], Any],
    ) -> None:
        self._function, self._kwargs, self._random, self._again = function, kwargs, random, again
        self._early_stop, self._describe = early_stop, describe
        self._mode = _core.bind_ModeGet()
        self._swapped = places()
        # The saver holds the tensors.
        self._args = [None if isinstance(a, Tensor) else a for a in args]
        self._places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        self._saver: FunctionCtx = saved_by(*(args[i] for i in self._places))
        self._tokens: list[weakref.ref[_Token]] = []
        self._descriptions: list[Any] = []
        self._recomputed: set[int] = set()  # backward passes that have recomputed the function
        self._ended = False  # the first run has ended
        self._lenient = False  # recomputation may save more values than the first run has so far

    def call(self, args: tuple[Any, ...]) -> Any:
        """Calls the function the first time."""
        with saved_tensors_hooks(self._pack, self._unpack):
            out = self._function(*args, **self._kwargs)
        self._ended = True
        return out

    def _pack(self, t: Tensor) -> _Token:
        """Saves a token instead of a value, in the first run."""
        token = _Token()
        self._tokens.append(weakref.ref(token))
        self._descriptions.append(self._describe(t))
        return token

    def _unpack(self, token: _Token) -> Tensor:
        """Returns a token's value, and recomputes the function before, once in each backward pass."""
        # Outside of a backward pass, each access recomputes.
        run = passes.run
        if run not in self._recomputed:
            self._recompute(run)
            if run:
                self._recomputed.add(run)
                passes.closing.append(lambda: self._forget(run))
        value = token.values.get(run)
        if value is None:
            raise CheckpointError(
                "checkpoint: a saved value is asked for a second time in one backward pass; "
                "read ctx.saved_tensors once in a custom function's backward"
            )
        if run:
            token.values[run] = None
        else:
            self._forget(run)
        return value

    def _forget(self, run: int) -> None:
        """Drops recomputed values that a backward pass has not used."""
        self._recomputed.discard(run)
        for ref in self._tokens:
            if (token := ref()) is not None:
                token.values.pop(run, None)

    def _recompute(self, run: int) -> None:
        """Calls the function again. The values that it saves go to the tokens, in the order of the first run."""
        args = list(self._args)
        for i, t in zip(self._places, self._saver.saved_tensors, strict=True):
            args[i] = t
        count = 0
        different: list[str] = []  # described at once, since a resharded FSDP parameter cannot be described later

        def pack(t: Tensor) -> Tensor:
            nonlocal count
            count += 1
            if count > len(self._tokens):
                if self._ended:
                    raise CheckpointError(
                        "checkpoint: the function saves more values when it is run again than the "
                        f"{len(self._tokens)} of the first time; it must compute the same"
                    )
                self._lenient = True  # a backward pass inside the function, which has not saved all values yet
                return t
            if (token := self._tokens[count - 1]()) is not None:
                token.values[run] = t
                with no_grad():
                    want, got = self._descriptions[count - 1], self._describe(t)
                if got != want:
                    different.append(f"number {count - 1} was saved as {want}, and computed again as {got}")
            if self._early_stop and count == len(self._tokens):
                raise _Stop
            return t

        random = contextlib.nullcontext() if self._random is None else self._random.again()
        with (
            contextlib.suppress(_Stop),
            random,
            saved_tensors_hooks(pack, lambda t: t),
            enable_grad(),
            autocast_of(self._mode),
            swapped(self._swapped),
            self._again,
        ):
            self._function(*args, **self._kwargs)
        if not self._lenient:
            self._check(count, different)

    def _check(self, count: int, different: list[str]) -> None:
        if count != len(self._tokens):
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation: "
                f"{len(self._tokens)} and {count}; the function must compute the same"
            )
        if different:
            raise CheckpointError(
                "checkpoint: Recomputed values have different metadata than during the forward pass: " + different[0]
            )
