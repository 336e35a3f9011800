"""Summaries of modules: layers, output shapes, numbers of parameters, bytes."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor

if TYPE_CHECKING:
    from plait._dtype import dtype as DType
    from plait.nn import Module


@dataclass
class Layer:
    """One line of a summary: a module. Lines are in the order of calls."""

    name: str
    kind: str
    depth: int
    output: str  # its shape, or shapes
    parameters: int  # its own, without those of its children
    output_bytes: int


class Summary:
    """The result of `summary`. Print it, or read its attributes."""

    def __init__(self, layers: list[Layer], parameters: int, trainable: int, parameter_bytes: int) -> None:
        self.layers = layers
        self.total_params, self.trainable_params, self.param_bytes = parameters, trainable, parameter_bytes
        parents = {i - 1 for i, layer in enumerate(layers) if i and layer.depth > layers[i - 1].depth}
        self.output_bytes = sum(layer.output_bytes for i, layer in enumerate(layers) if i not in parents)

    def _rows(self) -> list[tuple[str, str, str]]:
        indent = [f"{'  ' * layer.depth}{layer.name}: {layer.kind}" for layer in self.layers]
        return [(name, a.output, f"{a.parameters:,}") for name, a in zip(indent, self.layers, strict=True)]

    def _totals(self) -> list[tuple[str, str]]:
        return [
            ("parameters", f"{self.total_params:,}"),
            ("trainable", f"{self.trainable_params:,}"),
            ("bytes of parameters", _bytes(self.param_bytes)),
            ("bytes of outputs", _bytes(self.output_bytes)),
        ]

    def __str__(self) -> str:
        rows = [("layer", "output", "parameters"), *self._rows()]
        a, b, c = (max(len(row[i]) for row in rows) for i in range(3))
        lines = [f"{row[0]:<{a}}  {row[1]:<{b}}  {row[2]:>{c}}" for row in rows]
        rule = "-" * (a + b + c + 4)
        totals = [f"{name}: {value}" for name, value in self._totals()]
        return "\n".join([lines[0], rule, *lines[1:], rule, *totals])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return (
                "<tr>"
                + "".join(f"<{tag} style='text-align:left'><pre>{html.escape(c)}</pre></{tag}>" for c in cells)
                + "</tr>"
            )

        body = "".join(row(r, "td") for r in self._rows())
        totals = "<br>".join(html.escape(f"{name}: {value}") for name, value in self._totals())
        return f"<table>{row(('layer', 'output', 'parameters'), 'th')}{body}</table><p>{totals}</p>"


def _bytes(n: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []


def _inputs(model: Module, input_size: Any, dtype: DType | None) -> tuple[Any, ...]:
    sizes = [input_size] if input_size and isinstance(input_size[0], int) else list(input_size)
    where = next((p.device for p in model.parameters()), None)
    return tuple(_ops.zeros(*size, dtype=dtype, device=where) for size in sizes)


def summary(
    model: Module, input_size: Any = None, inputs: Any = None, dtype: DType | None = None, depth: int | None = None
) -> Summary:
    """Runs a module once, in evaluation mode and without gradients, and summarises its children and their outputs.

    Args:
        model: the module
        input_size: the shape of its input, including the batch dimension, or a sequence of shapes; inputs are zeros
        inputs: the input, or a tuple of inputs, instead of `input_size`
        dtype: the dtype of inputs created from `input_size`
        depth: the maximum depth of modules in the summary; all by default

    Raises:
        ValueError: unless exactly one of input_size and inputs is given.
    """
    if (input_size is None) == (inputs is None):
        raise ValueError("summary: give either input_size or inputs")
    given = inputs if inputs is not None else _inputs(model, input_size, dtype)
    given = tuple(given) if isinstance(given, list | tuple) else (given,)
    layers: list[Layer] = []
    handles: list[Any] = []
    modes = {m: m.training for m in model.modules()}

    def watch(module: Module, name: str, level: int) -> None:
        line = Layer(name, type(module).__name__, level, "", 0, 0)

        def before(_module: Any, _args: Any) -> None:
            if all(known is not line for known in layers):
                line.parameters = sum(p.numel() for p in module.parameters(recurse=False))
                layers.append(line)

        def after(_module: Any, _args: Any, output: Any) -> None:
            found = _tensors(output)
            line.output = ", ".join(str(list(t.shape)) for t in found)
            line.output_bytes = sum(t.nbytes for t in found)

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after))

    for name, module in model.named_modules():
        level = name.count(".") + 1 if name else 0
        if depth is None or level <= depth:
            watch(module, name.rpartition(".")[2] if name else "model", level)
    try:
        model.eval()
        with no_grad():
            model(*given)
    finally:
        for h in handles:
            h.remove()
        for m, training in modes.items():
            m.training = training
    parameters = list(model.parameters())
    return Summary(
        layers,
        sum(p.numel() for p in parameters),
        sum(p.numel() for p in parameters if p.requires_grad),
        sum(p.nbytes for p in parameters),
    )


__all__ = ["Layer", "Summary", "summary"]
