"""Graphs of plait.fx: made by hand, changed, copied."""

import copy
import math
import pickle

import plait
import plait.nn.functional as F
import pytest
from fx_cases import Block, small
from plait import fx


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
