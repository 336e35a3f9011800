"""Operations: results, dtypes, gradients, in-place variants and shared memory, case by case as PyTorch's.

The functions and their arguments come from the list that PyTorch tests itself with, so that a function which is new
there is tried here too. Where results of a short dtype differ, those are right that PyTorch has of the same values in
float64.
"""

from __future__ import annotations

import functools
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import plait
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from tests_fuzz.compare import (
    DTYPES,
    FLOOR,
    TOLERANCE,
    WIDER,
    Absent,
    Converter,
    as_near,
    difference,
    flat,
    narrowed,
    pick_layout,
    shares,
    values_differ,
    widened,
    within,
)
from tests_fuzz.known import ALIASES, BYTES, CANCELLING, CONTIGUOUS, GRADIENTS, UNDEFINED
from tests_fuzz.report import Report

REFUSALS = (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError, AttributeError, MemoryError)
SAMPLES = 6
UNWRAPPED = OpInfo.__dataclass_fields__["gradcheck_wrapper"].default


def run(rng: random.Random, report: Report) -> None:
    """Tries operations in random order, each with a few random samples, until there is no more time."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    while report.more():
        ops = list(op_db)
        rng.shuffle(ops)
        for op in ops:
            for dtype in rng.sample(list(DTYPES), 3):
                if not report.more():
                    return
                if dtype in op.supported_dtypes("cpu"):
                    _try(op, dtype, rng, report)


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def ours(op: Any) -> Callable[..., Any] | None:
    """Plait's function of that name, the method where there is none, None where there is neither.

    Where PyTorch's list has a function of its own around an operation, this is that function with Plait in torch's
    place.
    """
    if _is_of_the_list(op.op):
        return _translated(op.op)
    target: Any = plait
    for part in op.name.split("."):
        target = getattr(target, part, None)
        if target is None:
            target = getattr(plait.Tensor, op.name.rpartition(".")[2], None)
            break
    if target is not None and isinstance(op.op, functools.partial):
        return functools.partial(target, **op.op.keywords)
    return target


def _is_of_the_list(function: Any) -> bool:
    return isinstance(function, types.FunctionType) and function.__module__.startswith("torch.testing")


def _translated(function: Any) -> Callable[..., Any]:
    """The function, and those of PyTorch's list that it calls, with Plait in torch's place."""
    names = {**function.__globals__, "torch": plait}
    for name in function.__code__.co_names:
        if _is_of_the_list(names.get(name)):
            names[name] = _translated(names[name])
    made = types.FunctionType(function.__code__, names, argdefs=function.__defaults__, closure=function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _samples(op: Any, dtype: torch.dtype, grad: bool, rng: random.Random) -> Iterator[Any]:
    torch.manual_seed(rng.getrandbits(32))
    everything = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    yield from rng.sample(everything, min(SAMPLES, len(everything)))


def _try(op: Any, dtype: torch.dtype, rng: random.Random, report: Report) -> None:
    function = ours(op)
    name = _name(op)
    if function is None:
        return
    grad = dtype in op.supported_backward_dtypes("cpu") and op.supports_autograd and dtype in TOLERANCE
    try:
        samples = list(_samples(op, dtype, grad, rng))
    except Exception:  # PyTorch cannot make its own samples without some package
        return
    for sample in samples:
        layout = "same" if name in CONTIGUOUS else pick_layout(rng)
        report.begin(f"{name} {dtype} {layout}: {_text(sample)}")
        try:
            _compare(op, function, name, sample, layout, report)
        except Absent as e:
            report.held(f"absent: {str(e).split()[0]}")


def _text(sample: Any) -> str:
    def one(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return f"{tuple(v.shape)}{v.dtype}"
        if isinstance(v, (list, tuple)):
            return [one(w) for w in v]
        return {k: one(w) for k, w in v.items()} if isinstance(v, dict) else v

    return f"{one(sample.input)} {one(sample.args)} {one(sample.kwargs)}"[:600]


def _compare(op: Any, function: Callable[..., Any], name: str, sample: Any, layout: str, report: Report) -> None:
    make = Converter(layout)
    (a, a_args, a_kwargs), (b, b_args, b_kwargs) = make.both((sample.input, tuple(sample.args), dict(sample.kwargs)))
    try:
        want = op.op(a, *a_args, **a_kwargs)
    except Exception:
        report.held("refused by both" if _raises(function, b, b_args, b_kwargs, report) else "refused by PyTorch")
        return
    try:
        got = function(b, *b_args, **b_kwargs)
        for leaf in flat(got):
            if isinstance(leaf, plait.Tensor):
                leaf.detach().numpy() if leaf.dtype != plait.bfloat16 else leaf.detach().float().numpy()
    except REFUSALS as e:
        refused(e, report)
        return
    a_in, b_in = [t for t, _ in make.pairs], [p for _, p in make.pairs]
    defined = UNDEFINED.get(name, UNDEFINED.get(op.name, (None, "")))[0]
    if name == "nn.functional.scaled_dot_product_attention" and not a_kwargs.get("dropout_p"):
        defined = None
    text = difference(want, got, _scale(op), defined)
    if text:
        exact = _exact(op, sample, layout)[0]
        if not difference(narrowed(exact, want), got, _scale(op), defined) or (
            exact is not None and as_near(exact, want, got)
        ):
            report.held("equal in float64")
            return
        if _right_of_bytes(op, sample, layout, want, got):
            report.held("right where PyTorch's uint8 is not")
            return
        report.found("wrong result", text)
        return
    for t, p in make.pairs if defined != () else ():
        if (
            op.inplace_variant is not op.op
            and op.name not in ("resize_", "resize_as_")
            and t.shape == tuple(p.shape)
            and values_differ(t, p)
        ):
            report.found("an input changed", values_differ(t, p))
            return
    if name not in ALIASES and shares(want, a_in) != shares(got, b_in):
        report.found("shared memory", f"{shares(got, b_in)}, PyTorch {shares(want, a_in)}")
        return
    report.held()
    if defined == () or name in GRADIENTS or op.name in GRADIENTS:
        return
    if op.gradcheck_wrapper is not UNWRAPPED:  # gradients are those of the values that the function is defined for
        try:
            want = op.gradcheck_wrapper(op.op, a, *a_args, **a_kwargs)
        except Exception:
            return
        got = _translated(op.gradcheck_wrapper)(function, b, *b_args, **b_kwargs)
    _gradients(op, sample, layout, want, got, make, report)


def _exact(op: Any, sample: Any, layout: str, wrap: Callable[..., Any] = UNWRAPPED) -> tuple[Any, Converter]:
    """What PyTorch has of the values in float64, None where it has not, and the arguments."""
    make = Converter(layout)
    (a, args, kwargs), _ = make.both(widened((sample.input, tuple(sample.args), dict(sample.kwargs))))
    try:
        return wrap(op.op, a, *args, **kwargs), make
    except Exception:
        return None, make


def _right_of_bytes(op: Any, sample: Any, layout: str, want: Any, got: Any) -> bool:
    """Whether the result, of what BYTES names, is near that of PyTorch, or near what it has in float64."""
    most, _ = BYTES.get(op.name.rpartition(".")[2], (None, ""))
    if most is None or sample.input.dtype != torch.uint8 or DTYPES[want.dtype] != got.dtype:
        return False
    make = Converter(layout)
    (a, args, kwargs), _ = make.both(widened((sample.input, tuple(sample.args), dict(sample.kwargs)), uint8=True))
    return within(want, got, most) or within(op.op(a, *args, **kwargs), got, most)


def _scale(op: Any) -> float:
    return 50.0 if op.name.startswith(("linalg", "svd", "lu", "cholesky", "pinverse")) else 1.0


def refused(e: Exception, report: Report) -> None:
    """Counts an error, an internal one as found."""
    text = f"{type(e).__name__}: {e}"
    if "internal error" in text or "nil pointer" in text or "divide by zero" in text:
        report.found("internal error", text)
    else:
        report.note("refused", text)


def _raises(function: Callable[..., Any], b: Any, args: Any, kwargs: Any, report: Report) -> bool:
    try:
        function(b, *args, **kwargs)
    except REFUSALS as e:
        if "internal error" in str(e):
            report.found("internal error", str(e))
        return True
    return False


def _gradients(op: Any, sample: Any, layout: str, want: Any, got: Any, make: Converter, report: Report) -> None:
    pairs = [(t, p) for t, p in make.pairs if t.requires_grad]
    outs = [
        (t, p)
        for t, p in zip(flat(want), flat(got), strict=True)
        if isinstance(t, torch.Tensor) and t.requires_grad and t.numel() > 0
    ]
    if not pairs or not outs:
        return
    if any(t.requires_grad != p.requires_grad for t, p in outs):
        report.found(
            "requires_grad", f"{[p.requires_grad for _, p in outs]}, PyTorch {[t.requires_grad for t, _ in outs]}"
        )
        return
    seeds = [torch.rand(t.shape, dtype=WIDER.get(t.dtype, torch.float64)).to(t.dtype) + 0.5 for t, _ in outs]
    try:
        torch_grads = torch.autograd.grad([t for t, _ in outs], [t for t, _ in pairs], seeds, allow_unused=True)
    except Exception:
        return
    floor = FLOOR * CANCELLING.get(op.name, 1)
    try:
        mine = [Converter().both(s)[1] for s in seeds]
        grads = plait.autograd.grad([p for _, p in outs], [p for _, p in pairs], mine, allow_unused=True)
        exact = None
        for k, (t, p) in enumerate(zip(torch_grads, grads, strict=True)):
            if t is None or p is None:
                some = t if p is None else plait.zeros(1) if p is None else p
                if some is not None and bool((some != 0).any()):
                    report.found(
                        "wrong gradient",
                        f"{'none' if p is None else 'some'}, PyTorch {'none' if t is None else 'some'}",
                    )
                    return
                continue
            text = difference(t, p, 5 * _scale(op), floor=floor)
            if text and exact is None:
                exact = _exact_gradients(op, sample, layout, seeds)
            if text and difference(narrowed(exact[k], t) if exact else None, p, 5 * _scale(op), floor=floor):
                report.found("wrong gradient", text)
                return
    except REFUSALS as e:
        refused(e, report)
        return
    report.held("equal gradient")


def _exact_gradients(op: Any, sample: Any, layout: str, seeds: list[torch.Tensor]) -> list[Any]:
    """What PyTorch has in float64; empty where it has not."""
    result, make = _exact(op, sample, layout, op.gradcheck_wrapper)
    outs = [t for t in flat(result) if isinstance(t, torch.Tensor) and t.requires_grad and t.numel() > 0]
    leaves = [t for t, _ in make.pairs if t.requires_grad]
    try:
        return list(
            torch.autograd.grad(
                outs, leaves, [s.to(WIDER.get(s.dtype, torch.float64)) for s in seeds], allow_unused=True
            )
        )
    except Exception:
        return []
