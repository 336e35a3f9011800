"""Interpreters and transformers of plait.fx, and patterns that are replaced."""

# ruff: noqa: PLW0108 (lambdas are what is traced, not what they call)

import plait
import plait.nn.functional as F
import pytest
from fx_cases import Block, lines, small
from plait import fx, nn
from plait.fx.passes.utils.matcher_utils import SubgraphMatcher
from plait.fx.proxy import GraphAppendingTracer
from plait.fx.subgraph_rewriter import replace_pattern_with_filters


def test_interpreters():
    module = fx.symbolic_trace(Block().eval())
    x = plait.randn(2, 4)
    assert plait.equal(fx.Interpreter(module).run(x)["a"][1], module(x)["a"][1])
    assert fx.Interpreter(module).boxed_run([x])["x"][1] == 3

    class Sigmoids(fx.Interpreter):
        def call_function(self, target, args, kwargs):
            return super().call_function(plait.sigmoid if target is plait.relu else target, args, kwargs)

    traced = fx.symbolic_trace(lambda x: plait.relu(x) + 1)
    assert Sigmoids(traced).run(plait.zeros(1)).item() == 1.5
    relu = next(n for n in traced.graph.nodes if n.name == "relu")
    assert fx.Interpreter(traced).run(None, initial_env={relu: 3.0}) == 4.0
    with pytest.raises(RuntimeError, match="positional argument for parameter x"):
        fx.Interpreter(traced).run()
    with pytest.raises(TypeError) as caught:
        fx.Interpreter(traced).run("text")
    assert "While executing %relu" in caught.value.__notes__[0]


def test_transformers():
    class Negatives(fx.Transformer):
        def call_function(self, target, args, kwargs):
            made = super().call_function(target, args, kwargs)
            return -made if target is plait.relu else made

        def call_module(self, target, args, kwargs):
            return super().call_module(target, args, kwargs) * 2

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x, n=1):
            return plait.relu(self.lin(x)) + n

    module = fx.symbolic_trace(M())
    made = Negatives(module).transform()
    assert lines(made.code) == [
        "def forward(self, x, n = 1):",
        "lin = self.lin(x);  x = None",
        "mul = lin * 2;  lin = None",
        "relu = plait.relu(mul);  mul = None",
        "neg = -relu;  relu = None",
        "add = neg + n;  neg = n = None",
        "return add",
    ]
    x = plait.randn(3, 2)
    assert plait.equal(made(x), 1 - plait.relu(module.lin(x) * 2)) and made.lin.weight is module.lin.weight
    assert fx.Transformer(module).transform().code == module.code


def test_proxies_add_to_graphs_that_are_there():
    graph, x, y, z = small()
    tracer = GraphAppendingTracer(graph)
    with graph.inserting_before(z):
        made = fx.Proxy(y, tracer).tanh() * 2 + plait.exp(fx.Proxy(x))
    z.replace_input_with(y, made.node)
    assert [n.name for n in graph.nodes] == ["x", "relu", "tanh", "mul", "exp", "add_1", "add", "output"]
    a, b = fx.Graph(), fx.Graph()
    with pytest.raises(RuntimeError, match="multiple different tracers"):
        plait.add(fx.Proxy(a.placeholder("x")), fx.Proxy(b.placeholder("x")))


def test_patterns_are_replaced():
    def module(x, w1, w2):
        m1 = plait.cat([w1, w2]).sum()
        m2 = plait.cat([w1, w2]).sum()
        return x + plait.max(m1) + plait.max(m2)

    traced = fx.symbolic_trace(module)
    done = fx.replace_pattern(traced, lambda a, b: plait.cat([a, b]).sum(), lambda a, b: plait.stack([a, b]))
    assert lines(traced.code)[1:] == [
        "stack = plait.stack([w1, w2])",
        "max_1 = plait.max(stack);  stack = None",
        "add = x + max_1;  x = max_1 = None",
        "stack_1 = plait.stack([w1, w2]);  w1 = w2 = None",
        "max_2 = plait.max(stack_1);  stack_1 = None",
        "add_1 = add + max_2;  add = max_2 = None",
        "return add_1",
    ]
    assert [m.nodes_map[m.anchor].name for m in done] == ["sum_1", "sum_2"]
    traced.graph.lint()


def test_patterns_that_do_not_match():
    def count(function, pattern, **options):
        traced = fx.symbolic_trace(function)
        return len(replace_pattern_with_filters(traced, pattern, lambda x: x * 5, **options))

    assert count(lambda x: plait.relu(x + 1), lambda x: plait.relu(x + 1)) == 1
    assert count(lambda x: plait.relu(x + 2), lambda x: plait.relu(x + 1)) == 0
    assert count(lambda x: plait.relu(x + 2), lambda x: plait.relu(x + 1), ignore_literals=True) == 1
    assert count(lambda x: plait.softmax(x, dim=1), lambda x: plait.softmax(x, 1)) == 1  # the same call
    assert count(lambda x: plait.relu(x + 1) + (x + 1), lambda x: plait.relu(x + 1)) == 1

    def used(x):
        y = x + 1
        return plait.relu(y) + y  # the pattern's inside is used outside

    assert count(used, lambda x: plait.relu(x + 1)) == 0
    assert count(lambda x: plait.relu(x + 1), lambda x: plait.relu(x + 1), match_filters=[lambda *a: False]) == 0
    assert count(lambda x: plait.relu(plait.relu(plait.relu(x))), lambda x: plait.relu(plait.relu(x))) == 1
    with pytest.raises(AssertionError, match="the pattern has 1 arguments, the replacement 2"):
        fx.replace_pattern(fx.symbolic_trace(lambda x: plait.relu(x)), lambda x: plait.relu(x), lambda x, y: x + y)
    with pytest.raises(ValueError, match="dead code"):
        SubgraphMatcher(fx.symbolic_trace(lambda x: (plait.relu(x), x)[1]).graph)


def test_a_replacement_goes_behind_what_it_needs():
    def module(x, y):
        a = x + 1
        b = a * 3
        c = y.exp()
        d = c + 1
        return b + d

    def pattern(x, y):
        return x + 1, y + 1

    traced = fx.symbolic_trace(module)
    fx.replace_pattern(traced, pattern, lambda x, y: (x - y, y - x))
    traced.graph.lint()
    x, y = plait.tensor([2.0]), plait.tensor([0.0])
    assert traced(x, y).item() == (2.0 - 1.0) * 3 + (1.0 - 2.0)


def test_a_replacement_brings_its_modules():
    class New(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Linear(2, 2)

        def forward(self, x):
            return self.scale(x)

    traced = fx.symbolic_trace(lambda x: plait.relu(x) + 1)
    new = fx.symbolic_trace(New())
    fx.replace_pattern(traced, lambda x: plait.relu(x), new)
    x = plait.randn(1, 2)
    assert plait.equal(traced(x), new(x) + 1) and traced.scale is not new.scale


def test_convolutions_take_batch_norms_in():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)

        def forward(self, x):
            return F.relu(self.bn(self.conv(x)))

    module = M()
    module(plait.randn(4, 2, 6, 6))
    traced = fx.symbolic_trace(module.eval())
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op == "call_module" and isinstance(modules[node.target], nn.BatchNorm2d):
            before = node.args[0]
            fused = nn.utils.fuse_conv_bn_eval(modules[before.target], modules[node.target])
            setattr(traced, before.target, fused)
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.recompile()
    traced.delete_all_unused_submodules()
    x = plait.randn(1, 2, 6, 6)
    assert [n for n, _ in traced.named_children()] == ["conv"]
    assert plait.allclose(traced(x), module(x), atol=1e-5)
