"""Optimisers: parameters after a few steps, with arguments that PyTorch tests them with, and state dicts between."""

from __future__ import annotations

import copy
import random
import warnings
from typing import Any

import plait
import torch
from torch.testing._internal.common_optimizers import optim_db

from tests_fuzz.compare import TOLERANCE, Absent, Converter, difference
from tests_fuzz.known import ENDS_NEAR_ZERO
from tests_fuzz.operations import REFUSALS, refused
from tests_fuzz.report import Report

RERUNS = 400  # of what differs: a decision that one unit in the last place turns may be rare
SHAPES = ((3,), (4, 5), (2, 3, 4), (), (1, 1), (6, 2))


def run(rng: random.Random, report: Report) -> None:
    """Tries optimisers in random order until there is no more time."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    while report.more():
        infos = list(optim_db)
        rng.shuffle(infos)
        for info in infos:
            cls = getattr(plait.optim, info.optim_cls.__name__, None)
            if cls is None:
                continue
            for case in info.optim_inputs_func(device=torch.device("cpu")):
                if not report.more():
                    return
                _try(info.optim_cls, cls, case, rng, report)


def _parabola(params: Any, values: Any) -> Any:
    # A line search wants gradients that are those of the loss: it does not depend on a parameter without values.
    total: Any = 0.0
    for p, g in zip(params, values, strict=True):
        p.grad = None
        if g is not None:
            total = total + (p.detach() * p.detach() + g * p.detach()).sum()
            p.grad = 2 * p.detach() + g
    return total


def _sensitive(ref: Any, ours: Any, rerun: Any) -> bool:
    """Whether PyTorch is off as much as Plait, given numbers that are off by a unit in the last place.

    A line search divides differences of losses that are nearly equal, and a tolerance decides when a step ends. At a
    minimum what is left of the gradient is rounding, and so is the sign of its product with the last move, which
    decides whether the move is remembered: there the last place of the parameters counts, not that of the gradients.
    So each kind of number is disturbed by itself: parameters, what the closure's gradients are made of, its results.
    """
    a = torch.cat([p.detach().double().flatten() for p in ref])
    b = torch.cat([torch.from_numpy(p.detach().numpy()).double().flatten() for p in ours])
    gap = float((a - b).abs().max())

    def noisy(t: torch.Tensor) -> torch.Tensor:
        return t * (1 + torch.finfo(t.dtype).eps * (torch.randint(0, 3, t.shape) - 1).to(t.dtype))

    def exact(t: torch.Tensor) -> torch.Tensor:
        return t

    for n in range(RERUNS):
        again = rerun(*(noisy if n % 3 == k else exact for k in range(3)))
        if float((torch.cat([p.detach().double().flatten() for p in again]) - a).abs().max()) >= gap / 4:
            return True
    return False


def _try(theirs: Any, cls: Any, case: Any, rng: random.Random, report: Report) -> None:
    dtype = rng.choice((torch.float64, torch.float32))
    kwargs = dict(case.kwargs)
    two_dimensional = theirs.__name__ == "Muon"
    shapes = [(4, 5), (6, 2)] if two_dimensional else rng.sample(SHAPES, 3)
    steps, reload_at, missing = rng.randint(1, 6), rng.randint(0, 6), rng.random() < 0.3
    report.begin(
        f"{theirs.__name__} {dtype} {shapes} steps={steps} reload={reload_at} missing={missing}: {kwargs}"[:600]
    )
    if kwargs.get("capturable") or kwargs.get("fused") or any(isinstance(v, torch.Tensor) for v in kwargs.values()):
        return
    torch.manual_seed(rng.getrandbits(32))
    start = [torch.randn(s, dtype=dtype) for s in shapes]
    given: list[Any] = []

    def rerun(of_start: Any, of_given: Any, of_results: Any) -> Any:
        params = [of_start(t).requires_grad_() for t in copy.deepcopy(start)]
        optimizer = theirs(params, **kwargs)

        def closure(grads: Any) -> Any:
            total = of_results(_parabola(params, grads))
            for p in params:
                p.grad = None if p.grad is None else of_results(p.grad)
            return total

        for grads in given:
            disturbed = [None if g is None else of_given(g) for g in grads]
            optimizer.step(lambda g=disturbed: closure(g))
        return params

    try:
        ours = [Converter().both(t)[1].requires_grad_() for t in start]
        ref = [t.clone().requires_grad_() for t in start]
        try:
            a = theirs(ref, **kwargs)
        except Exception:
            report.held("refused by PyTorch")
            return
        b = cls(ours, **kwargs)
        for step in range(steps):
            if step == reload_at:
                state = copy.deepcopy(b.state_dict())
                b = cls(ours, **kwargs)
                b.load_state_dict(state)
            grads: list[Any] = [torch.randn(s, dtype=dtype) * 10 ** rng.uniform(-3, 1) for s in shapes]
            if missing:
                grads[0] = None

            def give(params: Any, values: Any) -> None:
                for p, g in zip(params, values, strict=True):
                    p.grad = g

            given.append(grads)
            values = [Converter().both(g)[1] for g in grads]
            if theirs.__name__ == "LBFGS":
                a.step(lambda g=grads: _parabola(ref, g))
                b.step(lambda g=values: _parabola(ours, g))
            else:
                give(ref, grads), give(ours, values)
                a.step()
                b.step()
    except REFUSALS as e:
        refused(e, report)
        return
    except Absent:
        report.held("absent")
        return
    # Sums of many rounded steps, some of which end in norms. Muon computes in bfloat16.
    scale = 200.0 if dtype is torch.float64 else 5.0
    scale = 0.02 / TOLERANCE[dtype] if theirs.__name__ == "Muon" else scale
    floor = ENDS_NEAR_ZERO.get(theirs.__name__, 0.0) / torch.finfo(dtype).eps
    text = difference(list(ref), list(ours), scale, floor=floor)
    if text and theirs.__name__ == "LBFGS" and _sensitive(ref, ours, rerun):
        report.held("as far from PyTorch as it is from itself")
    elif text:
        report.found("wrong parameters", text)
    else:
        report.held()
