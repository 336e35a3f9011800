"""Operations on lists of tensors, as optimisers of libraries use them: `plait._foreach_add_(params, updates)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait import linalg
from plait._tensor import Tensor

# Those that exist in place too, with a name that ends in an underscore.
NAMES = {
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum",
    "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub",
    "tan", "tanh", "trunc",
}  # fmt: skip
ONLY = {"copy_", "max", "norm", "zero_"}


def foreach(name: str) -> Callable[..., list[Tensor] | None] | None:
    """Returns the function `_foreach_<name>`; None if there is no such."""
    if name.removesuffix("_") not in NAMES and name not in ONLY:
        return None
    method = (
        _norm if name == "norm" else _with_numbers(name) if name.startswith(("max", "min")) else getattr(Tensor, name)
    )

    def run(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> list[Tensor] | None:
        if name.startswith("addc") and len(args) > 2:
            args, kwargs = args[:2], {"value": args[2]}
        for a in (*args, *kwargs.values()):
            if isinstance(a, list | tuple) and len(a) != len(self):
                raise ValueError(f"_foreach_{name}: got {len(self)} tensors and a list of {len(a)}")
        out = [
            method(t, *(_at(a, i) for a in args), **{k: _at(v, i) for k, v in kwargs.items()})
            for i, t in enumerate(self)
        ]
        return None if name.endswith("_") else out

    run.__name__, run.__doc__ = f"_foreach_{name}", f"Applies `{name}` to each tensor of a list."
    return run


def _at(argument: Any, i: int) -> Any:
    return argument[i] if isinstance(argument, list | tuple) else argument


def _method(name: str) -> Callable[..., Tensor]:
    return getattr(Tensor, name)


def _norm(x: Tensor, ord: float = 2, dtype: Any = None) -> Tensor:
    return linalg.vector_norm(x, ord, dtype=dtype)


def _with_numbers(name: str) -> Callable[..., Tensor]:
    """Returns maximum, minimum or max, which a list's functions take numbers for too."""
    of_tensors = getattr(Tensor, name.removesuffix("_"))
    of_numbers = {"ma": Tensor.clamp_min, "mi": Tensor.clamp_max}[name[:2]]

    def method(x: Tensor, *others: Any) -> Tensor:
        numbers = others and not isinstance(others[0], Tensor)
        out = of_numbers(x, *others) if numbers else of_tensors(x, *others)
        return x.copy_(out) if name.endswith("_") else out

    return method
