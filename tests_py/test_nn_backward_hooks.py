"""Hooks around the backward of modules. The expectations are what PyTorch gives."""

import warnings
from collections import namedtuple

import plait
import pytest
from plait import nn
from plait.nn.modules import module as module_hooks


def leaf(*values):
    return plait.tensor(values, dtype=plait.float64, requires_grad=True)


def lists(values):
    return [None if v is None else v.tolist() for v in values]


class Two(nn.Module):
    def forward(self, x, y, *rest, **kwargs):
        return x * y, x + 1, 7


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(plait.full((1,), 3.0, dtype=plait.float64))

    def forward(self, x):
        return x * self.w


def watched(net):
    """Returns the list to which hooks of a module write what they are given."""
    seen = []
    net.register_full_backward_pre_hook(lambda m, go: seen.append(lists(go)))
    net.register_full_backward_hook(lambda m, gi, go: seen.append((lists(gi), lists(go))))
    return seen


def test_all_inputs_and_outputs():
    net = Two()
    seen = watched(net)
    x, y = leaf(2.0), leaf(5.0)
    a, b, rest = net(x, y)
    assert rest == 7
    (a + 3 * b).sum().backward()
    assert seen == [[[1.0], [3.0], None], ([[8.0], [2.0]], [[1.0], [3.0], None])]
    assert (x.grad.tolist(), y.grad.tolist()) == ([8.0], [2.0])


def test_an_output_without_gradient():
    net = Two()
    seen = watched(net)
    x, y = leaf(2.0), leaf(5.0)
    net(x, y)[1].sum().backward()
    assert seen == [[None, [1.0], None], ([[1.0], [0.0]], [None, [1.0], None])]


def test_inputs_that_need_no_gradient():
    net = Two()
    seen = watched(net)
    x = leaf(2.0)
    a, b, _ = net(x, plait.tensor([5.0], dtype=plait.float64), "text", None)
    (a + b).sum().backward()
    assert seen[1] == ([[6.0], [0.0], None, None], [[1.0], [1.0], None])
    seen.clear()
    a, b, _ = net(x, 5.0, None)
    (a + b).sum().backward()
    assert seen[1] == ([[6.0], None, None], [[1.0], [1.0], None])


def test_keyword_arguments_are_not_watched():
    net = Two()
    seen = watched(net)
    a, b, _ = net(leaf(2.0), y=leaf(3.0))
    (a + b).sum().backward()
    assert seen[1][0] == [[4.0]]


def test_no_input_needs_a_gradient():
    net = Scale()
    seen = watched(net)
    x = plait.tensor([5.0], dtype=plait.float64)
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        net(x).sum().backward()
    assert seen == [[[1.0]], ([None], [[1.0]])]
    net.register_full_backward_hook(lambda m, gi, go: (go[0],))
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="should always return None"):
        net(x).sum().backward()
    quiet = Scale()
    quiet.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet(x).sum().backward()
    assert quiet.w.grad.tolist() == [10.0]


def test_hooks_replace_gradients_of_several_inputs():
    net = Two()
    net.register_full_backward_pre_hook(lambda m, go: tuple(g if g is None else g * 2 for g in go))
    net.register_full_backward_hook(lambda m, gi, go: tuple(g * 10 for g in gi))
    seen = watched(net)
    x, y = leaf(2.0), leaf(5.0)
    a, b, _ = net(x, y)
    (a + 3 * b).sum().backward()
    assert seen[1] == ([[160.0], [40.0]], [[2.0], [6.0], None])
    assert (x.grad.tolist(), y.grad.tolist()) == ([160.0], [40.0])


def test_replacements_of_the_wrong_number():
    x, y = leaf(2.0), leaf(5.0)
    net = Two()
    net.register_full_backward_hook(lambda m, gi, go: (gi[0],))
    with pytest.raises(RuntimeError, match="got 1, but expected 2"):
        net(x, y)[0].backward()
    net = Two()
    net.register_full_backward_pre_hook(lambda m, go: (go[0],))
    with pytest.raises(RuntimeError, match="got 1, but expected 3"):
        net(x, y)[0].backward()


def test_outputs_that_are_no_tensors():
    class Listed(nn.Module):
        def forward(self, x):
            return [x * 2]

    net = Listed()
    seen = watched(net)
    x = leaf(1.0)
    with pytest.warns(UserWarning, match="Tensor or a tuple"):
        (out,) = net(x)
    out.backward()
    assert seen == []
    assert x.grad.tolist() == [2.0]


def test_named_tuples_stay():
    pair = namedtuple("pair", "a b")

    class Named(nn.Module):
        def forward(self, x):
            return pair(x * 2, x * 3)

    net = Named()
    seen = watched(net)
    out = net(leaf(1.0))
    assert type(out) is pair
    out.b.backward()
    assert seen[1] == ([[3.0]], [None, [1.0]])


def test_nested_modules():
    net = nn.Sequential(nn.Tanh(), nn.Sequential(nn.Sigmoid()), nn.Tanh())
    order = []
    for name, m in net.named_modules():
        m.register_full_backward_pre_hook(lambda m, go, name=name: order.append("pre " + name))
        m.register_full_backward_hook(lambda m, gi, go, name=name: order.append(name))
    net(leaf(1.0)).backward()
    assert order == ["pre ", "pre 2", "2", "pre 1", "pre 1.0", "1.0", "1", "pre 0", "0", ""]


def test_global_hooks_come_first():
    log = []
    handles = [
        module_hooks.register_module_full_backward_hook(lambda m, gi, go: log.append((type(m).__name__, "all"))),
        module_hooks.register_module_full_backward_pre_hook(lambda m, go: log.append((type(m).__name__, "all pre"))),
    ]
    try:
        net = nn.Sequential(nn.Tanh())
        net.register_full_backward_hook(lambda *_: log.append("last"))
        net.register_full_backward_pre_hook(lambda *_: log.append("own pre"))
        net.register_full_backward_hook(lambda *_: log.append("own"), prepend=True)
        net(leaf(1.0)).backward()
    finally:
        for h in handles:
            h.remove()
    tanh = [("Tanh", "all pre"), ("Tanh", "all")]
    assert log == [("Sequential", "all pre"), "own pre", *tanh, ("Sequential", "all"), "own", "last"]


@pytest.mark.parametrize("change", [lambda y: y.add_(1), lambda y: y.view(1).mul_(2), lambda y: y.relu_()])
def test_watched_tensors_cannot_be_changed_in_place(change):
    net = nn.Tanh()
    watched(net)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        change(net(leaf(2.0)))

    class Changing(nn.Module):
        def forward(self, x):
            return change(x)

    net = Changing()
    watched(net)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        net(leaf(2.0) * 1)
    with plait.no_grad():
        change(nn.Tanh()(leaf(2.0)))
        net(leaf(2.0) * 1)
    net(plait.ones(1, dtype=plait.float64))  # needs no gradient: nothing is watched


def test_an_input_that_the_output_does_not_use():
    class Aside(Scale):
        def forward(self, x):
            return self.w * 2, x * 2

    net = Aside()
    seen = watched(net)
    x = leaf(2.0)
    net(x)[0].backward()
    assert seen == [[[1.0], None], ([[0.0]], [[1.0], None])]
    assert (net.w.grad.tolist(), x.grad.tolist()) == ([2.0], [0.0])


def test_every_pass_calls_the_hooks():
    net = nn.Tanh()
    seen = watched(net)
    x = leaf(2.0)
    y = net(x)
    y.backward(retain_graph=True)
    (g,) = plait.autograd.grad(y, x, create_graph=True)
    assert len(seen) == 4
    g.backward()  # comes to the input by another way
    assert len(seen) == 4
    assert x.grad.tolist() == pytest.approx([0.07065082485316443 - 0.13621868742711])


def test_gradients_of_the_input_alone():
    net = nn.Tanh()
    seen = watched(net)
    x = leaf(2.0) * 1
    plait.autograd.grad(net(x), x)
    assert len(seen) == 2


def test_the_same_tensor_twice():
    net = Two()
    seen = watched(net)
    x = leaf(2.0)
    a, b, _ = net(x, x)
    (a + b).sum().backward()
    assert seen[1][0] == [[3.0], [2.0]]
    assert x.grad.tolist() == [5.0]


def test_regular_hooks_see_the_last_operation():
    net, seen = nn.Tanh(), []
    net.register_backward_hook(lambda m, gi, go: seen.append((lists(gi), lists(go))))
    net(leaf(0.0)).backward()
    assert seen == [([[1.0]], [[1.0]])]
    with pytest.raises(RuntimeError, match="Cannot use both"):
        net.register_full_backward_hook(lambda *_: None)
