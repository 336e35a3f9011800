"""plait.fx: graphs of modules, obtained from PyTorch 2.15 where they are written out; changes; copies; training."""

# ruff: noqa: PLW0108 (lambdas are what is traced, not what they call)

import copy
import gc
import inspect
import linecache
import math
import operator
import pickle
import subprocess
import sys
import threading
from types import FunctionType

import plait
import plait.nn.functional as F
import pytest
from plait import fx, nn
from plait._engine import overriding
from plait.fx.passes.graph_manipulation import replace_target_nodes_with
from plait.fx.passes.shape_prop import ShapeProp
from plait.fx.passes.split_module import split_module
from plait.fx.passes.utils.matcher_utils import SubgraphMatcher
from plait.fx.proxy import GraphAppendingTracer, TraceError
from plait.fx.subgraph_rewriter import replace_pattern_with_filters


def doubled(x):
    return x * 2 if x.sum() > 0 else x


def bounded(x, low=0.0):
    return x.clamp(low, 1.0)


fx.wrap("doubled")
fx.wrap("len")
fx.wrap(bounded)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.p = nn.Parameter(plait.ones(4))
        self.register_buffer("b", plait.arange(4.0))
        self.seq = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x, y=3, *, k=None):
        a = self.lin(x) + self.p
        a = self.seq(a) * self.p
        c = F.relu(a)
        d = plait.relu(c)
        e = plait.cat([c, d], dim=1)
        f = e.view(e.size(0), -1)
        g = self.b[f.argmax(-1)] + 2 - x.shape[0]
        h = F.dropout(f, 0.3, self.training)
        return {"a": (g, -h), "x": [x[:, 1:, None], y, None]}


def lines(code):
    return [line.strip() for line in code.splitlines() if line.strip()]


def code_of(function):
    found = lines(fx.symbolic_trace(function).code)
    return found[found.index("def forward(self, x):") + 1 :]


# --- tracing ---


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
sparse_coo_tensor sparse_csr_tensor summary tensor vmap
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
    assert 'plait.fx._symbolic_trace.wrap("test_fx_doubled")' in traced.code
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
    with pytest.raises(NotImplementedError, match="container"):
        fx.symbolic_trace(choose, concrete_args={"d": {"a": fx.PH}})
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
    assert "test_fx.py" in next(n for n in graph.nodes if n.name == "add").stack_trace
    readable = fx.GraphModule(tracer.root, graph).print_readable(print_output=False)
    assert "# " in readable and "c = F.relu(a)" in readable


# --- graphs ---


def small():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(plait.relu, (x,))
    z = graph.call_method("add", (y, 1))
    graph.output(z)
    return graph, x, y, z


def test_graphs_made_by_hand(capsys):
    graph, x, y, z = small()
    assert [n.name for n in graph.nodes] == ["x", "relu", "add", "output"] and len(graph.nodes) == 4
    assert list(x.users) == [y] and y.all_input_nodes == [x] and z.prev is y and y.next is z and y < z and z >= y
    assert [n.name for n in reversed(graph.nodes)] == ["output", "add", "relu", "x"]
    assert graph.output_node().args == (z,)
    assert graph.find_nodes(op="call_function", target=plait.relu) == [y] and graph.find_nodes(op="placeholder") == [x]
    with graph.inserting_before(y):
        first = graph.call_function(plait.tanh, (x,))
    with graph.inserting_after(y):  # as PyTorch does: each right behind it
        graph.call_function(plait.sin, (y,))
        graph.call_function(plait.cos, (y,))
    y.replace_input_with(x, first)
    assert [n.name for n in graph.nodes] == ["x", "tanh", "relu", "cos", "sin", "add", "output"]
    assert list(x.users) == [first]
    module = fx.GraphModule({}, graph)
    assert module(plait.tensor([0.5])).item() == pytest.approx(math.tanh(0.5) + 1)
    assert graph.eliminate_dead_code() and not graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "tanh", "relu", "add", "output"]
    graph.print_tabular()
    assert capsys.readouterr().out.splitlines()[2].split() == ["placeholder", "x", "x", "()", "{}"]
    z.update_arg(1, 2)
    z.update_kwarg("alpha", 3)
    assert z.args == (y, 2) and z.kwargs == {"alpha": 3}
    z.insert_arg(0, first)
    assert z.args == (first, y, 2) and z in first.users
    z.args, z.kwargs = (first,), {}
    assert z not in y.users
    graph.erase_node(y)
    graph.lint()


def test_graphs_that_are_wrong():
    graph, x, _, z = small()
    with pytest.raises(RuntimeError, match="still had 1 users"):
        graph.erase_node(x)
    x.prepend(z)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()
    other = fx.Graph()
    with pytest.raises(RuntimeError, match="another graph"):
        other.call_function(plait.relu, (x,))
    with pytest.raises(ValueError, match="must be a callable"):
        other.create_node("call_function", "relu")
    with pytest.raises(ValueError, match="must be a string"):
        other.create_node("call_method", plait.relu)
    with pytest.raises(AssertionError, match="op must be one of"):
        other.create_node("call", "x")
    with pytest.raises(AssertionError, match="not in the graph"):
        other.inserting_before(x)
    made = other.placeholder("x")
    made = other.call_function(plait.stack, ([made, made],))
    with pytest.raises(NotImplementedError, match="does not support mutation"):
        made.args[0].append(1)
    with pytest.raises(NotImplementedError, match="does not support mutation"):
        made.kwargs["dim"] = 1
    with pytest.raises(RuntimeError, match="does not have"):
        other.get_attr("w")
        fx.GraphModule({}, other)
    module = fx.symbolic_trace(Block())
    with module.graph.inserting_before(), pytest.warns(UserWarning, match="no module"):
        module.graph.call_module("nowhere")
    with pytest.raises(RuntimeError, match="nonexistent"):
        module.graph.lint()
    names = fx.Graph()
    wanted = ["relu", "relu", "relu_1", "if", "sum", "a.b.C", "0", "SomeName"]
    assert [names.placeholder(n).name for n in wanted] == [
        "relu", "relu_1", "relu_2", "if_1", "sum_1", "a_b_c", "_0", "some_name",
    ]  # fmt: skip


def test_dead_code_that_does_something_stays():
    def changes(x):
        y = x.clone()
        y.mul_(2)
        plait.relu_(y)
        F.relu(y, inplace=True)
        plait.exp(x)
        plait._assert(x.shape[0] == 2, "two")
        kept(x)
        return y

    traced = fx.symbolic_trace(changes)
    traced.graph.eliminate_dead_code()
    assert [n.name for n in traced.graph.nodes] == [
        "x", "clone", "mul_", "relu_", "relu", "getattr_1", "getitem", "eq", "_assert", "kept", "output",
    ]  # fmt: skip
    traced.recompile()
    assert traced(plait.tensor([-1.0, 2.0])).tolist() == [0.0, 4.0]


@fx.has_side_effect
def kept(x):
    """Does something else."""


fx.wrap(kept)


def test_copies_of_graphs():
    graph, x, y, _ = small()
    y.meta["note"] = 1
    made = copy.deepcopy(graph)
    assert str(made) == str(graph) and [n.meta for n in made.nodes][1] == {"note": 1}
    assert not {*made.nodes} & {*graph.nodes}
    outer = fx.Graph()
    a = outer.placeholder("a")
    result = outer.graph_copy(graph, {x: a})
    outer.output(result)
    assert str(outer).splitlines()[-1] == "    return add" and fx.GraphModule({}, outer)(plait.ones(1)).item() == 2.0
    again = pickle.loads(pickle.dumps(graph))
    assert str(again) == str(graph)


# --- modules ---


def test_graph_modules_are_copied_pickled_and_saved(tmp_path):
    module = fx.symbolic_trace(Block().eval())
    module.extra = "kept"
    x = plait.randn(2, 4)
    want = module(x)["a"][1]
    for made in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert plait.equal(made(x)["a"][1], want) and made.code == module.code and type(made).__name__ == "Block"
        assert made.graph is not module.graph and made.graph.owning_module is made and made.extra == "kept"
        assert [n for n, _ in made.named_parameters()] == [n for n, _ in module.named_parameters()]
        assert made.lin.weight is not module.lin.weight and type(made) is not type(module)
        made.graph.eliminate_dead_code()
        made.recompile()
    assert set(module.state_dict()) == set(Block().state_dict())
    plait.save(module.state_dict(), tmp_path / "state")
    module.load_state_dict(plait.load(tmp_path / "state"))
    shallow = copy.copy(module)
    assert shallow.lin is module.lin
    with pytest.raises(AssertionError, match="want a Graph"):
        module.graph = 3


def test_graph_modules_train():
    def losses(module):
        optimizer = plait.optim.SGD(module.parameters(), lr=0.001)
        out = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = (module(x)["a"][1] ** 2).sum()
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        return out

    x = plait.randn(3, 4)
    module = Block().eval()
    traced = copy.deepcopy(fx.symbolic_trace(module))
    want = losses(module)
    assert losses(traced) == want and want[-1] < want[0]
    assert plait.equal(traced.p.grad, module.p.grad)


def test_graph_modules_are_modules_like_others(tmp_path):
    module = fx.symbolic_trace(Block().eval())
    x = plait.randn(2, 4)
    want = module(x)["a"][1]
    replicated = plait.DataParallel(module, ["cpu:0"])
    assert plait.equal(replicated(x)["a"][1], want)
    called = plait.func.functional_call(module, {n: p * 0 for n, p in module.named_parameters()}, (x,))
    assert called["a"][1].abs().sum() == 0
    plait.save(module, tmp_path / "module")
    assert plait.equal(plait.load(tmp_path / "module", weights_only=False)(x)["a"][1], want)
    assert module.double()(x.double())["a"][1].dtype is plait.float64


def test_code_that_is_replaced_leaves_nothing_behind():
    module = fx.symbolic_trace(lambda x: x + 1)
    gc.collect()
    before = len(linecache.cache)
    for _ in range(10):
        module.recompile()
    gc.collect()
    assert len(linecache.cache) <= before


def test_modules_below_a_graph_module(capsys):
    module = fx.symbolic_trace(Block())
    assert module.add_submodule("new.part", nn.ReLU()) and module.new.part is not None
    assert not module.add_submodule("p.part", nn.ReLU())
    assert module.delete_submodule("new.part") and not module.delete_submodule("new.part")
    module.add_submodule("unused", nn.Linear(2, 2))
    module.delete_all_unused_submodules()
    assert [n for n, _ in module.named_modules()] == ["", "lin", "seq", "seq.0", "seq.1"]
    text = module.print_readable()
    assert capsys.readouterr().out == text + "\n"
    assert text.splitlines()[:3] == [
        "class Block(plait.nn.Module):",
        "    def forward(self, x, y = 3, k = None):",
        "        # No stacktrace found for following nodes",
    ]


def test_an_error_in_generated_code_shows_the_line():
    traced = fx.symbolic_trace(lambda x: x.reshape(7))
    with pytest.raises(ValueError, match="reshape") as caught:
        traced(plait.ones(2))
    assert any("reshape = x.reshape(7)" in str(entry) for entry in caught.traceback)


def test_names_of_programs_that_import_torch(tmp_path):
    """Code has the program's names, and what one kind of program pickles the other reads."""
    script, path = tmp_path / "script.py", tmp_path / "module"
    script.write_text(
        f"""
import pickle, torch
from torch import nn
from torch.fx import symbolic_trace
from torch.fx.graph_module import GraphModule

net = nn.Sequential(nn.Linear(2, 2))
traced = symbolic_trace(lambda x: torch.relu(x).to(torch.float64))
print(traced.code)
pickle.dump(symbolic_trace(net), open({str(path)!r}, "wb"))
assert isinstance(traced, GraphModule) and traced(torch.ones(1)).dtype == torch.float64
"""
    )
    done = subprocess.run([sys.executable, "-m", "plait.torch", script], check=True, capture_output=True, text=True)
    assert lines(done.stdout)[1:] == [
        "relu = torch.relu(x);  x = None",
        "to = relu.to(torch.float64);  relu = None",
        "return to",
    ]
    with path.open("rb") as file:
        made = pickle.load(file)
    assert lines(made.code)[1] == "input_1 = input" and made(plait.ones(1, 2)).shape == (1, 2)


def test_graphs_name_ranges_of_profiles():
    class Ranges(fx.Tracer):
        def trace(self, root, concrete_args=None):
            with pytest.MonkeyPatch.context() as patch:
                enter, end = plait.ops.profiler._record_function_enter, plait.ops.profiler._record_function_exit
                made = {}

                def begin(r):
                    made[r] = self.create_proxy("call_function", enter, (r.name,), {})

                patch.setattr(plait.profiler.record_function, "__enter__", begin)
                patch.setattr(plait.profiler.record_function, "__exit__", lambda r, *_: end(made[r]))
                return super().trace(root, concrete_args)

    def named(x):
        with plait.autograd.profiler.record_function("part"):
            return plait.relu(x)

    graph = Ranges().trace(named)
    graph.owning_module = fx.GraphModule({}, graph)
    graph.eliminate_dead_code()
    with plait.autograd.profiler.profile() as found:
        fx.GraphModule({}, graph)(plait.ones(2))
    assert "part" in {e.key for e in found.key_averages()} and "part" in str(found)


# --- running and transforming ---


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


# --- passes ---


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


# --- proxies ---


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
