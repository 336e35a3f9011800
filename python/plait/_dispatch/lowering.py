"""Lowers functions of the package to operations by PyTorch's inner names, as PyTorch's own functions call them.

What is not listed here becomes the operation of the function's own name, whether or not PyTorch computes it in parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plait
from plait._dispatch import layers, shapes
from plait._dispatch.operations import aten, packet
from plait._engine.overriding import PLAIN

_OPERATORS = {
    "and": "bitwise_and", "invert": "bitwise_not", "lshift": "bitwise_left_shift", "mod": "remainder",
    "or": "bitwise_or", "rshift": "bitwise_right_shift", "truediv": "div", "floordiv": "floor_divide",
    "xor": "bitwise_xor",
}  # fmt: skip
_SAME = {
    "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne",
    "subtract": "sub", "true_divide": "div",
}  # fmt: skip
# Methods and properties that ask nothing of the elements.
_KEPT = frozenset(
    [
        "backward",
        "data_ptr",
        "dim",
        "dim_order",
        "element_size",
        "get_device",
        "has_names",
        "is_complex",
        "is_contiguous",
        "is_floating_point",
        "is_inference",
        "is_pinned",
        "is_shared",
        "is_signed",
        "__len__",
        "ndimension",
        "nelement",
        "numel",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "requires_grad_",
        "retain_grad",
        "size",
        "storage",
        "storage_offset",
        "stride",
        "untyped_storage",
        "__deepcopy__",
        "__dir__",
        "__format__",
        "__hash__",
        "__reduce_ex__",
        "__repr__",
        "__str__",
        "__setstate__",
        "as_tensor",
        "asarray",
        "broadcast_shapes",
        "can_cast",
        "cartesian_prod",
        "from_numpy",
        "promote_types",
        "result_type",
        "tensor",
    ]
)
_PROPERTIES = frozenset({"H", "T", "data", "imag", "mH", "mT", "real"})


def name_of(function: Any) -> str | None:
    """Returns the name under which a function is lowered; None for one that is run as it is."""
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__"):
        owner = function.__self__
        return next((n for n in _PROPERTIES if getattr(plait.Tensor, n) is owner), None) if name == "__get__" else None
    if name in _KEPT:
        return None
    if name[:2] == "__":
        bare = name.strip("_")
        if name in _LOWERED or bare in _LOWERED:
            return name if name in _LOWERED else bare
        if bare[0] == "i" and bare not in ("invert", "index", "int"):
            return _OPERATORS.get(bare[1:], bare[1:]) + "_"
        return _OPERATORS.get(bare, bare)
    home = getattr(PLAIN.get(function, function), "__module__", "") or ""
    for part in ("linalg", "fft", "special"):
        if home.startswith(f"plait.{part}") and not name.startswith(part):
            return f"{part}_{name}"
    if name.endswith("_") and name[:-1] in _SAME:
        return _SAME[name[:-1]] + "_"
    return _SAME.get(name, name)


def lower(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the operations that a function consists of.

    Args:
        function: the function
        args: of the call, by position
        kwargs: by name
    """
    name = name_of(function)
    if name is None:
        return _plain(function)(*args, **kwargs)
    if (special := _LOWERED.get(name)) is not None and "out" not in kwargs:
        return special(*args, **kwargs)
    if name in _LIKES:
        kwargs.setdefault("pin_memory", False)
    if name in _SIZES:
        n = 1 if name in ("flip",) or not isinstance(args[0], list | tuple) else 0
        if len(args) > n and isinstance(args[n], int):
            args = (*args[:n], list(args[n:]))
    return packet(name, function)(*args, **kwargs)


def _plain(function: Any) -> Any:
    """Returns a function as it is where nothing is asked."""
    if function.__name__ in ("__get__", "__set__"):
        owner = function.__self__
        function = owner.fget if function.__name__ == "__get__" else owner.fset
    return PLAIN.get(function) or getattr(function, "unchecked", None) or getattr(function, "__wrapped__", function)


_LIKES = frozenset(
    [
        "empty_like",
        "full_like",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones_like",
        "rand_like",
        "randn_like",
        "zeros_like",
    ]
)
_SIZES = frozenset({"view", "permute", "expand", "repeat", "flip", "new_zeros", "new_ones", "new_empty"})


_LOWERED: dict[str, Callable[..., Any]] = {
    "adaptive_avg_pool2d": layers.adaptive_avg_pool2d,
    "avg_pool2d": layers.avg_pool2d,
    "ger": layers.outer,
    "group_norm": layers.group_norm,
    "max_pool2d": layers.max_pool2d,
    "moveaxis": shapes.moved,
    "movedim": shapes.moved,
    "norm": layers.norm,
    "outer": layers.outer,
    "pad": shapes.pad,
    "swapaxes": shapes.swapped,
    "swapdims": shapes.swapped,
    "H": lambda self: aten.transpose.int(self, 0, 1),
    "T": shapes.numpy_t,
    "mT": lambda self: aten.transpose.int(self, -2, -1),
    "argsort": shapes.argsort,
    "batch_norm": layers.batch_norm,
    "bfloat16": shapes.cast_to(plait.bfloat16),
    "__bool__": lambda self: bool(shapes.scalar(self)),
    "bool": shapes.cast_to(plait.bool),
    "chunk": shapes.chunk,
    "contiguous": shapes.contiguous,
    "conv1d": layers.conv(1),
    "conv2d": layers.conv(2),
    "conv3d": layers.conv(3),
    "cpu": lambda self, memory_format=None: shapes.to(self, "cpu"),
    "cross_entropy": layers.cross_entropy,
    "data": layers.data,
    "double": shapes.cast_to(plait.float64),
    "dropout": layers.dropout,
    "embedding": layers.embedding,
    "expand_as": lambda self, other: aten.expand.default(self, list(other.shape)),
    "flatten": shapes.flatten,
    "__float__": lambda self: float(shapes.scalar(self)),
    "float": shapes.cast_to(plait.float32),
    "getitem": shapes.getitem,
    "half": shapes.cast_to(plait.float16),
    "__index__": lambda self: int(shapes.scalar(self)),
    "__int__": lambda self: int(shapes.scalar(self)),
    "int": shapes.cast_to(plait.int32),
    "item": shapes.scalar,
    "l1_loss": layers.l1_loss,
    "layer_norm": layers.layer_norm,
    "linear": shapes.linear,
    "log_softmax": layers.log_softmax,
    "long": shapes.cast_to(plait.int64),
    "matmul": shapes.matmul,
    "mse_loss": layers.loss(aten.mse_loss),
    "narrow": shapes.narrow,
    "nll_loss": layers.nll_loss,
    "pin_memory": aten._pin_memory.default,
    "ravel": lambda self: shapes.reshape(self, [-1]),
    "reshape": shapes.reshape,
    "reshape_as": lambda self, other: shapes.reshape(self, list(other.shape)),
    "rmatmul": lambda self, other: shapes.matmul(other, self),
    "rpow": lambda self, other: aten.pow.Scalar(other, self),
    "rsub": aten.rsub.Scalar,
    "rtruediv": lambda self, other: aten.mul.Tensor(aten.reciprocal.default(self), other),
    "setitem": shapes.setitem,
    "softmax": layers.softmax,
    "split": shapes.split,
    "square": lambda self: aten.pow.Tensor_Scalar(self, 2),
    "std": layers.moment(aten.std),
    "to": shapes.to,
    "type": shapes.typed,
    "type_as": shapes.to,
    "unbind": aten.unbind.int,
    "var": layers.moment(aten.var),
    "view_as": lambda self, other: aten.view.default(self, list(other.shape)),
}
