"""Gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plait._autograd.backward import grad
from plait._modes import enable_grad, no_grad
from plait._tensor import Tensor
from plait._tensors.arrays import tensor, to_numpy


class GradcheckError(RuntimeError):
    """A gradient that differs from finite differences."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Returns whether the gradients of a function agree with finite differences; in float64.

    Args:
        func: takes tensors, returns one or several
        inputs: those that require a gradient are checked
        eps: how far inputs are moved
        atol: the difference that is allowed
        rtol: the same, as a part of the finite difference
        raise_exception: raise where they differ, in the place of returning False
        nondet_tol: the difference that two passes may show
        check_undefined_grad: has no effect, as check_grad_dtypes, fast_mode and masked: the slow check of dense
            gradients is made
        check_grad_dtypes: see check_undefined_grad
        check_batched_grad: must be False
        check_batched_forward_grad: must be False
        check_forward_ad: must be False: there are derivatives by backward passes alone
        check_backward_ad: must be True
        fast_mode: see check_undefined_grad
        masked: see check_undefined_grad

    Raises:
        GradcheckError: see raise_exception.
    """
    _only_backward("gradcheck", check_forward_ad or check_batched_grad or check_batched_forward_grad, check_backward_ad)
    given = _tuple(inputs)
    checked = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor to require gradient")

    def outputs() -> list[Tensor]:
        return [y for y in _tuple(func(*given)) if isinstance(y, Tensor) and y.requires_grad]

    rng = np.random.default_rng(0)
    for which in range(len(outputs())):
        for _ in range(2):
            y = outputs()[which]  # anew, since inputs have been moved
            w = rng.uniform(0.5, 1.5, size=_parts(to_numpy(y.detach())).shape)
            v = tensor(_joined(w, y), dtype=y.dtype, device=y.device)
            found = [grad((y,), checked, (v,), retain_graph=True, allow_unused=True) for _ in range(2)]
            for i, (x, g, again) in enumerate(zip(checked, *found, strict=True)):
                got = _parts(to_numpy((x if g is None else g).detach())).astype(float) * (g is not None)
                if again is not None and np.abs(_parts(to_numpy(again.detach())) - got).max(initial=0) > nondet_tol:
                    return _fail(raise_exception, f"output {which}, input {i}: two backward passes differ")
                want = _numeric(func, given, x, which, w, eps)
                if not np.allclose(got, want, rtol=rtol, atol=atol):
                    message = f"output {which}, input {i}: backward gives\n{got}\nfinite differences give\n{want}"
                    return _fail(raise_exception, message)
    return True


def _fail(raises: bool, message: str) -> bool:
    if raises:
        raise GradcheckError("gradcheck: " + message)
    return False


@no_grad()
def _numeric(func: Callable[..., Any], given: Any, x: Tensor, which: int, w: Any, eps: float) -> Any:
    """Returns the gradient of the sum of w times an output by central differences, of complex inputs by part."""
    data, base = x.detach(), _parts(to_numpy(x.detach()))
    out = np.zeros(base.shape)
    for at in np.ndindex(base.shape):
        sums = []
        for sign in (1, -1):
            moved = base.copy()
            moved[at] += sign * eps
            data.copy_(tensor(_joined(moved, x), dtype=x.dtype, device=x.device))
            results = [y for y in _tuple(func(*given)) if isinstance(y, Tensor) and _differentiable(y)]
            sums.append(float((_parts(to_numpy(results[which].detach())) * w).sum()))
        out[at] = (sums[0] - sums[1]) / (2 * eps)
    data.copy_(tensor(_joined(base, x), dtype=x.dtype, device=x.device))
    return out


def _differentiable(y: Tensor) -> bool:
    return y.dtype.is_floating_point or y.dtype.is_complex


def _parts(a: Any) -> Any:
    """Returns complex numbers as their parts, in one more dimension, and real numbers as they are."""
    return np.stack([a.real, a.imag], -1) if np.iscomplexobj(a) else a


def _joined(parts: Any, like: Tensor) -> Any:
    """Undoes `_parts` for a tensor like another."""
    return parts[..., 0] + 1j * parts[..., 1] if like.dtype.is_complex else parts


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Returns whether second gradients agree with finite differences of first ones; options as of `gradcheck`."""
    given = _tuple(inputs)
    outputs = [y for y in _tuple(func(*given)) if isinstance(y, Tensor) and y.requires_grad]
    if grad_outputs is None:
        rng = np.random.default_rng(1)
        weights = tuple(
            tensor(rng.uniform(0.5, 1.5, size=tuple(y.shape)), dtype=y.dtype, device=y.device, requires_grad=True)
            for y in outputs
        )
    else:
        weights = _tuple(grad_outputs)

    def first(*args: Any) -> Any:
        with enable_grad():
            xs, vs = args[: len(given)], args[len(given) :]
            ys = [y for y in _tuple(func(*xs)) if isinstance(y, Tensor) and y.requires_grad]
            wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
            return tuple(g for g in grad(ys, wanted, vs, create_graph=True, allow_unused=True) if g is not None)

    _only_backward("gradgradcheck", check_fwd_over_rev or check_batched_grad, check_rev_over_rev)
    return gradcheck(
        first, (*given, *weights), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol
    )


def _only_backward(name: str, forward: bool, backward: bool) -> None:
    if forward or not backward:
        raise NotImplementedError(f"{name}: there are derivatives by backward passes alone, one at a time")
