"""Multi-head attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._tensor import Tensor
from plait.nn import functional as F
from plait.nn import init
from plait.nn.modules.linear import NonDynamicallyQuantizableLinear, new_parameter
from plait.nn.modules.module import Module

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention in several heads, with projections of query, key, value and result (Vaswani et al., 2017).

    Args:
        embed_dim: the features of query and result
        num_heads: a divisor of embed_dim
        dropout: the probability of a weight being dropped, in training
        bias: whether to train biases of the projections
        add_bias_kv: train a further key and its value
        add_zero_attn: add a key and a value of zeros
        kdim: the features of keys; embed_dim by default
        vdim: the features of values; embed_dim by default
        batch_first: inputs and outputs are [N, L, E], not [L, N, E]
        device: of the parameters
        dtype: of the parameters
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: num_heads must divide embed_dim, got {num_heads} and {embed_dim}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        same = self._qkv_same_embed_dim
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            p = None if same else new_parameter(embed_dim, width, **where)
            self.register_parameter(f"{name}_proj_weight", p)
        self.register_parameter("in_proj_weight", new_parameter(3 * embed_dim, embed_dim, **where) if same else None)
        self.register_parameter("in_proj_bias", new_parameter(3 * embed_dim, **where) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **where)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, new_parameter(1, 1, embed_dim, **where) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for b in (self.bias_k, self.bias_v):
            if b is not None:
                init.xavier_normal_(b)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the heads attend to, and their weights; `F.multi_head_attention_forward` has the arguments."""
        swap = self.batch_first and query.ndim == 3
        if swap:
            same = query is key and key is value
            query = _ops.transpose(query, 0, 1)
            key, value = (query, query) if same else (_ops.transpose(key, 0, 1), _ops.transpose(value, 0, 1))
        out, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (_ops.transpose(out, 0, 1) if swap else out), weights
