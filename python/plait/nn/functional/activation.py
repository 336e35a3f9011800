"""Activation functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait import _ops
from plait._engine.warnings import warn
from plait._functions._checked import checked
from plait._functions._common import with_out

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait._random import Generator
    from plait._tensor import Tensor

__all__ = [
    "celu",
    "celu_",
    "elu",
    "elu_",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "leaky_relu",
    "leaky_relu_",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rrelu",
    "rrelu_",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
]

prelu, gelu, glu, logsigmoid, tanhshrink = _ops.prelu, _ops.gelu, _ops.glu, _ops.logsigmoid, _ops.tanhshrink
softsign, softplus, softshrink = _ops.softsign, _ops.softplus, _ops.softshrink
hardshrink = with_out(_ops.hardshrink)
sigmoid, tanh = _ops.sigmoid, _ops.tanh
relu_, elu_, celu_, selu_ = _ops.relu_, _ops.elu_, _ops.celu_, _ops.selu_
leaky_relu_, hardtanh_, threshold_ = _ops.leaky_relu_, _ops.hardtanh_, _ops.threshold_


@checked
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns max(0, x)."""
    return _ops.relu_(input) if inplace else _ops.relu(input)


@checked
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns min(max(0, x), 6)."""
    return _ops.relu6_(input) if inplace else _ops.relu6(input)


@checked
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Returns x where it is positive, else alpha * (exp(x) - 1)."""
    return _ops.elu_(input, alpha) if inplace else _ops.elu(input, alpha)


@checked
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Returns max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return _ops.celu_(input, alpha) if inplace else _ops.celu(input, alpha)


@checked
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns the scaled exponential linear unit of x."""
    return _ops.selu_(input) if inplace else _ops.selu(input)


@checked
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns x * sigmoid(x)."""
    return _ops.silu_(input) if inplace else _ops.silu(input)


@checked
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns x * tanh(softplus(x))."""
    return _ops.mish_(input) if inplace else _ops.mish(input)


@checked
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns x * relu6(x + 3) / 6."""
    return _ops.hardswish_(input) if inplace else _ops.hardswish(input)


@checked
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Returns relu6(x + 3) / 6."""
    return _ops.hardsigmoid_(input) if inplace else _ops.hardsigmoid(input)


@checked
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Returns x, at least min_val and at most max_val."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} exceeds max_val {max_val}")
    return _ops.hardtanh_(input, min_val, max_val) if inplace else _ops.hardtanh(input, min_val, max_val)


@checked
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Returns x where it is positive, else negative_slope * x."""
    return _ops.leaky_relu_(input, negative_slope) if inplace else _ops.leaky_relu(input, negative_slope)


@checked
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Returns x where it exceeds the threshold, else value."""
    return _ops.threshold_(input, threshold, value) if inplace else _ops.threshold(input, threshold, value)


@checked
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Returns x where it is positive, else x times a slope: random in training, else the mean of lower and upper."""
    return (_ops.rrelu_ if inplace else _ops.rrelu)(input, lower, upper, training)


@checked
def rrelu_(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Does in place what `rrelu` does, with the slopes of a generator if one is given, and returns `input`."""
    if generator is None or not training:
        return rrelu(input, lower, upper, training, True)
    slopes = _ops.uniform_(_ops.empty_like(input.detach()), lower, upper, generator=generator)
    slopes = _ops.where(_ops.ge(input.detach(), 0), 1.0, slopes)
    return _ops.mul_(input, slopes)


def _softmax_dim(name: str, dim: int | None, ndim: int) -> int:
    if dim is not None:
        return dim
    warn(f"{name}: dim is not given; the choice made for it will go, give one")
    return 0 if ndim in (0, 1, 3) else 1


@checked
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """Returns exp(x) over its sum along a dimension; computed in `dtype` if given."""
    x = input if dtype is None else input.to(dtype)
    return _ops.softmax(x, _softmax_dim("softmax", dim, x.ndim) if dim is None else dim)


@checked
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """Returns the logarithm of the softmax along a dimension; computed in `dtype` if given."""
    x = input if dtype is None else input.to(dtype)
    return _ops.log_softmax(x, _softmax_dim("log_softmax", dim, x.ndim) if dim is None else dim)


@checked
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """Returns the softmax of -x along a dimension; computed in `dtype` if given."""
    x = input if dtype is None else input.to(dtype)
    return _ops.softmin(x, _softmax_dim("softmin", dim, x.ndim) if dim is None else dim)


@checked
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Returns samples of the Gumbel-softmax distribution (Jang et al., 2016).

    Args:
        logits: logarithms of probabilities, up to a constant
        tau: the temperature
        hard: return one-hot vectors, with the gradient of the soft samples
        eps: has no effect
        dim: along which the samples sum to 1
    """
    noise = _ops.empty_like(logits.detach())
    noise = _ops.neg(_ops.log(_ops.exponential_(noise)))
    soft = _ops.softmax(_ops.div(_ops.add(logits, noise), float(tau)), dim)
    if not hard:
        return soft
    index = _ops.argmax(soft, dim, True)
    one = _ops.scatter(_ops.zeros_like(logits.detach()), dim, index, 1.0)
    return _ops.add(_ops.sub(one, soft.detach()), soft)
