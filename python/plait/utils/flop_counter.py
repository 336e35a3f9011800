"""`FlopCounterMode`: counts the multiplications and additions of products, convolutions and attention."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

from plait._tensor import Tensor
from plait.nn.modules.module import Module, register_module_forward_hook, register_module_forward_pre_hook
from plait.overrides import TorchFunctionMode

__all__ = ["FlopCounterMode"]

# What a call of a function costs: the name of its operation, what forward costs, and of backward's operation and parts
# the name and, with the operand that each is the gradient of, what they cost.
Cost: TypeAlias = tuple[str, int, str, list[tuple[Any, int]]]


def _product(out: Tensor, a: Tensor, b: Tensor, name: str = "") -> Cost | None:
    """Returns the cost of a product of matrices, of which a vector's are not counted."""
    if a.dim() < 2 or b.dim() < 2:
        return None
    kind = "aten.mm" if min(a.dim(), b.dim()) == 2 else "aten.bmm"
    cost = 2 * out.numel() * a.shape[-1]
    return name or kind, cost, kind, [(a, cost), (b, cost)]


def _linear(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Cost:
    cost = 2 * out.numel() * input.shape[-1]
    return "aten.mm" if bias is None else "aten.addmm", cost, "aten.mm", [(input, cost), (weight, cost)]


def _einsum(out: Tensor, equation: str, *operands: Any) -> Cost | None:
    """Returns the cost of a product of two tensors, if it sums over a letter that both have."""
    pair = operands[0] if len(operands) == 1 else operands
    inputs, _, result = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if len(pair) != 2 or "." in inputs or not (set(letters[0]) & set(letters[1])) - set(result):
        return None
    sizes = {k: n for text, t in zip(letters, pair, strict=True) for k, n in zip(text, t.shape, strict=True)}
    cost = 2 * math.prod(sizes.values())
    return "aten.bmm", cost, "aten.bmm", [(t, cost) for t in pair]


def _tensordot(out: Tensor, a: Tensor, b: Tensor, dims: Any = 2) -> Cost:
    summed = math.isqrt(a.numel() * b.numel() // max(out.numel(), 1))
    cost = 2 * out.numel() * summed
    return "aten.mm", cost, "aten.mm", [(a, cost), (b, cost)]


def _convolution(out: Tensor, input: Tensor, weight: Tensor, *args: Any, transposed: bool = False, **kw: Any) -> Cost:
    places = math.prod((input if transposed else out).shape[2 - (weight.dim() - input.dim()) :])
    batch = input.shape[0] if input.dim() == weight.dim() else 1
    cost = 2 * batch * places * weight.numel()
    channels = (out if transposed else input).shape[-weight.dim() + 1]
    own = 2 * batch * places * channels * weight.numel() // weight.shape[1]
    return "aten.convolution", cost, "aten.convolution_backward", [(input, cost), (weight, own)]


def _transposed(*args: Any, **kwargs: Any) -> Cost:
    return _convolution(*args, **kwargs, transposed=True)


def _attention(out: Tensor, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Cost:
    """Returns the cost of attention, whose backward computes the scores again."""
    scores = 2 * math.prod(query.shape[:-1]) * key.shape[-2]
    cost, name = scores * (query.shape[-1] + value.shape[-1]), "aten._scaled_dot_product_flash_attention_for_cpu"
    return name, cost, f"{name}_backward", [((query, key, value), scores * (3 * query.shape[-1] + 2 * value.shape[-1]))]


def _gru(
    out: Any, input: Tensor, h0: Tensor | None = None, *, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, **kw: Any
) -> Cost:
    """Returns the cost of a layer's gates; those of LSTMs, which PyTorch computes in one call, it does not count."""
    places = input.numel() // input.shape[-1]
    steps = input.shape[0]
    of_input, of_state = 2 * places * w_ih.numel(), 2 * places * w_hh.numel()
    parts: list[tuple[Any, int]] = [(input, of_input), (w_ih, of_input), (w_hh, of_state)]
    parts.append(((input, w_ih, w_hh), of_state - of_state // steps))  # of the states between steps
    if h0 is not None:
        parts[-1:] = [((input, w_ih, w_hh, h0), parts[-1][1]), (h0, of_state // steps)]
    return "aten.mm" if b_ih is None else "aten.addmm", of_input + of_state, "aten.mm", parts


COSTS: dict[str, Callable[..., Cost | None]] = {
    "linear": _linear, "gru_layer": _gru, "einsum": _einsum, "tensordot": _tensordot,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("matmul", "mm", "bmm", "__matmul__"), _product), "__rmatmul__": lambda o, b, a: _product(o, a, b),
    "addmm": lambda out, *given, **kw: _product(out, given[1], given[2], "aten.addmm"),
    "baddbmm": lambda out, *given, **kw: _product(out, given[1], given[2], "aten.baddbmm"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
}  # fmt: skip


class _Again(TorchFunctionMode):
    """Counts what a function that is counted by its parts calls."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._counter.__torch_function__(func, types, args, kwargs)


class FlopCounterMode(TorchFunctionMode):
    """Counts, inside its block, the multiplications and additions of products, convolutions and attention.

    Of each module it counts what is computed in it and, in backward, for it. LSTMs are not counted, as in PyTorch.

    Args:
        mods: has no effect: modules are found when they are called
        depth: of the modules in the table
        display: whether to print the table at the end of the block
        custom_mapping: further costs of forward: functions of a call's arguments and, as `out_val`, its result
    """

    def __init__(
        self,
        mods: Module | list[Module] | None = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__()
        self.depth, self.display, self._custom = depth, display, custom_mapping or {}
        self.flop_counts: dict[str, dict[Any, int]] = {}
        self._names: dict[Module, str] = {}
        self._called: list[str] = []

    def get_total_flops(self) -> int:
        """Returns the number of all operations."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Returns the numbers by module, with "Global" for all of them, and by operation."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Returns the numbers as text, of modules down to a depth."""
        total, deepest = self.get_total_flops(), self.depth if depth is None else depth
        rows = [("Module", "FLOP", "% Total")]
        for name, counts in sorted(self.flop_counts.items(), key=lambda item: (item[0] != "Global", item[0])):
            below = 0 if name == "Global" else name.count(".") + 1
            if below <= deepest:
                for label, n in ((name, sum(counts.values())), *((f" - {op}", n) for op, n in counts.items())):
                    rows.append((f"{' ' * below}{label}", f"{n:,}", f"{n / max(total, 1):.2%}"))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)

    def __enter__(self) -> Any:
        self.flop_counts, self._names, self._called = {}, {}, []
        self._handles = [
            register_module_forward_pre_hook(self._begun),
            register_module_forward_hook(lambda module, args, out: self._ended(), always_call=True),
        ]
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        for handle in self._handles:
            handle.remove()
        if self.display:
            print(self.get_table())

    def _begun(self, module: Module, args: Any) -> None:
        if module not in self._names:  # nobody's part, so far
            root = type(module).__name__
            self._names.update({m: f"{root}.{name}" if name else root for name, m in module.named_modules()})
        self._called.append(self._names[module])

    def _ended(self) -> None:
        self._called.pop()

    def _add(self, modules: set[str], name: Any, count: int) -> None:
        for module in modules:
            self.flop_counts.setdefault(module, defaultdict(int))[name] += count

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "multi_head_attention_forward":  # its parts are counted
            with _Again(self):
                return func.__wrapped__(*args, **kwargs)
        out = func(*args, **kwargs)
        modules = {"Global", *self._called}
        if func in self._custom:
            self._add(modules, func, self._custom[func](*args, **kwargs, out_val=out))
        elif name in COSTS and (cost := COSTS[name](out, *args, **kwargs)) is not None:
            forward, count, backward, parts = cost
            self._add(modules, forward, count)
            wanted = sum(n for of, n in parts if any(t.requires_grad for t in (of if isinstance(of, tuple) else (of,))))
            first = out[0] if isinstance(out, tuple) else out
            if first.requires_grad and wanted:
                first.register_hook(lambda grad: self._add(modules, backward, wanted))
        return out
