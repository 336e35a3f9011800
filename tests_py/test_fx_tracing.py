"""Tracing by plait.fx: graphs and code, from PyTorch 2.15 where they are written out; control flow; arguments."""

# ruff: noqa: PLW0108 (lambdas are what is traced, not what they call)

import inspect
import math
import operator
import threading
from types import FunctionType

import plait
import plait.nn.functional as F
import pytest
from fx_cases import Block, code_of, lines
from plait import fx, nn
from plait.fx.proxy import TraceError


def doubled(x):
    return x * 2 if x.sum() > 0 else x


def bounded(x, low=0.0):
    return x.clamp(low, 1.0)


fx.wrap("doubled")
fx.wrap("len")
fx.wrap(bounded)


def test_the_graph_and_code_of_a_module():
    module = Block().eval()
    traced = fx.symbolic_trace(module)
    assert lines(traced.code) == [
        "def forward(self, x, y = 3, k = None):",
        "lin = self.lin(x)",
        "p = self.p",
        "add = lin + p;  lin = None",
        'seq_0 = getattr(self.seq, "0")(add);  add = None',
        'seq_1 = getattr(self.seq, "1")(seq_0);  seq_0 = None',
        "mul = seq_1 * p;  seq_1 = p = None",
        "relu = plait.nn.functional.relu(mul, inplace = False);  mul = None",
        "relu_1 = plait.relu(relu)",
        "cat = plait.cat([relu, relu_1], dim = 1);  relu = relu_1 = None",
        "size = cat.size(0)",
        "view = cat.view(size, -1);  cat = size = None",
        "argmax = view.argmax(-1)",
        "b = self.b",
        "getitem = b.__getitem__(argmax);  b = argmax = None",
        "add_1 = getitem + 2;  getitem = None",
        "getattr_1 = x.shape",
        "getitem_1 = getattr_1[0];  getattr_1 = None",
        "sub = add_1 - getitem_1;  add_1 = getitem_1 = None",
        "dropout = plait.nn.functional.dropout(view, p = 0.3, training = False, inplace = False);  view = None",
        "neg = -dropout;  dropout = None",
        "getitem_2 = x[(slice(None, None, None), slice(1, None, None), None)];  x = None",
        "return {'a': (sub, neg), 'x': [getitem_2, y, None]}",
    ]
    listing = str(traced.graph).splitlines()
    assert listing[:3] == [
        "graph():",
        "    %x : [num_users=3] = placeholder[target=x]",
        "    %y : [num_users=1] = placeholder[target=y](default=3)",
    ]
    assert listing[4] == "    %lin : [num_users=1] = call_module[target=lin](args = (%x,), kwargs = {})"
    assert listing[6] == "    %add : [num_users=1] = call_function[target=operator.add](args = (%lin, %p), kwargs = {})"
    targets = {n.name: n.target for n in traced.graph.nodes}
    assert targets["relu_1"] is plait.relu and targets["relu"] is F.relu and targets["add"] is operator.add
    x = plait.randn(2, 4)
    ours, theirs = traced(x, k=1), module(x, k=1)
    assert plait.equal(ours["a"][0], theirs["a"][0]) and plait.equal(ours["a"][1], theirs["a"][1])
    assert plait.equal(ours["x"][0], theirs["x"][0]) and ours["x"][1:] == [3, None]
    assert str(traced).startswith("Block(") and "print_readable" in str(traced)
    traced.graph.lint()


CALLS = {
    (lambda x: plait.add(plait.ones(2), x)): """
        _tensor_constant0 = self._tensor_constant0
        add = plait.add(_tensor_constant0, x);  _tensor_constant0 = x = None
        return add
    """,
    (lambda x: abs(2 - x) ** 2): """
        sub = 2 - x;  x = None
        abs_1 = _operator_abs(sub);  sub = None
        pow_1 = abs_1 ** 2;  abs_1 = None
        return pow_1
    """,
    (lambda x: plait.max(x, dim=1)[0]): """
        max_1 = plait.max(x, dim = 1);  x = None
        getitem = max_1[0];  max_1 = None
        return getitem
    """,
    (lambda x: plait.softmax(x, 1)): """
        softmax = plait.softmax(x, 1);  x = None
        return softmax
    """,
    (lambda x: plait.chunk(x, 2, dim=1)): """
        chunk = plait.chunk(x, 2, dim = 1);  x = None
        return chunk
    """,
    (lambda x: F.conv2d(x, x, None, 1, padding=0)): """
        conv2d = plait.conv2d(x, x, None, 1, padding = 0);  x = None
        return conv2d
    """,
    (lambda x: F.layer_norm(x, (4,))): """
        layer_norm = plait.nn.functional.layer_norm(x, (4,), weight = None, bias = None, eps = 1e-05);  x = None
        return layer_norm
    """,
    (lambda x: plait.linalg.norm(x, dim=-1)): """
        norm = plait.linalg.norm(x, dim = -1);  x = None
        return norm
    """,
    (lambda x: plait.fft.fft(x)): """
        fft = plait.fft.fft(x);  x = None
        return fft
    """,
    (lambda x: plait.stack((x, x), out=None)): """
        stack = plait.stack((x, x), out = None);  x = None
        return stack
    """,
    (lambda x: plait.full((x.shape[0], 2), 1.0)): """
        getattr_1 = x.shape;  x = None
        getitem = getattr_1[0];  getattr_1 = None
        full = plait.full((getitem, 2), 1.0);  getitem = None
        return full
    """,
    (lambda x: x.to(plait.float64)): """
        to = x.to(plait.float64);  x = None
        return to
    """,
    (lambda x: plait.einsum("ij,jk", x, x)): """
        einsum = plait.einsum('ij,jk', x, x);  x = None
        return einsum
    """,
    (lambda x: math.sqrt(x.shape[0])): """
        getattr_1 = x.shape;  x = None
        getitem = getattr_1[0];  getattr_1 = None
        sqrt = math_sqrt(getitem);  getitem = None
        return sqrt
    """,
    (lambda x: len(x)): """
        len_1 = len(x);  x = None
        return len_1
    """,
    (lambda x: (x == 1) & ~(x > 2)): """
        eq = x == 1
        gt = x > 2;  x = None
        invert = ~gt;  gt = None
        and_ = eq & invert;  eq = invert = None
        return and_
    """,
    (lambda x: (float("inf"), plait.device("cpu"), 1.5, "s", plait.strided)): """
        return (inf, device(type='cpu'), 1.5, 's', plait.strided)
    """,
}


@pytest.mark.parametrize(("function", "code"), CALLS.items())
def test_the_code_of_a_call(function, code):
    assert code_of(function) == lines(code)


# Functions of other things than tensors, and those that make tensors of data.
NOT_TRACED = """
as_tensor asarray can_cast from_dlpack from_numpy get_autocast_dtype is_tensor load manual_seed promote_types save
set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled
set_autocast_gpu_dtype set_autocast_gpu_enabled set_default_device set_default_dtype set_printoptions set_rng_state
sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor summary tensor vmap
"""


@pytest.mark.parametrize("owner", [plait, F, plait.special, plait.linalg, plait.fft])
def test_a_call_of_any_function_is_one_node(owner):
    """Whatever a function does with its arguments, it finds the proxy before anything else is noted."""
    names = [n for n, f in vars(owner).items() if n[0] != "_" and isinstance(f, FunctionType)]
    helpers = {"check_layout", "operand", "overridable", "store", "with_out"} - set(dir(plait))
    checked = 0
    for name in sorted({*names} - {*NOT_TRACED.split()} - helpers):
        function = getattr(owner, name)
        parameters = inspect.signature(function).parameters.values()
        count = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        if not count and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            continue
        for others in (False, True):
            nodes = list(fx.Tracer().trace(calling(function, count, others)).nodes)
            assert [n.op for n in nodes] == ["placeholder", "call_function", "output"], (name, nodes)
            assert nodes[1].target is function
        checked += 1
    assert checked > 20


def calling(function, count, others):
    return lambda x: function(x, *[x if others else 1] * (count - 1))


def test_wrapped_functions_are_nodes():
    traced = fx.symbolic_trace(lambda x: bounded(doubled(x), low=-1.0))
    assert 'plait.fx._symbolic_trace.wrap("test_fx_tracing_doubled")' in traced.code
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [doubled, bounded]
    x = plait.tensor([0.25, 2.0])
    assert traced(x).tolist() == [0.5, 1.0]
    again = fx.symbolic_trace(traced)
    assert [n.name for n in again.graph.nodes] == ["x", "doubled", "bounded", "output"]
    assert fx.symbolic_trace(lambda: doubled(plait.tensor([3.0])))().tolist() == [6.0]  # no traced value among the args
    assert doubled.__name__ == "doubled"  # nothing stays wrapped
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("doubled")
    with pytest.raises(RuntimeError, match="global function"):
        fx.wrap(3)


def test_control_flow_that_hangs_on_values_raises():
    for function in (
        lambda x: 1 if x > 0 else 2,
        lambda x: list(x),
        lambda x: 1 in x,
        lambda x: plait.cat([*x]),
    ):
        with pytest.raises(TraceError):
            fx.symbolic_trace(function)
    for function, message in ((lambda x: x.__len__(), "'len' is not supported"),):
        with pytest.raises(RuntimeError, match=message):
            fx.symbolic_trace(function)
    for function in (lambda x: int(x), lambda x: float(x), lambda x: range(x), lambda x: operator.setitem(x, 0, 1)):
        with pytest.raises(TypeError):
            fx.symbolic_trace(function)
    assert issubclass(TraceError, ValueError)
    a, b = fx.symbolic_trace(lambda x: [*reversed(unpacked(x))])(plait.tensor([1.0, 2.0]))
    assert (a.item(), b.item()) == (2.0, 1.0)
    assert not fx._symbolic_trace.is_fx_tracing()  # errors leave nothing behind
    assert nn.Linear(2, 2)(plait.ones(1, 2)).shape == (1, 2)


def unpacked(x):
    first, second = x
    return first, second


def test_arguments():
    def stars(a, *args, c=2, **kwargs):
        return a + args[0] * c + kwargs["z"]

    traced = fx.symbolic_trace(stars)
    assert lines(traced.code)[0] == "def forward(self, a, c = 2, *args, **kwargs):"
    assert traced(plait.tensor(1.0), 2.0, plait.tensor(3.0), z=1.0).item() == 8.0

    def choose(x, flag=True, d=None):
        return x + 1 if flag else x - 1

    yes = fx.symbolic_trace(choose, concrete_args={"flag": True})
    assert lines(yes.code)[:3] == [
        "def forward(self, x, flag_1 = True, d = None):",
        "eq = flag_1 == True;  flag_1 = None",
        "_assert = plait._assert(eq, 'flag has been specialized to have value True but got another value');"
        "  eq = _assert = None",
    ]
    assert yes(plait.ones(1)).item() == 2.0
    with pytest.raises(AssertionError, match="specialized"):
        yes(plait.ones(1), False)
    none = fx.symbolic_trace(choose, concrete_args={"flag": False, "d": None})
    with pytest.raises(AssertionError, match="specialized"):
        none(plait.ones(1), False, 3)
    assert none(plait.ones(1), False).item() == 0.0
    with pytest.raises(TypeError, match="written in Python"):
        fx.symbolic_trace(len)
    with pytest.raises(NotImplementedError, match="no code can be made"):
        fx.symbolic_trace(lambda x: x + object())


def test_annotations():
    def typed(x: plait.Tensor, n: int = 1) -> plait.Tensor:
        return x + n

    traced = fx.symbolic_trace(typed)
    assert lines(traced.code)[0] == "def forward(self, x : plait.Tensor, n : int = 1) -> plait.Tensor:"
    assert "%x : plait.Tensor [num_users=1]" in str(traced.graph)


def test_modules_that_are_leaves_or_not():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x)

    class Low(fx.Tracer):
        def is_leaf_module(self, m, name):
            return not isinstance(m, nn.ReLU) and super().is_leaf_module(m, name)

    class High(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, Inner)

    assert [n.target for n in fx.Tracer().trace(Outer()).nodes] == ["x", "inner.act", "output"]
    assert [n.target for n in High().trace(Outer()).nodes] == ["x", "inner", "output"]
    assert [n.op for n in Low().trace(Outer()).nodes] == ["placeholder", "call_function", "output"]
    stray = Inner()
    with pytest.raises(NameError, match="not installed as a submodule"):
        fx.symbolic_trace(lambda x: stray(x))
    p = nn.Parameter(plait.ones(1))
    with pytest.raises(NameError, match="not a member"):
        fx.symbolic_trace(lambda x: x + p)


def test_a_tracer_that_knows_shapes_of_parameters_and_one_that_stands_in_for_buffers():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(plait.ones(3))
            self.register_buffer("b", plait.ones(3))

        def forward(self, x):
            return x * self.w * 2 if self.w.shape[0] == 3 and self.w.dim() == 1 else x + self.b.sum()

    graph = fx.Tracer(param_shapes_constant=True).trace(M())
    assert [n.name for n in graph.nodes] == ["x", "w", "mul", "mul_1", "output"]
    with pytest.raises(TraceError):
        fx.symbolic_trace(M())

    class Buffers(fx.Tracer):
        proxy_buffer_attributes = True

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", plait.ones(3))

        def forward(self, x):
            return x + self.b.sum()

    assert [n.name for n in Buffers().trace(Sum()).nodes] == ["x", "b", "sum_1", "add", "output"]
    constant = fx.symbolic_trace(Sum())
    assert [n.target for n in constant.graph.nodes][:2] == ["x", "_tensor_constant0"]


def test_other_threads_run_modules_while_one_is_traced():
    layer, found, begin, end = nn.Linear(2, 2), [], threading.Event(), threading.Event()

    class Slow(nn.Module):
        def forward(self, x):
            begin.set()
            assert end.wait(60)
            return x + 1

    def other():
        assert begin.wait(60)
        found.append(layer(plait.ones(1, 2)).shape)
        end.set()

    thread = threading.Thread(target=other)
    thread.start()
    graph = fx.symbolic_trace(Slow()).graph
    thread.join()
    assert found == [(1, 2)] and len(graph.nodes) == 3


def test_where_nodes_were_traced():
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    graph = tracer.trace(Block())
    assert "fx_cases.py" in next(n for n in graph.nodes if n.name == "add").stack_trace
    readable = fx.GraphModule(tracer.root, graph).print_readable(print_output=False)
    assert "# " in readable and "c = F.relu(a)" in readable


METHODS = {
    "addcmul": lambda t, x: t.addcmul(x, 2.0, value=3), "addcmul_": lambda t, x: t.addcmul_(x, t),
    "addcdiv": lambda t, x: t.addcdiv(t, x), "addcdiv_": lambda t, x: t.addcdiv_(x, x),
    "dist": lambda t, x: t.dist(x, p=1),
    "repeat_interleave": lambda t, x: t.repeat_interleave(x, dim=0), "equal": lambda t, x: t.equal(x),
    "allclose": lambda t, x: t.allclose(x), "resize_as_": lambda t, x: t.resize_as_(x),
    "new_tensor": lambda t, x: t.new_tensor(x), "lerp": lambda t, x: t.lerp(x, 1), "where": lambda t, x: t.where(x, t),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_a_tensor_that_is_given_a_traced_value_is_one_node(name):
    t = plait.ones(4)
    nodes = [n for n in fx.Tracer().trace(lambda x: METHODS[name](t, x)).nodes if n.op.startswith("call")]
    assert [n.target if n.op == "call_method" else n.target.__name__ for n in nodes] == [name]


def test_lists_of_operands_are_arguments_of_their_own():
    class Products(nn.Module):
        def forward(self, a, b):
            return plait.einsum("ij,jk->ik", a, b) + plait.einsum("ij,jk->ik", [a, b])

    traced = fx.symbolic_trace(Products())
    nodes = [n for n in traced.graph.nodes if n.target is plait.einsum]
    assert [[str(a) for a in n.args] for n in nodes] == [["ij,jk->ik", "a", "b"]] * 2
    assert traced(plait.ones(2, 2), plait.ones(2, 2)).tolist() == [[4.0, 4.0], [4.0, 4.0]]
