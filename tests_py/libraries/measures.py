"""What cases of libraries measure: models with the same numbers everywhere, and the numbers of a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Step = Callable[[], torch.Tensor]
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
LARGER = [1.0]  # what all numbers are multiplied by


def spread(*shape: int, scale: float = 1.0, phase: float = 0.0) -> torch.Tensor:
    """Returns a tensor of numbers between -1 and 1 that look random and are the same everywhere, times a scale."""
    n = torch.arange(math.prod(shape)) * 48271 + int(1000 * phase)
    n = n * (n + 7) % 65537
    numbers = ((n * (n + 11) % 65537).float() / 32768.5 - 1).mul(scale * LARGER[0])
    return numbers.reshape(shape).to(torch.get_default_dtype())


def tokens(rows: int, columns: int, count: int) -> torch.Tensor:
    """Returns indices below a number."""
    return (torch.arange(rows * columns).reshape(rows, columns) * 7 + 3) % count


def filled(model: nn.Module) -> nn.Module:
    """Fills a model's parameters."""
    model.to(torch.get_default_dtype())
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            if p.dim() > 1:
                p.copy_(spread(*p.shape, scale=(5.0 / p[0].numel()) ** 0.5, phase=float(i)))
            elif p.dim() == 1:
                p.copy_(spread(*p.shape, scale=0.1, phase=float(i)) + (0.0 if "bias" in name else 1.0))
    return model


def size_of(tensors: list[torch.Tensor]) -> float:
    """Returns the mean absolute value of all elements."""
    return sum(float(t.detach().double().abs().sum()) for t in tensors) / max(1, sum(t.numel() for t in tensors))


def facts(model: nn.Module, loss_of: Step) -> dict[str, float]:
    """Returns the numbers of one step."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    loss = loss_of()
    loss.backward()
    gradient = sum(float(p.grad.double().square().sum()) for p in parameters if p.grad is not None) ** 0.5
    nn.utils.clip_grad_norm_(parameters, 1.0)  # a step of any model is small
    optimizer.step()
    out = {"loss": float(loss), "gradient": gradient, "parameters": size_of(parameters)}
    if buffers := [b for b in model.buffers() if b.is_floating_point() and b.isfinite().all()]:
        out["buffers"] = size_of(buffers)
    return {**out, "after": float(loss_of())}


def classified(model: nn.Module, size: int, classes: int = 5) -> dict[str, float]:
    """Returns the numbers of a model that classifies images."""
    filled(model)
    for module in model.modules():  # no dropout, whose numbers are random
        module.train(isinstance(module, NORMS))
    images, labels = spread(4, 3, size, size), torch.tensor([1, 3, 0, 2])
    return facts(model, lambda: nn.functional.cross_entropy(model(images)[:, :classes], labels))


def trained(
    model: nn.Module, prepare: Callable[..., Any], backward: Callable[[torch.Tensor], None]
) -> dict[str, float]:
    """Returns the numbers of a pass over data by a library's loop."""
    filled(model)
    data = torch.utils.data.TensorDataset(spread(16, 4), torch.arange(16) % 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    model, optimizer, loader, schedule = prepare(
        model, optimizer, torch.utils.data.DataLoader(data, batch_size=4), schedule
    )
    losses = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        backward(loss)
        optimizer.step()
        schedule.step()
        losses.append(float(loss))
    return {
        "loss": losses[0], "after": losses[-1], "parameters": size_of(list(model.parameters())),
        "rate": schedule.get_last_lr()[0],
    }  # fmt: skip


def small() -> nn.Module:
    """Returns a small model."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def weighed(values: Any) -> float:
    """Returns the sum of all numbers among nested values, each with a weight of its own."""
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list | tuple):
        return sum(weighed(v) for v in values)
    t = torch.as_tensor(values).detach().double()
    return float((t * (torch.arange(t.numel()).reshape(t.shape) % 17 + 1)).sum())


def derived(functions: dict[str, Callable[..., Any]], *inputs: torch.Tensor) -> dict[str, float]:
    """Returns the values of functions, and with ' behind the name those of their gradients by the first input."""
    out = {}
    for name, function in functions.items():
        x = inputs[0].clone().requires_grad_()
        value = function(x, *inputs[1:])
        out[name] = weighed(value)
        tensors = value if isinstance(value, list | tuple) else [value]
        if any(t.requires_grad for t in tensors):
            sum((t * spread(*t.shape, phase=2.0)).sum() for t in tensors if t.requires_grad).backward()
            out[f"{name}'"] = weighed(x.grad)
    return out
