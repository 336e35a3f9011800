"""Whether operations record gradients: modes of the calling thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from plait import _core

F = TypeVar("F", bound=Callable[..., Any])


class _Mode:
    """A context manager, and a decorator, that sets a mode of the calling thread and restores it."""

    def __init__(self) -> None:
        self._before: list[int] = []

    def _set(self) -> int:
        raise NotImplementedError

    def __enter__(self) -> None:
        self._before.append(self._set())

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core.bind_ModeSet(self._before.pop())

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(_Mode):  # noqa: N801
    """Operations inside do not record gradients. `with no_grad():` or `@no_grad()`."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """Also takes the function to decorate, without parentheses."""
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()  # type: ignore[misc]
        return self(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__()

    def _set(self) -> int:
        return _core.bind_GradSet(False)


class enable_grad(no_grad):  # noqa: N801
    """Operations inside record gradients, also within `no_grad`."""

    def _set(self) -> int:
        return _core.bind_GradSet(True)


class set_grad_enabled(_Mode):  # noqa: N801
    """Operations record gradients or not, from now on, or inside `with`."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = bool(mode)
        self._at_making = _core.bind_GradSet(self.mode)

    def _set(self) -> int:
        _core.bind_GradSet(self.mode)
        return self._at_making

    def __call__(self, function: F) -> F:
        """Decorates a function; the mode outside is as it was."""
        _core.bind_ModeSet(self._at_making)
        return super().__call__(function)


class inference_mode(_Mode):  # noqa: N801
    """Operations inside record no gradients and count no versions."""

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        """Also takes the function to decorate, without parentheses."""
        self = super().__new__(cls)
        if isinstance(mode, bool):
            return self
        self.__init__()  # type: ignore[misc]
        return self(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def _set(self) -> int:
        return _core.bind_InferenceSet(self.mode)


class without_autocast(_Mode):  # noqa: N801
    """Operations inside compute in the dtypes of their inputs."""

    def _set(self) -> int:
        return _core.bind_AutocastSuspend()


class autocast_of(_Mode):  # noqa: N801
    """Autocast inside is as it was in a mode."""

    def __init__(self, mode: int) -> None:
        super().__init__()
        self.mode = mode

    def _set(self) -> int:
        return _core.bind_AutocastRestore(self.mode)


def is_grad_enabled() -> bool:
    """Whether operations of the calling thread record gradients."""
    return bool(_core.bind_GradEnabled())


def is_inference_mode_enabled() -> bool:
    """Whether the calling thread is in inference mode."""
    return bool(_core.bind_InferenceEnabled())
