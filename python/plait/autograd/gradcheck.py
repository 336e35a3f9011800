"""Gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from plait._autograd import batch as _batch
from plait._autograd import forward as _forward
from plait._autograd.backward import grad
from plait._modes import enable_grad, no_grad
from plait._ops import stack, zeros_like
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
        check_batched_grad: also check that `vmap` of backward passes gives what they give one by one
        check_batched_forward_grad: the same of derivatives in forward mode
        check_forward_ad: also check derivatives in forward mode
        check_backward_ad: check those by backward passes
        fast_mode: see check_undefined_grad
        masked: see check_undefined_grad

    Raises:
        GradcheckError: see raise_exception.
    """
    for name, wanted, other, needs in (
        ("check_batched_grad", check_batched_grad, "check_backward_ad", check_backward_ad),
        ("check_batched_forward_grad", check_batched_forward_grad, "check_forward_ad", check_forward_ad),
    ):
        if wanted and not needs:
            raise ValueError(f"gradcheck: {name} wants {other}")
    if not check_forward_ad and not check_backward_ad:
        raise ValueError("gradcheck: want at least one of check_forward_ad and check_backward_ad")
    given = _tuple(inputs)
    checked = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor to require gradient")
    try:
        if check_backward_ad:
            _check_backward(func, given, checked, eps, atol, rtol, nondet_tol, check_batched_grad)
        if check_forward_ad:
            _check_forward(func, given, checked, eps, atol, rtol, check_batched_forward_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(func: Callable[..., Any], given: Sequence[Any]) -> list[Tensor]:
    """Returns those results of a function that can have a gradient."""
    return [y for y in _tuple(func(*given)) if isinstance(y, Tensor) and _differentiable(y)]


def _check_backward(
    func: Callable[..., Any],
    given: Sequence[Any],
    checked: Sequence[Tensor],
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
    batched: bool,
) -> None:
    rng = np.random.default_rng(0)
    for which, made in enumerate(_outputs(func, given)):
        if not made.requires_grad:
            continue
        ws = [rng.uniform(0.5, 1.5, size=_parts(to_numpy(made.detach())).shape) for _ in range(2)]
        alone = []
        for w in ws:
            y = _outputs(func, given)[which]  # anew, since inputs have been moved
            v = _like(w, y)
            found = [grad((y,), checked, (v,), retain_graph=True, allow_unused=True) for _ in range(2)]
            alone.append(found[0])
            for i, (x, g, again) in enumerate(zip(checked, *found, strict=True)):
                got = _parts(to_numpy((x if g is None else g).detach())).astype(float) * (g is not None)
                if again is not None and np.abs(_parts(to_numpy(again.detach())) - got).max(initial=0) > nondet_tol:
                    raise GradcheckError(f"gradcheck: output {which}, input {i}: two backward passes differ")
                _compare(
                    f"output {which}, input {i}: backward", got, _numeric(func, given, x, which, w, eps), atol, rtol
                )
        if not batched:
            continue
        y = _outputs(func, given)[which]
        vectors = stack([_like(w, y) for w in ws])
        together = grad((y,), checked, (vectors,), retain_graph=True, allow_unused=True, is_grads_batched=True)
        for i, (g, parts) in enumerate(zip(together, zip(*alone, strict=True), strict=True)):
            if g is None:
                continue
            for one, part in zip(g.unbind(0), parts, strict=True):
                want = to_numpy(zeros_like(one) if part is None else part.detach())
                _compare(
                    f"output {which}, input {i}: a batch of backward passes",
                    to_numpy(one.detach()),
                    want,
                    atol,
                    rtol,
                    "one",
                )


def _check_forward(
    func: Callable[..., Any],
    given: Sequence[Any],
    checked: Sequence[Tensor],
    eps: float,
    atol: float,
    rtol: float,
    batched: bool,
) -> None:
    rng = np.random.default_rng(2)
    for i, x in enumerate(checked):
        place = next(j for j, t in enumerate(given) if t is x)

        def pushed(t: Tensor, x: Tensor = x, place: int = place) -> tuple[Tensor, ...]:
            """Returns the derivatives of all results along t."""
            with _forward.Level() as level, enable_grad():
                leaf = _batch.everywhere(x.detach()).clone().requires_grad_()
                args = [_forward.dual(leaf, t, level.handle) if j == place else a for j, a in enumerate(given)]
                ys = _outputs(func, args)
                tangents = [_forward.tangent_of(y, level.handle) for y in ys]
                return tuple(zeros_like(y) if v is None else v for y, v in zip(ys, tangents, strict=True))

        ts = [_like(rng.uniform(0.5, 1.5, size=_parts(to_numpy(x.detach())).shape), x) for _ in range(2)]
        alone = [pushed(t) for t in ts]
        for t, found in zip(ts, alone, strict=True):
            for which, (got, want) in enumerate(zip(found, _along(func, given, x, t, eps), strict=True)):
                what = f"output {which}, input {i}: forward mode"
                _compare(what, _parts(to_numpy(got.detach())), want, atol, rtol)
        if not batched:
            continue
        from plait.func import vmap

        for which, (together, *parts) in enumerate(zip(vmap(pushed)(stack(ts)), *alone, strict=True)):
            for one, part in zip(together.unbind(0), parts, strict=True):
                what = f"output {which}, input {i}: a batch in forward mode"
                _compare(what, to_numpy(one.detach()), to_numpy(part.detach()), atol, rtol, "one")


def _compare(what: str, got: Any, want: Any, atol: float, rtol: float, other: str = "finite differences") -> None:
    if not np.allclose(got, want, rtol=rtol, atol=atol):
        by = "finite differences give" if other != "one" else "one by one they give"
        raise GradcheckError(f"gradcheck: {what} gives\n{got}\n{by}\n{want}")


def _like(parts: Any, x: Tensor) -> Tensor:
    """Returns a tensor of such numbers, or their parts, in the dtype and on the device of another."""
    return tensor(_joined(parts, x), dtype=x.dtype, device=x.device)


@no_grad()
def _along(func: Callable[..., Any], given: Sequence[Any], x: Tensor, t: Tensor, eps: float) -> list[Any]:
    """Returns the derivatives of all results along t by central differences, of complex ones by part."""
    data, base = x.detach(), x.detach().clone()
    ends = []
    for sign in (1, -1):
        data.copy_(base + t * (sign * eps))
        ends.append([_parts(to_numpy(y.detach()).copy()) for y in _outputs(func, given)])
    data.copy_(base)
    return [(high - low) / (2 * eps) for high, low in zip(*ends, strict=True)]


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
            data.copy_(_like(moved, x))
            sums.append(float((_parts(to_numpy(_outputs(func, given)[which].detach())) * w).sum()))
        out[at] = (sums[0] - sums[1]) / (2 * eps)
    data.copy_(_like(base, x))
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
    """Returns whether second gradients agree with finite differences of first ones; options as of `gradcheck`.

    check_rev_over_rev is its check_backward_ad for the first gradients, and check_fwd_over_rev its check_forward_ad.
    """
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

    return gradcheck(
        first,
        (*given, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )
