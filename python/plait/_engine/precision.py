"""How precisely products are computed: permissions of the process, which operations read when they are called."""

from __future__ import annotations

from plait import _core
from plait._engine.warnings import warn

# The engine's numbers of the permissions.
TF32_PRODUCTS, TF32_CONVOLUTIONS, FLOAT16_SUMS, BFLOAT16_SUMS = range(4)

_fast = "high"  # the word for TF32 products


def permitted(permission: int) -> bool:
    """Returns whether a permission is on."""
    return bool(_core.bind_PrecisionPermitted(permission))


def permit(permission: int, on: bool) -> None:
    """Turns a permission on or off."""
    global _fast
    if permission == TF32_PRODUCTS:
        _fast = "high"
    _core.bind_PrecisionPermit(permission, on)


def matmul_precision() -> str:
    """Returns the word for the precision of float32 products."""
    return _fast if permitted(TF32_PRODUCTS) else "highest"


def set_matmul_precision(precision: str) -> None:
    """Sets the precision of float32 products by a word; warns if there is no such word."""
    global _fast
    word = precision.lower()
    if word not in ("highest", "high", "medium"):
        warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; "
            "this call of set_float32_matmul_precision has no effect"
        )
        return
    permit(TF32_PRODUCTS, word != "highest")
    if word == "medium":
        _fast = word
