"""Attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._dtype import bool_
from plait._errors import DTypeError, ShapeError
from plait._functions._checked import checked

if TYPE_CHECKING:
    from plait._tensor import Tensor

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


@checked
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Returns softmax(query key^T scale + mask) value, without storing the scores.

    Args:
        query: [..., L, E]
        key: [..., S, E]
        value: [..., S, Ev]
        attn_mask: bool, where True takes part, or added to the scores
        dropout_p: the probability of a weight being dropped
        is_causal: hide keys after the query
        scale: factor of the scores; 1 / sqrt(E) by default
        enable_gqa: allow fewer key than query heads
    """
    if attn_mask is not None and is_causal:
        raise ValueError("scaled_dot_product_attention: give either attn_mask or is_causal")
    if scale == 0:
        query, scale = _ops.mul(query, 0.0), None
    return _ops.scaled_dot_product_attention(
        query, key, value, attn_mask, float(dropout_p), is_causal, 0.0 if scale is None else float(scale), enable_gqa
    )


def additive_mask(name: str, mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Returns a mask of which True hides as one that is added to scores; a floating-point one as it is."""
    if mask is None:
        return None
    if mask.dtype is bool_:
        hidden = _ops.zeros(*mask.shape, dtype=like.dtype, device=mask.device)
        return _ops.masked_fill(hidden, mask, float("-inf"))
    if not mask.dtype.is_floating_point:
        raise DTypeError(f"{name}: want a mask of bool or floating-point dtype, got {mask.dtype}")
    return mask.to(like.dtype)


def _projected(
    query: Tensor, key: Tensor, value: Tensor, weights: tuple[Tensor | None, ...], bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns query, key and value times their weights: one weight for all three, or one for each."""
    packed, *single = weights
    e = query.shape[-1]
    if packed is not None and query is key and key is value:
        q, k, v = _ops.chunk(_ops.linear(query, packed, bias), 3, -1)
        return q, k, v
    parts: list[Any] = list(_ops.chunk(packed, 3, 0)) if packed is not None else single
    biases = [None] * 3 if bias is None else [_ops.narrow(bias, 0, i * e, e) for i in range(3)]
    q, k, v = (_ops.linear(x, w, b) for x, w, b in zip((query, key, value), parts, biases, strict=True))
    return q, k, v


@checked
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Returns what several heads attend to, and their weights [N, L, S], or [N, heads, L, S] if not averaged.

    Args:
        query: [L, N, E] or [L, E]
        key: [S, N, Ek] or [S, Ek]
        value: [S, N, Ev] or [S, Ev]
        embed_dim_to_check: E
        num_heads: a divisor of E
        in_proj_weight: [3 E, E], if query, key and value have as many features
        in_proj_bias: [3 E]
        bias_k: [1, 1, E], a further key
        bias_v: [1, 1, E], its value
        add_zero_attn: add a key and a value of zeros
        dropout_p: the probability of a weight being dropped, in training
        out_proj_weight: [E, E]
        out_proj_bias: [E]
        training: whether to drop
        key_padding_mask: [N, S]: bool, where True hides, or added to the scores
        need_weights: return weights, else None
        attn_mask: [L, S] or [N * heads, L, S]: bool, where True hides, or added to the scores
        use_separate_proj_weight: take the three weights that follow
        q_proj_weight: [E, E]
        k_proj_weight: [E, Ek]
        v_proj_weight: [E, Ev]
        static_k: not there
        static_v: not there
        average_attn_weights: average the weights over the heads
        is_causal: attn_mask is the causal one; it must be given too
    """
    name = "multi_head_attention_forward"
    if static_k is not None or static_v is not None:
        raise NotImplementedError(f"{name}: static_k and static_v are not there")
    single = query.ndim == 2
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        shapes = [list(t.shape) for t in (query, key, value)]
        raise ValueError(f"{name}: want query, key and value of 2 or of 3 dimensions, got {shapes}")
    if query.shape[-1] != embed_dim_to_check:
        raise ValueError(f"{name}: want {embed_dim_to_check} features, got a query of shape {list(query.shape)}")
    if key.shape[:-1] != value.shape[:-1]:
        raise ValueError(f"{name}: key and value differ, got {list(key.shape)} and {list(value.shape)}")
    if is_causal and attn_mask is None:
        raise RuntimeError(f"{name}: is_causal is a hint about attn_mask, which must be given too")
    if single:
        same = query is key and key is value
        query = _ops.unsqueeze(query, 1)
        key, value = (query, query) if same else (_ops.unsqueeze(key, 1), _ops.unsqueeze(value, 1))
        key_padding_mask = None if key_padding_mask is None else _ops.unsqueeze(key_padding_mask, 0)
    length, n, e = query.shape
    size = e // num_heads
    if size * num_heads != e:
        raise ValueError(f"{name}: {e} features cannot be divided into {num_heads} heads")
    mask = additive_mask(name, attn_mask, query)
    padding = additive_mask(name, key_padding_mask, query)
    separate = (None, q_proj_weight, k_proj_weight, v_proj_weight)
    weights = separate if use_separate_proj_weight else (in_proj_weight, None, None, None)
    q, k, v = _projected(query, key, value, weights, in_proj_bias)
    extra = 0
    if bias_k is not None and bias_v is not None:
        k = _ops.cat([k, _ops.expand(bias_k, 1, n, e)], 0)
        v = _ops.cat([v, _ops.expand(bias_v, 1, n, e)], 0)
        extra += 1
    if add_zero_attn:
        zeros = _ops.zeros(1, n, e, dtype=k.dtype, device=k.device)
        k, v = _ops.cat([k, zeros], 0), _ops.cat([v, zeros], 0)
        extra += 1
    source = k.shape[0]
    mask = _joined(name, mask, padding, (n, num_heads, length, source), extra)
    # [T, N, E] to [N, heads, T, size]
    q, k, v = (_ops.permute(_ops.reshape(t, (t.shape[0], n, num_heads, size)), (1, 2, 0, 3)) for t in (q, k, v))
    p = dropout_p if training else 0.0
    found = None
    if need_weights:
        scores = _ops.matmul(_ops.mul(q, 1 / math.sqrt(size)), _ops.transpose(k, -2, -1))
        found = _ops.softmax(scores if mask is None else _ops.add(scores, mask), -1)
        found = _ops.dropout(found, p, True) if p else found
        out = _ops.matmul(found, v)
        found = _ops.mean(found, 1) if average_attn_weights else found
        found = _ops.squeeze(found, 0) if single else found
    else:
        out = _ops.scaled_dot_product_attention(q, k, v, mask, p)
    out = _ops.reshape(_ops.permute(out, (2, 0, 1, 3)), (length, n, e))
    out = _ops.linear(out, out_proj_weight, out_proj_bias)
    return (_ops.squeeze(out, 1) if single else out), found


def _joined(
    name: str, mask: Tensor | None, padding: Tensor | None, shape: tuple[int, int, int, int], extra: int
) -> Tensor | None:
    """Returns both masks as one that broadcasts to [N, heads, L, S]; the last `extra` keys are seen."""
    n, heads, length, source = shape
    if mask is not None:
        wanted = [[length, source - extra], [n * heads, length, source - extra]]
        if list(mask.shape) not in wanted:
            raise ShapeError(f"{name}: attn_mask must have shape {wanted[0]} or {wanted[1]}, got {list(mask.shape)}")
        mask = _ops.reshape(mask, (-1, heads, length, source - extra)) if mask.ndim == 3 else mask
        mask = _ops.pad(mask, (0, extra)) if extra else mask
    if padding is not None:
        if list(padding.shape) != [n, source - extra]:
            raise RuntimeError(
                f"{name}: key_padding_mask must have shape {[n, source - extra]}, got {list(padding.shape)}"
            )
        padding = _ops.pad(padding, (0, extra)) if extra else padding
        padding = _ops.reshape(padding, (n, 1, 1, source))
        mask = padding if mask is None else _ops.add(mask, padding)
    return mask
