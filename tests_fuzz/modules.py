"""Modules: forward and backward of every layer and loss, with the arguments and inputs that PyTorch tests them with."""

from __future__ import annotations

import random
import warnings
from typing import Any

import plait
import torch
from torch.testing._internal.common_modules import module_db

from tests_fuzz.compare import FLOOR, Absent, Converter, difference, flat, pick_layout
from tests_fuzz.known import CANCELLING_MODULES, CONTIGUOUS
from tests_fuzz.operations import REFUSALS, refused
from tests_fuzz.report import Report

# Modules whose results are drawn at random.
RANDOM = ("Dropout", "RReLU", "FractionalMaxPool")


def run(rng: random.Random, report: Report) -> None:
    """Tries modules in random order until there is no more time."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    while report.more():
        infos = list(module_db)
        rng.shuffle(infos)
        for info in infos:
            for dtype in (torch.float32, torch.float64):
                if not report.more():
                    return
                _try(info, dtype, rng, report)


def _try(info: Any, dtype: torch.dtype, rng: random.Random, report: Report) -> None:
    name = info.module_cls.__name__
    cls = getattr(plait.nn, name, None)
    if cls is None or dtype not in info.dtypes:
        return
    training = rng.random() < 0.5
    torch.manual_seed(rng.getrandbits(32))
    try:
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    except Exception:  # PyTorch cannot make its own inputs without some package
        return
    for case in inputs:
        if case.forward_input is None or not report.more():
            continue
        layout = "same" if name in CONTIGUOUS else pick_layout(rng)
        built = case.constructor_input
        report.begin(f"{name} {dtype} {layout} training={training}: {built.args} {built.kwargs}"[:600])
        try:
            _compare(info.module_cls, cls, case, dtype, training, layout, report)
        except Absent:
            report.held("absent")


def _compare(theirs: Any, cls: Any, case: Any, dtype: torch.dtype, training: bool, layout: str, report: Report) -> None:
    make, build = Converter(layout), Converter()
    (a_args, a_kwargs), (b_args, b_kwargs) = build.both(
        (tuple(case.constructor_input.args), dict(case.constructor_input.kwargs))
    )
    a_kwargs.pop("device", None)
    b_kwargs.pop("device", None)
    reference = theirs(*a_args, **a_kwargs).to(dtype).train(training)
    (a_in, a_named), (b_in, b_named) = make.both((tuple(case.forward_input.args), dict(case.forward_input.kwargs)))
    if cls is plait.nn.CTCLoss:  # PyTorch's gradient is that of what comes before log_softmax
        a_in, b_in = (a_in[0].log_softmax(2), *a_in[1:]), (b_in[0].log_softmax(2), *b_in[1:])
    try:
        want = reference(*a_in, **a_named)
    except Exception:
        report.held("refused by PyTorch")
        return
    reference = theirs(*a_args, **a_kwargs).to(dtype).train(training)  # running statistics as they were
    try:
        module = cls(*b_args, **b_kwargs).to(Converter().both(dtype)[1]).train(training)
        if theirs.__name__.startswith("Lazy"):  # there is no state before the first input has been seen
            reference(*a_in, **a_named), module(*b_in, **b_named)
        names = [n for n, _ in reference.state_dict().items()]
        if names != [n for n, _ in module.state_dict().items()]:
            report.found("state_dict", f"{[n for n, _ in module.state_dict().items()]}, PyTorch {names}")
            return
        module.load_state_dict({n: Converter().both(t.detach())[1] for n, t in reference.state_dict().items()})
        want = reference(*a_in, **a_named)
        got = module(*b_in, **b_named)
    except REFUSALS as e:
        refused(e, report)
        return
    random_result = training and theirs.__name__.startswith(RANDOM)
    floor = CANCELLING_MODULES.get(theirs.__name__, 0.0)
    text = difference(want, got, 1.0, () if random_result else None, floor)
    if text:
        report.found("wrong result", text)
        return
    report.held()
    if random_result or (training and any("dropout" in k and v for k, v in a_kwargs.items())):
        return
    text = difference(dict(reference.state_dict()), dict(module.state_dict()), 1.0)
    if text:
        report.found("wrong state", text)
        return
    _gradients(reference, module, want, got, make, report)


def _gradients(reference: Any, module: Any, want: Any, got: Any, make: Converter, report: Report) -> None:
    outs = [
        (t, p) for t, p in zip(flat(want), flat(got), strict=True) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not outs:
        return
    total, ours = 0, 0
    for t, p in outs:
        seed = torch.rand(t.shape, dtype=torch.float64).to(t.dtype) + 0.5
        total, ours = total + (t * seed).sum(), ours + (p * Converter().both(seed)[1]).sum()
    try:
        total.backward()
    except Exception:
        return
    try:
        ours.backward()
    except REFUSALS as e:
        refused(e, report)
        return
    pairs = [
        (f"parameter {n}", p.grad, q.grad)
        for (n, p), q in zip(reference.named_parameters(), module.parameters(), strict=True)
    ]
    pairs += [("input", t.grad, p.grad) for t, p in make.pairs if t.requires_grad]
    for name, t, p in pairs:
        if t is None or p is None:
            if (t is None) != (p is None):
                report.found(
                    "wrong gradient",
                    f"{name}: {'none' if p is None else 'some'}, PyTorch {'none' if t is None else 'some'}",
                )
                return
            continue
        text = difference(t, p, 10.0, floor=10 * FLOOR)
        if text:
            report.found("wrong gradient", f"{name}: {text}")
            return
    report.held("equal gradients")
