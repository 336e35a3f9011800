"""Hooks around forward and backward."""

import collections
import copy

import numpy as np
import plait
import pytest
from plait import nn
from plait.nn.modules import module as module_hooks


def test_forward_hooks_replace_arguments_and_outputs():
    net = nn.Linear(2, 2)
    seen = []
    a = net.register_forward_pre_hook(lambda m, args: seen.append("pre"))
    b = net.register_forward_pre_hook(lambda m, args: (args[0] * 0,), prepend=True)
    c = net.register_forward_hook(lambda m, args, out: out + 1)
    out = net(plait.ones(1, 2))
    assert seen == ["pre"]
    np.testing.assert_allclose(out.detach().numpy()[0], net.bias.detach().numpy() + 1, rtol=1e-6)
    for h in (a, b, c):
        h.remove()
    assert not net._forward_hooks
    with a:
        pass
    with pytest.raises(TypeError, match="function"):
        net.register_forward_hook(3)


def test_hooks_with_kwargs():
    class Scaled(nn.Module):
        def forward(self, x, *, by=1.0):
            return x * by

    net = Scaled()
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"by": kwargs["by"] * 2}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["by"], with_kwargs=True)
    assert net(plait.ones(1), by=3.0).item() == 12.0
    net.register_forward_pre_hook(lambda m, args, kwargs: 1, with_kwargs=True)
    with pytest.raises(RuntimeError, match="tuple"):
        net(plait.ones(1), by=3.0)


def test_hooks_that_are_always_called():
    class Broken(nn.Module):
        def forward(self, x):
            raise KeyError("broken")

    net, seen = Broken(), []
    net.register_forward_hook(lambda m, a, o: seen.append("never"))
    net.register_forward_hook(lambda m, a, o: seen.append(o), always_call=True)
    with pytest.raises(KeyError, match="broken"):
        net(1)
    assert seen == [None]


def test_backward_hooks_see_and_replace_gradients():
    net, seen = nn.Linear(2, 3), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = plait.ones(1, 2).requires_grad_()
    net(x).sum().backward()
    (gi,), (go,) = seen[0]
    np.testing.assert_allclose(gi.numpy(), x.grad.numpy())
    assert go.tolist() == [[1.0, 1.0, 1.0]]
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    before, weight_grad = x.grad.numpy().copy(), net.weight.grad.numpy().copy()
    x.grad = None
    net.zero_grad()
    net(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), before * 20, rtol=1e-6)
    np.testing.assert_allclose(net.weight.grad.numpy(), weight_grad * 2, rtol=1e-6)


def test_backward_hook_without_inputs_that_require_gradients():
    net, seen = nn.Linear(2, 3), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, len(go))))
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        net(plait.ones(1, 2)).sum().backward()
    assert seen == [((None,), 1)]
    with plait.no_grad():
        net(plait.ones(1, 2))


def test_backward_hooks_of_several_inputs_and_outputs():
    class Two(nn.Module):
        def forward(self, x, y):
            return x * y, x + y

    net, seen = Two(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append(([g.item() for g in gi], [g.item() for g in go])))
    x, y = plait.tensor([2.0]).requires_grad_(), plait.tensor([5.0]).requires_grad_()
    a, b = net(x, y)
    (a + 3 * b).sum().backward()
    assert seen == [([8.0, 5.0], [1.0, 3.0])]
    assert x.grad.item() == 8.0
    net.register_full_backward_hook(lambda m, gi, go: tuple(g * 2 for g in gi))
    x.grad = None
    a, b = net(x, y)
    (a + 3 * b).sum().backward()
    assert (x.grad.item(), y.grad.item()) == (16.0, 15.0)


def test_backward_hooks_where_an_output_is_not_used():
    class Two(nn.Module):
        def forward(self, x):
            return x * 2, x * 3

    net, seen = Two(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].item(), [g and g.item() for g in go])))
    a, b = net(plait.ones(1).requires_grad_())
    a.sum().backward(retain_graph=True)
    (a + b).sum().backward()
    assert seen == [(2.0, [1.0, None]), (5.0, [1.0, 1.0])]


def test_backward_hooks_run_in_every_pass():
    net, seen = nn.Linear(1, 1), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append(1))
    x = plait.ones(1, 1).requires_grad_()
    out = net(x).sum()
    out.backward(retain_graph=True)
    out.backward()
    assert len(seen) == 2


def test_global_hooks():
    seen = []
    handles = [
        module_hooks.register_module_forward_pre_hook(lambda m, a: seen.append("pre")),
        module_hooks.register_module_forward_hook(lambda m, a, o: seen.append("post")),
        module_hooks.register_module_full_backward_hook(lambda m, gi, go: seen.append("back")),
    ]
    try:
        nn.Linear(1, 1)(plait.ones(1, 1).requires_grad_()).sum().backward()
    finally:
        for h in handles:
            h.remove()
    nn.ReLU()(plait.ones(1))
    assert seen == ["pre", "post", "back"]


def _double(m, args, out):
    return out * 2


def test_hooks_are_copied_with_the_module():
    net = nn.Identity()
    handle = net.register_forward_hook(_double)
    other = copy.deepcopy(net)
    handle.remove()
    assert net(plait.ones(1)).item() == 1.0
    assert other(plait.ones(1)).item() == 2.0


def test_hooks_of_a_tensor_get_the_same_object():
    seen = []
    x = plait.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(seen.append)
    y.register_hook(lambda g: setattr(g, "note", 1))  # nobody else holds it
    y.register_hook(lambda g: seen.append(g) or g * 3)
    y.register_hook(seen.append)
    x.register_hook(seen.append)
    y.sum().backward()
    first, third, replaced, last = seen
    assert first is third and first.note == 1 and first.tolist() == [1, 1, 1]
    assert replaced is not first and not hasattr(replaced, "note") and replaced.tolist() == [3, 3, 3]
    assert last is not replaced and last.tolist() == x.grad.tolist() == [6, 6, 6]


def test_what_a_hook_noted_is_there_for_the_next():
    found = []
    y = plait.ones(3, requires_grad=True) * 2
    y.register_hook(lambda g: setattr(g, "note", 1))
    y.register_hook(lambda g: found.append(g.note))
    y.sum().backward()
    assert found == [1]


def test_hooks_are_dicts_by_number():
    net = nn.Identity()
    net.register_forward_hook(_double)
    handle = net.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True)
    assert isinstance(net._forward_hooks, collections.OrderedDict) and len(net._forward_hooks) == 2
    first, last = net._forward_hooks
    assert net._forward_hooks[first] is _double and net(plait.ones(1)).item() == 3.0
    del net._forward_hooks[first]
    assert net(plait.ones(1)).item() == 2.0 and list(net._forward_hooks) == [last]
    net._forward_hooks[7] = _double
    net.register_forward_hook(_double)
    assert net(plait.ones(1)).item() == 8.0 and len(set(net._forward_hooks)) == 3
    handle.remove()
    assert net(plait.ones(1)).item() == 4.0
    net._forward_hooks.clear()
    net._forward_pre_hooks = collections.OrderedDict({3: lambda m, args: (args[0] + 5,)})
    net._forward_hooks, net._backward_hooks = {}, collections.OrderedDict()
    assert net(plait.ones(1)).item() == 6.0
    handle = net.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    net.register_forward_hook(_double)
    assert net(plait.ones(1)).item() == 24.0 and list(net._forward_pre_hooks) == [3, 4]
    handle.remove()
    assert copy.deepcopy(net)(plait.ones(1)).item() == 12.0
    seen = []
    net.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].item()))
    net(plait.ones(1, requires_grad=True)).sum().backward()
    assert seen == [1.0]


def test_a_module_may_call_an_attribute_hooks():
    net = nn.Identity()
    net._hooks = []
    net.register_forward_hook(_double)
    assert net(plait.ones(1)).item() == 2.0
