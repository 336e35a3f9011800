"""Recurrent layers: RNN, LSTM and GRU, stacked and in both directions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from plait import _ops
from plait._engine.warnings import warn
from plait._tensor import Tensor
from plait.nn import init
from plait.nn._packed import PackedSequence
from plait.nn.modules._recurrent import run_gru, run_lstm, run_rnn
from plait.nn.modules.linear import new_parameter
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(Module):
    """What recurrent layers have in common.

    Args:
        mode: RNN_TANH, RNN_RELU, LSTM or GRU
        input_size: the features of a step's input
        hidden_size: those of the state
        num_layers: how many layers, each on the outputs of the one below
        bias: whether to train biases
        batch_first: inputs and outputs are [B, T, ...], not [T, B, ...]
        dropout: the probability of dropping outputs of all layers but the last, in training
        bidirectional: run a second set of layers from the end, and join the outputs
        proj_size: of an LSTM: project the state to so many features
        device: of the parameters
        dtype: of the parameters
    """

    bias: bool

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        name = self._get_name()
        if mode not in _GATES:
            raise ValueError(f"{name}: unknown mode {mode!r}, want one of {', '.join(_GATES)}")
        if not isinstance(hidden_size, int):
            raise TypeError(f"{name}: hidden_size must be an int, got {type(hidden_size).__name__}")
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueError(f"{name}: sizes must be positive, got hidden_size {hidden_size}, num_layers {num_layers}")
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"{name}: dropout must be a number between 0 and 1, got {dropout!r}")
        if dropout and num_layers == 1:
            warn(f"{name}: dropout {dropout} has no effect in a single layer")
        if not 0 <= proj_size < hidden_size or (proj_size and mode != "LSTM"):
            raise ValueError(f"{name}: proj_size must be smaller than hidden_size, and is an LSTM's, got {proj_size}")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        out = proj_size or hidden_size
        rows = _GATES[mode] * hidden_size
        self._all_names: list[list[str]] = []
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * (2 if bidirectional else 1)
            for suffix in ("", "_reverse") if bidirectional else ("",):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = [f"{n}_l{layer}{suffix}" for n in shapes]
                for n, shape in zip(names, shapes.values(), strict=True):
                    self.register_parameter(n, new_parameter(*shape, device=device, dtype=dtype))
                self._all_names.append(names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: weights need no common memory."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list for each layer and direction."""
        return [[getattr(self, n) for n in names] for names in self._all_names]

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size:
            s += f", proj_size={self.proj_size}"
        for name, default in (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0)):
            value = getattr(self, name)
            if value != default:
                s += f", {name}={value}"
        return s + (", bidirectional=True" if self.bidirectional else "")

    # --- running ---

    def _layers(self, x: Tensor, states: list[Tensor | None], sizes: list[int] | None) -> tuple[Tensor, list[Tensor]]:
        """Runs all layers on [T, B, ...], or packed data and the sizes of its steps; returns output and last states."""
        directions = 2 if self.bidirectional else 1
        last: list[list[Tensor]] = [[] for _ in states]
        for layer in range(self.num_layers):
            outs = []
            for d in range(directions):
                i = layer * directions + d
                w = {n.rsplit("_l", 1)[0]: getattr(self, n) for n in self._all_names[i]}
                first = [None if s is None else _ops.select(s, 0, i) for s in states]
                run = {"LSTM": run_lstm, "GRU": run_gru}.get(self.mode, run_rnn)
                out, ends = run(x, first, w, d == 1, sizes, self.mode == "RNN_RELU")
                outs.append(out)
                for kept, end in zip(last, ends, strict=True):
                    kept.append(end)
            x = outs[0] if directions == 1 else _ops.cat(outs, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = _ops.dropout(x, self.dropout, True)
        return x, [_ops.stack(kept, 0) for kept in last]

    def _check_state(self, what: str, state: Tensor, batch: int, features: int) -> None:
        wanted = [self.num_layers * (2 if self.bidirectional else 1), batch, features]
        if list(state.shape) != wanted:
            raise RuntimeError(f"{self._get_name()}: {what} must have shape {wanted}, got {list(state.shape)}")

    def _run(self, input: Any, states: list[Tensor | None]) -> tuple[Any, list[Tensor]]:
        """Runs on a tensor or packed sequences; returns output and last states in the input's form."""
        features = [self.proj_size or self.hidden_size, self.hidden_size]
        names = ["hx", "cx"]
        packed = input if isinstance(input, PackedSequence) else None
        x = input.data if packed is not None else input
        single = packed is None and x.ndim == 2
        if packed is None and x.ndim not in (2, 3):
            raise ValueError(f"{self._get_name()}: want 2 or 3 dimensions, got shape {list(x.shape)}")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{self._get_name()}: the input's last dimension must be input_size {self.input_size}, "
                f"got shape {list(x.shape)}"
            )
        if single:
            for name, s in zip(names, states, strict=False):
                if s is not None and s.ndim != 2:
                    raise RuntimeError(
                        f"{self._get_name()}: {name} of one sequence must have 2 dimensions, got shape {list(s.shape)}"
                    )
            states = [None if s is None else _ops.unsqueeze(s, 1) for s in states]
            x = _ops.unsqueeze(x, 1)
        elif packed is None and self.batch_first:
            x = _ops.transpose(x, 0, 1)
        sizes = None if packed is None else [int(n) for n in packed.batch_sizes.tolist()]
        batch = x.shape[1] if sizes is None else sizes[0]
        for name, width, s in zip(names, features, states, strict=False):
            if s is not None:
                self._check_state(name, s, batch, width)
        if packed is not None and packed.sorted_indices is not None:
            states = [None if s is None else _ops.index_select(s, 1, packed.sorted_indices) for s in states]
        out, last = self._layers(x, states, sizes)
        if packed is not None:
            if packed.unsorted_indices is not None:
                last = [_ops.index_select(s, 1, packed.unsorted_indices) for s in last]
            return PackedSequence(out, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), last
        if single:
            return _ops.squeeze(out, 1), [_ops.squeeze(s, 1) for s in last]
        return (_ops.transpose(out, 0, 1) if self.batch_first else out), last


class RNN(RNNBase):
    """Recurrent layers with tanh or relu (Elman); further arguments as in `RNNBase`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be tanh or relu, got {nonlinearity!r}")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        out, (h,) = self._run(input, [hx])
        return out, h


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014); arguments as in `RNNBase`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        out, (h,) = self._run(input, [hx])
        return out, h


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); arguments as in `RNNBase`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size,
            device, dtype,
        )  # fmt: skip

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        if hx is not None and (not isinstance(hx, tuple | list) or len(hx) != 2):
            raise TypeError("LSTM: hx must be a pair of state and cell")
        out, (h, c) = self._run(input, [None, None] if hx is None else list(hx))
        return out, (h, c)


class RNNCellBase(Module):
    """What single steps have in common: input_size, hidden_size, and whether there are biases."""

    gates: ClassVar[int]
    bias_ih: Any
    bias_hh: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.gates * hidden_size
        self.weight_ih = new_parameter(rows, input_size, device=device, dtype=dtype)
        self.weight_hh = new_parameter(rows, hidden_size, device=device, dtype=dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, new_parameter(rows, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _check(self, input: Tensor, *states: Tensor | None) -> None:
        if input.ndim not in (1, 2):
            raise ValueError(f"{self._get_name()}: want 1 or 2 dimensions, got shape {list(input.shape)}")
        for s in states:
            if s is not None and s.ndim not in (1, 2):
                raise ValueError(f"{self._get_name()}: want a state of 1 or 2 dimensions, got shape {list(s.shape)}")

    def _zeros(self, input: Tensor) -> Tensor:
        return _ops.zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype, device=input.device)

    def _gates(self, input: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return _ops.linear(input, self.weight_ih, self.bias_ih), _ops.linear(h, self.weight_hh, self.bias_hh)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")


class RNNCell(RNNCellBase):
    """One step of `RNN`."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity must be tanh or relu, got {nonlinearity!r}")
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self._check(input, hx)
        total = _ops.add(*self._gates(input, self._zeros(input) if hx is None else hx))
        return _ops.tanh(total) if self.nonlinearity == "tanh" else _ops.relu(total)

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", nonlinearity={self.nonlinearity}" if self.nonlinearity != "tanh" else "")


class LSTMCell(RNNCellBase):
    """One step of `LSTM`."""

    gates = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = (self._zeros(input), self._zeros(input)) if hx is None else hx
        self._check(input, h, c)
        i, f, g, o = _ops.chunk(_ops.add(*self._gates(input, h)), 4, -1)
        c = _ops.add(_ops.mul(_ops.sigmoid(f), c), _ops.mul(_ops.sigmoid(i), _ops.tanh(g)))
        return _ops.mul(_ops.sigmoid(o), _ops.tanh(c)), c


class GRUCell(RNNCellBase):
    """One step of `GRU`."""

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self._check(input, hx)
        h = self._zeros(input) if hx is None else hx
        from_input, from_state = self._gates(input, h)
        (r, z, n), (hr, hz, hn) = _ops.chunk(from_input, 3, -1), _ops.chunk(from_state, 3, -1)
        r, z = _ops.sigmoid(_ops.add(r, hr)), _ops.sigmoid(_ops.add(z, hz))
        n = _ops.tanh(_ops.add(n, _ops.mul(r, hn)))
        return _ops.add(n, _ops.mul(z, _ops.sub(h, n)))
