"""Graphs of plait.fx with containers as arguments; functions that change generated code; `fx.experimental`."""

import copy
import pickle

import plait
import pytest
from fx_cases import lines
from plait import fx, nn
from plait.fx import PH, _pytree
from plait.fx.experimental import optimization, proxy_tensor, symbolic_shapes
from plait.utils import _pytree as pytree


def of_parts(x, d, k=2):
    out = x * d["scale"] + d["pair"][0]
    if d["flag"]:
        out = out + d["pair"][1]
    for t in d["list"]:
        out = out - t
    return {"out": out, "k": (k, x)}


FORM = {"d": {"scale": PH, "pair": (PH, PH), "flag": True, "list": [PH, PH]}}


def arguments(x):
    return {"scale": x * 3, "pair": (x, x * 2), "flag": True, "list": [x, x]}


def test_parts_of_containers_are_placeholders():
    traced, x = fx.symbolic_trace(of_parts, concrete_args=FORM), plait.ones(2)
    assert lines(traced.code) == [
        "def forward(self, x, d, k = 2):",
        "x, d_1, d_2, d_3, d_4, d_5, d_6, k, = fx_pytree.tree_flatten_spec([x, d, k], self._in_spec)",
        "eq = d_4 == True;  d_4 = None",
        "_assert = plait._assert(eq, 'd has been specialized to have value True but got another value');"
        "  eq = _assert = None",
        "mul = x * d_1;  d_1 = None",
        "add = mul + d_2;  mul = d_2 = None",
        "add_1 = add + d_3;  add = d_3 = None",
        "sub = add_1 - d_5;  add_1 = d_5 = None",
        "sub_1 = sub - d_6;  sub = d_6 = None",
        "return pytree.tree_unflatten([sub_1, k, x], self._out_spec)",
    ]
    for made in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced)), fx.Transformer(traced).transform()):
        out = made(x, arguments(x), 5)
        assert list(out) == ["out", "k"] and out["out"].tolist() == [4.0, 4.0] and out["k"][0] == 5
    assert traced(x, arguments(x))["k"][0] == 2
    assert fx.Interpreter(traced).run(x, arguments(x), 5)["out"].tolist() == [4.0, 4.0]
    with pytest.raises(AssertionError, match="d has been specialized to have value True"):
        traced(x, {**arguments(x), "flag": False})
    with pytest.raises(IndexError):
        traced(x, {**arguments(x), "list": [x]})


def test_parts_of_containers_of_a_module():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(plait.ones(2))

        def forward(self, xs, y):
            return xs[0] * self.weight + xs[1] * 2

    x = plait.ones(2)
    traced = fx.symbolic_trace(Sums(), concrete_args={"xs": [PH, 3], "y": None})
    assert lines(traced.code)[:2] == [
        "def forward(self, xs, y):",
        "self, xs_1, xs_2, y_1, = fx_pytree.tree_flatten_spec([self, xs, y], self._in_spec)",
    ]
    traced([x, 3], None).sum().backward()
    assert traced([x, 3], None).tolist() == [7.0, 7.0] and traced.weight.grad.tolist() == [1.0, 1.0]
    with pytest.raises(AssertionError, match="xs has been specialized to have value 3"):
        traced([x, 4], None)
    both = fx.symbolic_trace(Sums(), concrete_args={"xs": (PH, PH)})
    assert [n.target for n in both.graph.nodes if n.op == "placeholder"] == ["xs_1", "xs_2", "y"]
    assert fx.Interpreter(both).run((x, x), 0).tolist() == both((x, x), 0).tolist() == [3.0, 3.0]


def test_trees_are_taken_apart_by_a_form():
    form = pytree.tree_structure({"a": 1, "b": (2, 3)})
    assert _pytree.tree_flatten_spec({"b": (5, 6, 7), "c": 0, "a": 4}, form) == [4, 5, 6]

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda parts, _: Pair(*parts))
    form = pytree.tree_structure([Pair(1, 2)])
    with pytest.raises(RuntimeError, match="Pair is not registered"):
        _pytree.tree_flatten_spec([Pair(3, 4)], form)
    _pytree.register_pytree_flatten_spec(Pair, lambda p, spec: [p.a, p.b])
    assert _pytree.tree_flatten_spec([Pair(3, 4)], form) == [3, 4]


def test_generated_lines_are_changed(capsys):
    module, x = fx.symbolic_trace(lambda x: plait.relu(x) + 1), plait.ones(1)

    def first(text):
        return lambda before: lambda body: [f"print({text!r})\n", *(before(body) if before else body)]

    module.graph.on_generate_code(first("outer"))
    module.recompile()
    assert lines(module.code)[1:3] == ["print('outer')", "relu = plait.relu(x);  x = None"]
    with module.graph.on_generate_code(first("inner")):
        module.recompile()
        assert module(x).item() == 2.0
    assert capsys.readouterr().out == "inner\nouter\n"
    copied = copy.deepcopy(module)
    module.recompile()
    module(x)
    assert capsys.readouterr().out == "outer\n"
    module.graph.on_generate_code(lambda before: None)
    module.recompile()
    module(x)
    assert not capsys.readouterr().out
    copied.recompile()
    copied(x)
    assert capsys.readouterr().out == "outer\n"  # a copy has its own


def test_convolutions_are_fused_and_dropout_goes():
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    )
    for _ in range(3):
        model(plait.randn(4, 2, 5, 5))
    model.eval()
    x = plait.randn(1, 2, 5, 5)
    fused = optimization.fuse(model)
    assert not [m for m in fused.modules() if isinstance(m, nn.BatchNorm2d)]
    assert plait.allclose(fused(x), model(x), atol=1e-5) and isinstance(model[1], nn.BatchNorm2d)
    without = optimization.remove_dropout(model)
    assert [n.target for n in without.graph.nodes if n.op == "call_module"] == ["0", "1", "3.0", "3.1"]
    without.train()
    assert plait.equal(without.eval()(x), model(x))


def test_sizes_are_numbers():
    t = plait.ones(2, 3)
    assert symbolic_shapes.guard_or_false(t.shape[0] == 2) and not symbolic_shapes.guard_or_true(t.shape[0] == 3)
    assert symbolic_shapes.statically_known_true(t.shape[1] > 1) and symbolic_shapes.definitely_false(t.shape[1] > 9)
    assert symbolic_shapes.sym_eq(t.shape, (2, 3)) and symbolic_shapes.hint_int(t.shape[1]) == 3
    assert symbolic_shapes.free_symbols(t) == symbolic_shapes.free_unbacked_symbols(t) == set()
    with pytest.raises(TypeError, match="two sizes"):
        symbolic_shapes.sym_eq(2, [2])
    with pytest.raises(NotImplementedError, match="no dispatch below functions"):
        proxy_tensor.make_fx(lambda x: x)
