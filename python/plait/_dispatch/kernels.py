"""What operations compute for tensors that no class or mode takes over: functions of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import plait
from plait import sparse
from plait._errors import MissingFeatureError
from plait.nn import functional as F

if TYPE_CHECKING:
    from plait._dispatch.operations import OpOverload

REDUCTIONS = ("none", "mean", "sum")


def kernel(op: OpOverload) -> Callable[..., Any]:
    """Returns the function that computes an operation.

    Raises:
        MissingFeatureError: if there is none.
    """
    for name in (op.__name__, op._opname):
        if (special := _KERNELS.get(name)) is not None:
            return special
    for space in (plait, plait.Tensor, F):
        if callable(found := space.__dict__.get(op._opname) or getattr(space, op._opname, None)):  # and no module
            return found  # type: ignore[no-any-return]
    if (function := op.overloadpacket._function) is not None:
        return function
    raise MissingFeatureError(f"plait.ops.{op}: there is no such operation")


def _at(indices: Any) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


def _put(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if accumulate:
        return self.index_put_(indices, values, accumulate=True)
    self[_at(indices)] = values
    return self


def _slice(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return self[(slice(None),) * (dim % self.dim()) + (slice(start, end, step),)]


def _to_copy(self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **more: Any) -> Any:
    format_ = {k: more[k] for k in ("memory_format",) if more.get(k) is not None}
    return self.to(device=device, dtype=dtype or self.dtype, copy=True, **format_)


def _softmax_of(function: Callable[..., Any]) -> Callable[..., Any]:
    def softmax(self: Any, dim: int, half_to_float: bool) -> Any:
        return function(self, dim, dtype=plait.float32 if half_to_float else None)

    return softmax


def _loss(function: Callable[..., Any]) -> Callable[..., Any]:
    def loss(self: Any, target: Any, reduction: int = 1) -> Any:
        return function(self, target, reduction=REDUCTIONS[reduction])

    return loss


def _nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    out = F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])
    kept = target != ignore_index
    total = kept.sum().to(self.dtype) if weight is None else (weight[target.where(kept, 0)] * kept).sum()
    return out, total if reduction == 1 or weight is not None else total * 0


def _layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return F.layer_norm(input, normalized_shape, weight, bias, eps), *_moments(input, len(normalized_shape), eps)


def _group_norm(
    input: Any,
    weight: Any,
    bias: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Any:
    mean, rstd = _moments(input.reshape(N, group, -1), 1, eps)
    return F.group_norm(input, group, weight, bias, eps), mean.squeeze(-1), rstd.squeeze(-1)


def _avg_pool2d(self: Any, kernel_size: Any, stride: Any = (), *rest: Any, **named: Any) -> Any:
    return F.avg_pool2d(self, tuple(kernel_size), tuple(stride) or None, *rest, **named)


def _moments(input: Any, count: int, eps: float) -> Any:
    dims = list(range(-count, 0))
    var, mean = plait.var_mean(input.detach(), dims, correction=0, keepdim=True)
    return mean, (var + eps).rsqrt()


def _dropout(input: Any, p: float, train: bool | None) -> Any:
    if train is False:
        return input, plait.ones_like(input, dtype=plait.bool)
    scaled = F.dropout(plait.ones_like(input), p, True)
    return input * scaled, scaled != 0


def _batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    empty = input.new_empty(0)
    saved = (empty, empty)
    if training:
        dims = [d for d in range(input.dim()) if d != 1]
        v, m = plait.var_mean(input.detach(), dims, correction=0)
        saved = m, (v + eps).rsqrt()
    return F.batch_norm(input, mean, var, weight, bias, training, momentum, eps), *saved


def _convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    n = weight.dim() - 2
    if transposed:
        function = getattr(F, f"conv_transpose{n}d")
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(F, f"conv{n}d")(input, weight, bias, stride, padding, dilation, groups)


def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    padding = None if padding_idx < 0 else padding_idx
    return F.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


_KERNELS: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": F.adaptive_avg_pool2d,
    "_local_scalar_dense": lambda self: self.item(),
    "_log_softmax": _softmax_of(plait.log_softmax),
    "_pin_memory": lambda self, device=None: self.pin_memory(),
    "_softmax": _softmax_of(plait.softmax),
    "_sparse_addmm": sparse.addmm,
    "_sparse_mm_reduce_impl": lambda self, other, reduce: (sparse.mm(self, other, reduce), other.new_empty(0)),
    "_to_copy": _to_copy,
    "_unsafe_view": lambda self, size: self.reshape(size),
    "alias": lambda self: self.view(self.shape),
    "binary_cross_entropy_with_logits": lambda self, target, weight=None, pos_weight=None, reduction=1: (
        F.binary_cross_entropy_with_logits(self, target, weight, pos_weight=pos_weight, reduction=REDUCTIONS[reduction])
    ),
    "constant_pad_nd": lambda self, pad, value=0: F.pad(self, tuple(pad), value=value),
    "convolution": _convolution,
    "embedding": _embedding,
    "index.Tensor": lambda self, indices: self[_at(indices)],
    "index_put_": _put,
    "lift_fresh": lambda self: self,
    "linalg_vector_norm": plait.linalg.vector_norm,
    "max_pool2d_with_indices": lambda self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False: (
        F.max_pool2d(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True)
    ),
    "mse_loss": _loss(F.mse_loss),
    "avg_pool2d": _avg_pool2d,
    "native_batch_norm": _batch_norm,
    "native_dropout": _dropout,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "nll_loss_forward": _nll_loss_forward,
    "pow.Scalar": lambda self, exponent: self**exponent,
    "rsub": lambda self, other, alpha=1: other - self * alpha,
    "slice": _slice,
    "squeeze.dims": lambda self, dim: self.squeeze(tuple(dim)),
    "sum.dim_IntList": lambda self, dim, keepdim=False, *, dtype=None: plait.sum(
        self, dim or None, keepdim, dtype=dtype
    ),
    "to": plait.Tensor.to,
}
