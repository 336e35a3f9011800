"""Passes of plait.fx: shapes, modules divided, targets replaced."""

import math

import plait
import pytest
from fx_cases import Block, lines
from plait import fx, nn
from plait.fx.passes.graph_manipulation import replace_target_nodes_with
from plait.fx.passes.shape_prop import ShapeProp
from plait.fx.passes.split_module import split_module


def test_shapes_are_found():
    traced = fx.symbolic_trace(Block().eval())
    ShapeProp(traced).propagate(plait.randn(2, 4))
    facts = {n.name: n.meta.get("tensor_meta") for n in traced.graph.nodes}
    assert facts["cat"].shape == (2, 8) and facts["cat"].dtype is plait.float32 and facts["cat"].requires_grad
    assert facts["argmax"].dtype is plait.int64 and facts["size"] is None
    assert next(n for n in traced.graph.nodes if n.name == "size").meta["type"] is int
    assert "# cat: plait.float32[2, 8]" in traced.print_readable(print_output=False)


def test_modules_are_divided():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            self.p = nn.Parameter(plait.ones(2))
            self.seq = nn.Sequential(nn.Linear(2, 2))

        def forward(self, x, y=2.0):
            a = self.a(x) + self.p
            b = self.b(a) * self.p
            c = self.seq(b) + a
            return c.relu() + y, c

    module, names = M(), {}
    traced = fx.symbolic_trace(module)
    part = {"a": 0, "add": 0, "b": 1, "mul": 1, "seq_0": 1, "add_1": 1, "relu": 3, "add_2": 3}
    divided = split_module(traced, module, lambda n: part[n.name], names)
    assert lines(divided.code) == [
        "def forward(self, x, y = 2.0):",
        "p = self.p",
        "submod_0 = self.submod_0(x, p);  x = None",
        "submod_1 = self.submod_1(submod_0, p);  submod_0 = p = None",
        "submod_3 = self.submod_3(submod_1, y);  y = None",
        "return (submod_3, submod_1)",
    ]
    assert names == {"submod_0.a": "a", "submod_1.b": "b", "submod_1.seq_0": "seq.0"}
    assert lines(divided.submod_3.code)[1:] == [
        "relu = add_1.relu();  add_1 = None",
        "add = relu + y;  relu = y = None",
        "return add",
    ]
    x = plait.randn(3, 2)
    assert all(plait.equal(a, b) for a, b in zip(divided(x), module(x), strict=True))
    assert divided.submod_0.a.weight is module.a.weight
    tuples = split_module(traced, module, lambda n: part[n.name], tuple_return=True, partition_affix="x")
    assert plait.equal(tuples(x)[0], module(x)[0]) and isinstance(tuples.submod_x_0(x, module.p), tuple)
    with pytest.raises(RuntimeError, match="cycle"):
        split_module(traced, module, lambda n: 0 if n.name in ("a", "add_2") else 1)


def test_targets_are_replaced():
    traced = fx.symbolic_trace(lambda x: plait.relu(x) + 1)
    replace_target_nodes_with(traced, "call_function", plait.relu, "call_function", plait.tanh)
    assert traced(plait.ones(1)).item() == pytest.approx(math.tanh(1) + 1)
