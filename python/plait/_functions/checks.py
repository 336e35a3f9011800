"""Conditions that a program demands, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait._functions._checked import checked
from plait._tensor import Tensor


@checked
def _assert(condition: Any, message: str) -> None:
    """Raises AssertionError where a condition does not hold."""
    assert condition, message


def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """Raises RuntimeError where a tensor's one element is zero. Without elements that are known nothing is checked."""
    if input.device.type != "meta" and not input:
        raise RuntimeError(assert_msg)


def _check_with(error_type: type[BaseException], cond: bool, message: str | Callable[[], object] | None) -> None:
    """Raises an error where a condition does not hold; the message may be a function, which is called then."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond: want a bool, got {type(cond).__name__}")
    if not cond:
        text = "the condition does not hold" if message is None else message() if callable(message) else message
        raise error_type(str(text))


def _checks(error_type: type[BaseException]) -> Callable[..., None]:
    def check(cond: bool, message: str | Callable[[], object] | None = None) -> None:
        _check_with(error_type, cond, message)

    check.__doc__ = f"Raises {error_type.__name__} where a condition does not hold."
    return check


_check, _check_value, _check_type = _checks(RuntimeError), _checks(ValueError), _checks(TypeError)
_check_index, _check_not_implemented = _checks(IndexError), _checks(NotImplementedError)
