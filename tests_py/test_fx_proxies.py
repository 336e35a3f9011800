"""Proxies of plait.fx: buffers changed in place, and when functions look for them."""

import gc

import plait
import plait.nn.functional as F
import pytest
from plait import fx, nn
from plait._engine import overriding


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", plait.zeros(3))
        self.register_buffer("last", plait.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        total = self.total
        total += x
        total.mul_(2)
        self.last.copy_(x)
        self.last.clamp_(x - 1, x + 1)
        return total == x


def test_buffers_that_are_changed_in_place_change_where_code_that_is_dead_is_removed():
    module, traced = Counter(), fx.symbolic_trace(Counter())
    traced.graph.eliminate_dead_code()
    traced.recompile()
    for x in (plait.tensor([1.0, -2.0, 3.0]), plait.tensor([4.0, 0.0, 2.0])):
        assert module(x).tolist() == traced(x).tolist()
        assert module.total.tolist() == traced.total.tolist()
        assert module.last.tolist() == traced.last.tolist() == x.tolist()


def test_functions_look_for_proxies_only_while_there_are_any():
    kept = []

    def traced(x):
        kept.append(x)
        return F.relu(x)

    def raises(x):
        raise ArithmeticError

    def seen():
        return any(issubclass(c, fx.Proxy) for c in overriding.OVERRIDING)

    gc.collect()  # the errors of tests before
    with pytest.raises(ArithmeticError):
        fx.symbolic_trace(raises)
    made = fx.symbolic_trace(traced)
    assert seen()
    kept.clear()
    made.recompile()
    assert not seen()
