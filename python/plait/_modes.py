"""Whether operations record gradients: modes of the calling thread."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from plait import _core
from plait._engine.context_stack import enter, leave

F = TypeVar("F", bound=Callable[..., Any])


class _Mode:
    """A context manager, and a decorator, that sets a mode of the calling thread and restores it."""

    def _set(self) -> int:
        raise NotImplementedError

    def __enter__(self) -> None:
        before = _core.bind_ModeGet()
        try:
            enter(self, self._set())
        except BaseException:  # Ctrl-C: the block does not run, and so does not restore
            _core.bind_ModeSet(before)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self, _core.bind_ModeSet)

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return self._generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = _core.bind_ModeGet()
            try:  # Ctrl-C may come right after the mode is set
                self._set()
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
                    self._set()
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


class set_detect_anomaly:  # noqa: N801
    """Makes backward passes check the gradients that each node returns, from now on, or inside `with`.

    A pass then waits for each gradient, and fails, with the name of the operation, where there is a NaN.

    Args:
        mode: whether they do
        check_nan: False makes them not look for NaN
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._enter(mode, check_nan)

    def _enter(self, mode: bool, check_nan: bool) -> None:
        self._before = is_anomaly_enabled(), is_anomaly_check_nan_enabled()
        _anomaly.mode, _anomaly.check = bool(mode), bool(check_nan)
        _core.bind_CheckGradsSet(_anomaly.mode and _anomaly.check)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _anomaly.mode, _anomaly.check = self._before
        _core.bind_CheckGradsSet(_anomaly.mode and _anomaly.check)


class detect_anomaly(set_detect_anomaly):  # noqa: N801
    """Makes backward passes inside check the gradients that each node returns; see `set_detect_anomaly`."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check = check_nan

    def __enter__(self) -> None:
        self._enter(True, self._check)


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
