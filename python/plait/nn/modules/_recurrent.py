"""One recurrent layer in one direction, on a batch of equal lengths or on packed sequences."""

from __future__ import annotations

from typing import Any

from plait import _ops
from plait._tensor import Tensor

Weights = dict[str, Any]


def run_lstm(
    x: Tensor, first: list[Tensor | None], w: Weights, reverse: bool, sizes: list[int] | None, _relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the outputs of a layer of long short-term memory, and its last state and cell."""
    if "weight_hr" not in w and (sizes is None or sizes[0] == sizes[-1]):
        out, h, c = _ops.lstm_layer(_unpack(x, sizes), *first, **_names(w), reverse=reverse)
        return _pack(out, sizes), h, c

    def step(gates: Tensor, states: list[Tensor]) -> list[Tensor]:
        h, c = states
        i, f, g, o = _ops.chunk(_ops.add(gates, _ops.linear(h, w["weight_hh"], w.get("bias_hh"))), 4, -1)
        c = _ops.add(_ops.mul(_ops.sigmoid(f), c), _ops.mul(_ops.sigmoid(i), _ops.tanh(g)))
        h = _ops.mul(_ops.sigmoid(o), _ops.tanh(c))
        return [_ops.linear(h, w["weight_hr"]) if "weight_hr" in w else h, c]

    hidden = w["weight_hh"].shape[0] // 4
    widths = [w["weight_hr"].shape[0] if "weight_hr" in w else hidden, hidden]
    out, (h, c) = _loop(x, first, widths, w, reverse, sizes, step)
    return out, h, c


def run_gru(
    x: Tensor, first: list[Tensor | None], w: Weights, reverse: bool, sizes: list[int] | None, _relu: bool
) -> tuple[Tensor, Tensor]:
    """Returns the outputs of a layer of gated recurrent units, and its last state."""
    if sizes is None or sizes[0] == sizes[-1]:
        out, h = _ops.gru_layer(_unpack(x, sizes), *first, **_names(w), reverse=reverse)
        return _pack(out, sizes), h

    def step(gates: Tensor, states: list[Tensor]) -> list[Tensor]:
        h = states[0]
        r, z, n = _ops.chunk(gates, 3, -1)
        hr, hz, hn = _ops.chunk(_ops.linear(h, w["weight_hh"], w.get("bias_hh")), 3, -1)
        r, z = _ops.sigmoid(_ops.add(r, hr)), _ops.sigmoid(_ops.add(z, hz))
        n = _ops.tanh(_ops.add(n, _ops.mul(r, hn)))
        return [_ops.add(n, _ops.mul(z, _ops.sub(h, n)))]

    out, (h,) = _loop(x, first, [w["weight_hh"].shape[1]], w, reverse, sizes, step)
    return out, h


def run_rnn(
    x: Tensor, first: list[Tensor | None], w: Weights, reverse: bool, sizes: list[int] | None, relu: bool
) -> tuple[Tensor, Tensor]:
    """Returns the outputs of a simple recurrent layer, and its last state."""
    activation = _ops.relu if relu else _ops.tanh

    def step(gates: Tensor, states: list[Tensor]) -> list[Tensor]:
        return [activation(_ops.add(gates, _ops.linear(states[0], w["weight_hh"], w.get("bias_hh"))))]

    out, (h,) = _loop(x, first, [w["weight_hh"].shape[1]], w, reverse, sizes, step)
    return out, h


def _names(w: Weights) -> Weights:
    """Returns the weights under the names of the engine."""
    return {"w_ih": w["weight_ih"], "w_hh": w["weight_hh"], "b_ih": w.get("bias_ih"), "b_hh": w.get("bias_hh")}


def _unpack(x: Tensor, sizes: list[int] | None) -> Tensor:
    """Returns packed sequences of equal lengths as [T, B, ...]."""
    return x if sizes is None else _ops.reshape(x, (len(sizes), sizes[0], *x.shape[1:]))


def _pack(x: Tensor, sizes: list[int] | None) -> Tensor:
    return x if sizes is None else _ops.reshape(x, (-1, *x.shape[2:]))


def _loop(
    x: Tensor,
    first: list[Tensor | None],
    widths: list[int],
    w: Weights,
    reverse: bool,
    sizes: list[int] | None,
    step: Any,
) -> tuple[Tensor, list[Tensor]]:
    """Runs a layer step by step. A step of packed sequences has those that are long enough, which stand first."""
    gates = _ops.linear(x, w["weight_ih"], w.get("bias_ih"))
    counts = [x.shape[1]] * x.shape[0] if sizes is None else sizes
    if not counts:
        raise RuntimeError(f"rnn: got a sequence without steps, of shape {list(x.shape)}")
    batch = counts[0]
    parts = _ops.unbind(gates, 0) if sizes is None else _ops.split_with_sizes(gates, sizes, 0)
    begin = [
        _ops.zeros(batch, n, dtype=gates.dtype, device=gates.device) if s is None else s
        for s, n in zip(first, widths, strict=True)
    ]
    outs: list[Tensor] = []
    if reverse:
        states = [_ops.narrow(s, 0, 0, counts[-1]) for s in begin]
        for t in reversed(range(len(counts))):
            more = counts[t] - states[0].shape[0]
            if more:  # sequences that end here begin
                states = [
                    _ops.cat([s, _ops.narrow(b, 0, s.shape[0], more)], 0) for s, b in zip(states, begin, strict=True)
                ]
            states = step(parts[t], states)
            outs.append(states[0])
        outs.reverse()
        last = states
    else:
        states = begin
        done: list[list[Tensor]] = [[] for _ in states]
        for t, n in enumerate(counts):
            fewer = states[0].shape[0] - n
            if fewer:  # sequences that ended before
                for kept, s in zip(done, states, strict=True):
                    kept.append(_ops.narrow(s, 0, n, fewer))
                states = [_ops.narrow(s, 0, 0, n) for s in states]
            states = step(parts[t], states)
            outs.append(states[0])
        last = [_ops.cat([s, *reversed(kept)], 0) if kept else s for s, kept in zip(states, done, strict=True)]
    return (_ops.stack(outs, 0) if sizes is None else _ops.cat(outs, 0)), last
