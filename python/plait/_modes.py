"""Whether operations record gradients: modes of the calling thread."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from plait import _core

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(_core.Scope):
    """A context manager, and a decorator, that sets a mode of the calling thread and restores it."""

    _end = staticmethod(_core.bind_ModeSet)

    def _begin(self) -> int:
        """Sets the mode, and returns the one to restore."""
        raise NotImplementedError

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return self._generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = _core.bind_ModeGet()
            try:  # Ctrl-C may come right after the mode is set
                self._begin()
                return function(*args, **kwargs)
            finally:
                _core.bind_ModeSet(before)

        return wrapped  # type: ignore[return-value]

    def _generator(self, function: F) -> F:
        """Decorates a generator: its body runs in the mode, and what its caller does between two values does not."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)

            def resume(how: Callable[..., Any], *sent: Any) -> Any:
                before = _core.bind_ModeGet()
                try:
                    self._begin()
                    return how(*sent)
                finally:
                    _core.bind_ModeSet(before)

            try:
                value = resume(next, generator)
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
                        resume(generator.close)
                        raise
                    except BaseException as thrown:
                        value = resume(generator.throw, thrown)
                    else:
                        value = resume(generator.send, sent)
            except StopIteration as end:
                return end.value

        return wrapped  # type: ignore[return-value]


class no_grad(_Mode):  # noqa: N801
    """Operations inside do not record gradients. `with no_grad():` or `@no_grad()`."""

    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        """Also takes the function to decorate, without parentheses."""
        self = super().__new__(cls)
        if orig_func is None:
            return self
        self.__init__()  # type: ignore[misc]
        return self(orig_func)

    def __init__(self, orig_func: Callable[..., Any] | None = None) -> None:
        super().__init__()

    def _begin(self) -> int:
        return _core.bind_GradSet(False)


class enable_grad(no_grad):  # noqa: N801
    """Operations inside record gradients, also within `no_grad`."""

    def _begin(self) -> int:
        return _core.bind_GradSet(True)


class set_grad_enabled(_Mode):  # noqa: N801
    """Operations record gradients or not, from now on, or inside `with`."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = bool(mode)
        self._at_making = _core.bind_GradSet(self.mode)

    def _begin(self) -> int:
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

    def _begin(self) -> int:
        return _core.bind_InferenceSet(self.mode)


class without_autocast(_Mode):  # noqa: N801
    """Operations inside compute in the dtypes of their inputs."""

    def _begin(self) -> int:
        return _core.bind_AutocastSuspend()


class autocast_of(_Mode):  # noqa: N801
    """Autocast inside is as it was in a mode."""

    def __init__(self, mode: int) -> None:
        super().__init__()
        self.mode = mode

    def _begin(self) -> int:
        return _core.bind_AutocastRestore(self.mode)


def is_grad_enabled() -> bool:
    """Whether operations of the calling thread record gradients."""
    return bool(_core.bind_GradEnabled())


def is_inference_mode_enabled() -> bool:
    """Whether the calling thread is in inference mode."""
    return bool(_core.bind_InferenceEnabled())


class set_detect_anomaly(_core.Scope):  # noqa: N801
    """Makes backward passes check the gradients that each node returns, from now on, or inside `with`.

    A pass then waits for each gradient, and fails, with the name of the operation, where there is a NaN.

    Args:
        mode: whether they do
        check_nan: False makes them not look for NaN
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._at_making = is_anomaly_enabled(), is_anomaly_check_nan_enabled()
        self._end((bool(mode), bool(check_nan)))

    def _begin(self) -> tuple[bool, bool]:
        return self._at_making

    def _end(self, before: tuple[bool, bool]) -> None:
        _anomaly.mode, _anomaly.check = before
        _core.bind_CheckGradsSet(_anomaly.mode and _anomaly.check)


class detect_anomaly(set_detect_anomaly):  # noqa: N801
    """Makes backward passes inside check the gradients that each node returns; see `set_detect_anomaly`."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check = bool(check_nan)

    def _begin(self) -> tuple[bool, bool]:
        before = is_anomaly_enabled(), is_anomaly_check_nan_enabled()
        try:
            self._end((True, self._check))
        except BaseException:  # Ctrl-C: the block does not run
            self._end(before)
            raise
        return before


class _Anomaly(threading.local):
    mode = False
    check = True


_anomaly = _Anomaly()


def is_anomaly_enabled() -> bool:
    """Whether `detect_anomaly` is in force."""
    return _anomaly.mode


def is_anomaly_check_nan_enabled() -> bool:
    """Whether `detect_anomaly`, where it is in force, looks for NaN."""
    return _anomaly.check
