"""Methods that look at matrices as a whole: composed of tensor operations, none of which waits."""

from __future__ import annotations

import math
from typing import Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor, tensor
from plait.optim.optimizer import Closure, Optimizer, ParamsT, evaluate


def _check(name: str, **at_least_zero: float) -> None:
    for key, value in at_least_zero.items():
        if not value >= 0:
            raise ValueError(f"{name}: {key} must be at least 0, got {value}")


class Adafactor(Optimizer):
    """The optimiser of Shazeer and Stern 2018, "Adafactor: adaptive learning rates with sublinear memory cost".

    Args:
        params: parameters or groups of them
        lr: the largest learning rate
        beta2_decay: the power of the step that the means of squares decay by
        eps: the smallest square (None stands for the dtype's) and the smallest size of a parameter
        d: the largest root mean square of an update
        weight_decay: decoupled
        foreach: has no effect
        maximize: go up, not down
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        _check(
            "adafactor", lr=float(lr), eps=eps[0] or 0, eps2=eps[1], weight_decay=weight_decay, beta2_decay=-beta2_decay
        )
        if not d >= 1:
            raise ValueError(f"adafactor: d must be at least 1, got {d}")
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": eps,
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
            },
        )

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters that have a gradient; `closure` is as for `Optimizer.step`."""
        loss = evaluate(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if (grad := p.grad) is not None:
                    self._update(p, -grad if group["maximize"] else grad, group)
        return loss

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        from plait._dtype import finfo

        lr, (eps1, eps2) = float(group["lr"]), group["eps"]
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        state = self.state[p]
        if not state:
            state["step"] = tensor(0.0)
            if grad.dim() > 1:
                state["row_var"] = _ops.zeros_like(grad.narrow(-1, 0, 1))
                state["col_var"] = _ops.zeros_like(grad.narrow(-2, 0, 1))
            else:
                state["variance"] = _ops.zeros_like(grad)
        step = float(state["step"]) + 1
        state["step"] = tensor(step)
        take = step ** group["beta2_decay"]
        size = p.square().mean().sqrt().clamp(min=eps2) * min(lr, 1 / math.sqrt(step))
        if group["weight_decay"]:
            p.mul_(1 - lr * group["weight_decay"])
        square = grad * grad
        if grad.dim() > 1:
            row, col = state["row_var"], state["col_var"]
            row.lerp_(square.mean(-1, True), take)
            col.lerp_(square.mean(-2, True), take)
            variance = _ops.matmul(row, col) / row.mean(-2, True).clamp(min=eps1)
        else:
            state["variance"].lerp_(square, take)
            variance = state["variance"]
        update = grad * variance.clamp(min=eps1 * eps1).rsqrt()
        p.sub_(update * (size / (update.square().mean().sqrt() / group["d"]).clamp(min=1.0)))


class Muon(Optimizer):
    """Momentum made orthogonal by Newton-Schulz iterations (Jordan et al. 2024); for matrices only.

    Args:
        params: matrices or groups of them
        lr: the learning rate
        weight_decay: decoupled
        momentum: of the running mean of gradients
        nesterov: look ahead along the momentum
        ns_coefficients: of the polynomial of an iteration
        eps: the smallest norm that is divided by
        ns_steps: the number of iterations
        adjust_lr_fn: how the rate depends on the shape: "original" or "match_rms_adamw"
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        _check("muon", lr=float(lr), weight_decay=weight_decay, momentum=momentum)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f'muon: adjust_lr_fn must be "original" or "match_rms_adamw", got {adjust_lr_fn!r}')
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"muon: only matrices can be optimised, got a parameter of shape {list(p.shape)}")

    @no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters that have a gradient; `closure` is as for `Optimizer.step`."""
        loss = evaluate(closure)
        for group in self.param_groups:
            lr, momentum = float(group["lr"]), group["momentum"]
            for p in group["params"]:
                if (grad := p.grad) is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = _ops.zeros_like(grad)
                mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
                update = grad.lerp(mean, momentum) if group["nesterov"] else mean
                update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                rows, columns = p.shape
                ratio = math.sqrt(max(1, rows / columns))
                if group["adjust_lr_fn"] == "match_rms_adamw":
                    ratio = 0.2 * math.sqrt(max(rows, columns))
                p.mul_(1 - lr * group["weight_decay"])
                p.sub_(update.to(p.dtype) * (lr * ratio))
        return loss


def _orthogonal(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Returns about the orthogonal matrix nearest to x, computed in bfloat16."""
    from plait._dtype import bfloat16

    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    x = x.to(bfloat16)
    x = x.t() if tall else x
    x = x / x.square().sum().sqrt().clamp(min=eps)
    for _ in range(steps):
        gram = _ops.matmul(x, x.t())
        x = a * x + _ops.matmul(b * gram + c * _ops.matmul(gram, gram), x)
    return x.t() if tall else x
