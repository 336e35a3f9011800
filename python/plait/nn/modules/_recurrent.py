"""One recurrent layer in one direction, on a batch of equal lengths or on packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plait import _ops
from plait._tensor import Tensor

Weights: TypeAlias = dict[str, Any]
States: TypeAlias = list[Tensor]
# From inputs [T, B, ...] and first states to outputs and last states.
Run: TypeAlias = Callable[[Tensor, list[Any]], tuple[Tensor, States]]


def run_lstm(
    x: Tensor, first: list[Tensor | None], w: Weights, reverse: bool, sizes: list[int] | None, _relu: bool
) -> tuple[Tensor, States]:
    """Returns the outputs of a layer of long short-term memory, and its last state and cell."""

    def run(part: Tensor, states: list[Any]) -> tuple[Tensor, States]:
        out, h, c = _ops.lstm_layer(part, *states, **_names(w), reverse=reverse)
        return out, [h, c]

    def step(gates: Tensor, states: States) -> States:
        h, c = states
        i, f, g, o = _ops.chunk(_ops.add(gates, _ops.linear(h, w["weight_hh"], w.get("bias_hh"))), 4, -1)
        c = _ops.add(_ops.mul(_ops.sigmoid(f), c), _ops.mul(_ops.sigmoid(i), _ops.tanh(g)))
        return [_ops.linear(_ops.mul(_ops.sigmoid(o), _ops.tanh(c)), w["weight_hr"]), c]

    hidden = w["weight_hh"].shape[0] // 4
    if "weight_hr" in w:
        return _all(x, first, [w["weight_hr"].shape[0], hidden], sizes, reverse, _stepping(step, w, reverse))
    return run(x, first) if sizes is None else _all(x, first, [hidden, hidden], sizes, reverse, run)


def run_gru(
    x: Tensor, first: list[Tensor | None], w: Weights, reverse: bool, sizes: list[int] | None, _relu: bool
) -> tuple[Tensor, States]:
    """Returns the outputs of a layer of gated recurrent units, and its last state."""

    def run(part: Tensor, states: list[Any]) -> tuple[Tensor, States]:
        out, h = _ops.gru_layer(part, *states, **_names(w), reverse=reverse)
        state = part if states[0] is None else states[0]
        if state.dtype is not out.dtype and out.device.type == "cpu":
            # There autocast leaves the state as it is, as in PyTorch.
            out, h = _ops.to(out, dtype=state.dtype), _ops.to(h, dtype=state.dtype)
        return out, [h]

    return run(x, first) if sizes is None else _all(x, first, [w["weight_hh"].shape[1]], sizes, reverse, run)


def run_rnn(
    x: Tensor, first: list[Tensor | None], w: Weights, reverse: bool, sizes: list[int] | None, relu: bool
) -> tuple[Tensor, States]:
    """Returns the outputs of a simple recurrent layer, and its last state."""
    activation = _ops.relu if relu else _ops.tanh

    def step(gates: Tensor, states: States) -> States:
        return [activation(_ops.add(gates, _ops.linear(states[0], w["weight_hh"], w.get("bias_hh"))))]

    return _all(x, first, [w["weight_hh"].shape[1]], sizes, reverse, _stepping(step, w, reverse))


def _names(w: Weights) -> Weights:
    """Returns the weights under the names of the engine."""
    return {"w_ih": w["weight_ih"], "w_hh": w["weight_hh"], "b_ih": w.get("bias_ih"), "b_hh": w.get("bias_hh")}


def _stepping(step: Callable[[Tensor, States], States], w: Weights, reverse: bool) -> Run:
    """Returns what runs a layer step by step."""

    def run(part: Tensor, states: list[Any]) -> tuple[Tensor, States]:
        if not part.shape[0]:
            raise RuntimeError(f"rnn: got a sequence without steps, of shape {list(part.shape)}")
        gates = _ops.unbind(_ops.linear(part, w["weight_ih"], w.get("bias_ih")), 0)
        outs = []
        for g in reversed(gates) if reverse else gates:
            states = step(g, states)
            outs.append(states[0])
        return _ops.stack(outs[::-1] if reverse else outs, 0), states

    return run


def _all(
    x: Tensor, first: list[Tensor | None], widths: list[int], sizes: list[int] | None, reverse: bool, run: Run
) -> tuple[Tensor, States]:
    """Runs on [T, B, ...], or on packed data, whose steps have as many sequences as sizes says."""
    batch = x.shape[1] if sizes is None else sizes[0]
    states = [
        _ops.zeros(batch, n, dtype=x.dtype, device=x.device) if s is None else s
        for s, n in zip(first, widths, strict=True)
    ]
    if sizes is None:
        return run(x, states)
    return _backward(x, states, sizes, run) if reverse else _forward(x, states, sizes, run)


def _segments(x: Tensor, sizes: list[int]) -> list[Tensor]:
    """Returns packed data as tensors [t, n, ...], each of steps with equally many sequences."""
    counts: list[list[int]] = []
    for n in sizes:
        if counts and counts[-1][1] == n:
            counts[-1][0] += 1
        else:
            counts.append([1, n])
    parts = _ops.split_with_sizes(x, [t * n for t, n in counts], 0)
    return [_ops.reshape(p, (t, n, *x.shape[1:])) for p, (t, n) in zip(parts, counts, strict=True)]


def _flat(outs: list[Tensor]) -> Tensor:
    return _ops.cat([_ops.flatten(o, 0, 1) for o in outs], 0)


def _forward(x: Tensor, states: States, sizes: list[int], run: Run) -> tuple[Tensor, States]:
    """Runs packed sequences from their first steps; the longest stand first, so that those that end stand last."""
    done: list[list[Tensor]] = [[] for _ in states]
    outs = []
    for part in _segments(x, sizes):
        n = part.shape[1]
        fewer = states[0].shape[0] - n
        if fewer:
            for kept, s in zip(done, states, strict=True):
                kept.append(_ops.narrow(s, 0, n, fewer))
            states = [_ops.narrow(s, 0, 0, n) for s in states]
        out, states = run(part, states)
        outs.append(out)
    ends = zip(states, done, strict=True)
    last = [_ops.cat([s, *reversed(kept)], 0) if kept else s for s, kept in ends]
    return _flat(outs), last


def _backward(x: Tensor, begin: States, sizes: list[int], run: Run) -> tuple[Tensor, States]:
    """Runs packed sequences from their last steps: the longest begin, and shorter ones join them."""
    states = [_ops.narrow(s, 0, 0, sizes[-1]) for s in begin]
    outs = []
    for part in reversed(_segments(x, sizes)):
        more = part.shape[1] - states[0].shape[0]
        if more:
            joined = zip(states, begin, strict=True)
            states = [_ops.cat([s, _ops.narrow(b, 0, s.shape[0], more)], 0) for s, b in joined]
        out, states = run(part, states)
        outs.append(out)
    return _flat(outs[::-1]), states
