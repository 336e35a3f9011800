"""Initialisers: functions that overwrite a tensor with its first values and return it."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from plait import _ops
from plait._engine.missing_names import absent as _absent
from plait._engine.warnings import warn
from plait._modes import no_grad

if TYPE_CHECKING:
    from plait._random import Generator
    from plait._tensor import Tensor

_LINEAR = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid",
}  # fmt: skip


F = TypeVar("F", bound=Callable[..., Any])


@contextlib.contextmanager
def whole(tensor: Tensor) -> Iterator[Tensor]:
    """Inside, what to initialise in the place of a tensor: itself, or an ordinary tensor for a distributed one.

    At the end each rank takes its part of the ordinary tensor. All ranks draw the same random numbers.
    """
    if type(tensor).__name__ in ("Tensor", "Parameter"):  # most are, and need no import
        yield tensor
        return
    from plait.distributed.tensor._alike import laid_like
    from plait.distributed.tensor._dtensor import is_distributed

    if not is_distributed(tensor):
        yield tensor
        return
    given = _ops.empty(tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)
    yield given
    with no_grad():
        tensor.copy_(laid_like(given, tensor))


def _initialiser(function: F) -> F:
    """Makes a function that overwrites a tensor one that records no gradients."""

    @functools.wraps(function)
    def run(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with no_grad():
            function(tensor, *args, **kwargs)
        return tensor

    return run  # type: ignore[return-value]


def _whole_initialiser(function: F) -> F:
    """Makes an initialiser of a function that needs all elements of a distributed tensor at once."""

    @functools.wraps(function)
    def run(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with no_grad(), whole(tensor) as given:
            function(given, *args, **kwargs)
        return tensor

    return run  # type: ignore[return-value]


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Returns the factor by which weights before a nonlinearity should be larger, so that it keeps the variance.

    Args:
        nonlinearity: a function's name: linear, conv2d, sigmoid, tanh, relu, leaky_relu, selu
        param: the negative slope of leaky_relu, 0.01 by default
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "tanh":
        return 5 / 3
    if nonlinearity == "relu":
        return math.sqrt(2)
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, int | float)):
            raise ValueError(f"calculate_gain: the negative slope must be a number, got {param!r}")
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity == "selu":
        return 3 / 4
    known = ", ".join([*sorted(_LINEAR), "tanh", "relu", "leaky_relu", "selu"])
    raise ValueError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}, want one of {known}")


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Returns how many inputs an output of a weight has, and how many outputs an input."""
    if tensor.dim() < 2:
        raise ValueError(f"init: fan in and fan out need 2 dimensions or more, got shape {list(tensor.shape)}")
    shape = tensor.shape
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init: unknown mode {mode!r}, want fan_in or fan_out")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


@_initialiser
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills with uniform random numbers in [a, b)."""
    return _ops.uniform_(tensor, a, b, generator=generator)


@_initialiser
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills with normal random numbers."""
    return _ops.normal_(tensor, mean, std, generator=generator)


@_initialiser
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fills with normal random numbers on condition that they lie in [a, b]."""
    return _ops.trunc_normal_(tensor, mean, std, a, b, generator=generator)


@_initialiser
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fills with a value."""
    return _ops.copy_(tensor, _ops.full_like(tensor, val)) if tensor.numel() else tensor


@_initialiser
def ones_(tensor: Tensor) -> Tensor:
    """Fills with 1."""
    return constant_(tensor, 1.0)


@_initialiser
def zeros_(tensor: Tensor) -> Tensor:
    """Fills with 0."""
    return _ops.zero_(tensor)


@_whole_initialiser
def eye_(tensor: Tensor) -> Tensor:
    """Makes a matrix the identity, as far as it is square."""
    if tensor.dim() != 2:
        raise ValueError(f"eye_: want a matrix, got shape {list(tensor.shape)}")
    return _ops.copy_(tensor, _ops.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@_whole_initialiser
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Makes a convolution's weight pass its inputs on: 1 at the centre of matching channels, else 0."""
    shape = tensor.shape
    if not 3 <= len(shape) <= 5:
        raise ValueError(f"dirac_: want 3 to 5 dimensions, got shape {list(shape)}")
    if shape[0] % groups:
        raise ValueError(f"dirac_: {shape[0]} output channels cannot be divided into {groups} groups")
    out = shape[0] // groups
    zeros_(tensor)
    centre = tuple(n // 2 for n in shape[2:])
    for g in range(groups):
        for d in range(min(out, shape[1])):
            tensor[(g * out + d, d, *centre)] = 1
    return tensor


@_initialiser
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills with uniform random numbers of variance gain^2 * 2 / (fan in + fan out) (Glorot and Bengio, 2010)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3) * gain * math.sqrt(2 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


@_initialiser
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fills with normal random numbers of variance gain^2 * 2 / (fan in + fan out) (Glorot and Bengio, 2010)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2 / (fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def _empty(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warn("init: a tensor without elements has nothing to be initialised")
        return True
    return False


@_initialiser
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fills with uniform random numbers of variance gain^2 / fan (He et al., 2015).

    Args:
        tensor: the weight
        a: the negative slope of leaky_relu behind it
        mode: fan_in keeps the variance in forward, fan_out in backward
        nonlinearity: relu or leaky_relu
        generator: where to draw from
    """
    if _empty(tensor):
        return tensor
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


@_initialiser
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fills with normal random numbers of variance gain^2 / fan (He et al., 2015)."""
    if _empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


@_whole_initialiser
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fills with a random (semi-)orthogonal matrix times gain; later dimensions count as one (Saxe et al., 2013)."""
    if tensor.dim() < 2:
        raise ValueError(f"orthogonal_: want 2 dimensions or more, got shape {list(tensor.shape)}")
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    cols = tensor.numel() // rows
    normal = _ops.randn(rows, cols, dtype=tensor.dtype, device=tensor.device, generator=generator)
    q, r = _ops.linalg_qr(_ops.t(normal) if rows < cols else normal)
    q = _ops.mul(q, _ops.sign(_ops.diagonal(r)))
    q = _ops.t(q) if rows < cols else q
    return _ops.copy_(tensor, _ops.mul(_ops.reshape(q, tuple(tensor.shape)), float(gain)))


@_whole_initialiser
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fills a matrix with normal random numbers, and a share `sparsity` of each column with 0 (Martens, 2010)."""
    if tensor.dim() != 2:
        raise ValueError(f"sparse_: want a matrix, got shape {list(tensor.shape)}")
    rows, cols = tensor.shape
    normal_(tensor, 0.0, std, generator)
    order = _ops.argsort(_ops.rand(rows, cols, device=tensor.device, generator=generator), 0)
    zeros = math.ceil(sparsity * rows)
    return _ops.scatter_(tensor, 0, _ops.narrow(order, 0, 0, zeros), 0.0) if zeros else tensor


# PyTorch's older names.
uniform, normal, constant, eye, dirac = uniform_, normal_, constant_, eye_, dirac_
xavier_uniform, xavier_normal = xavier_uniform_, xavier_normal_
kaiming_uniform, kaiming_normal, orthogonal, sparse = kaiming_uniform_, kaiming_normal_, orthogonal_, sparse_


def __getattr__(name: str) -> object:
    raise _absent("init", "plait.nn.init", name)
