"""Nodes of the graph, hooks on them, on what they save, and on several gradients."""

import gc
import threading
import weakref

import plait
import pytest
from plait import _core
from plait._engine import callbacks as _kept
from plait.autograd import Function, graph


def leaf(*values):
    return plait.tensor(values, dtype=plait.float64, requires_grad=True)


def lists(values):
    return [None if v is None else v.tolist() for v in values]


# --- nodes ---


def test_nodes_name_operations_and_lead_to_others():
    x, y = leaf(1.0), leaf(2.0)
    z = plait.exp(x * y)
    node = z.grad_fn
    assert node.name() == type(node).__name__ == "ExpBackward0"
    assert isinstance(node, graph.Node)
    ((product, index),) = node.next_functions
    assert (product.name(), index) == ("MulBackward0", 0)
    assert product is z.grad_fn.next_functions[0][0]
    assert [n.name() for n, _ in product.next_functions] == ["AccumulateGrad", "AccumulateGrad"]
    assert product.next_functions[0][0].next_functions == ()
    assert (x * 2).grad_fn.next_functions[0][0] is product.next_functions[0][0]
    assert x.grad_fn is None
    assert "<MulBackward0>" in repr(x * y)


def test_inputs_without_gradient_have_no_node():
    x = leaf(1.0)
    assert (x * plait.ones(1, dtype=plait.float64)).grad_fn.next_functions[1] == (None, 0)


def test_outputs_are_numbered():
    a, b = leaf(1.0, 2.0).unbind()
    assert (a.output_nr, b.output_nr) == (0, 1)
    assert a.grad_fn is b.grad_fn
    assert [i for _, i in (a + b).grad_fn.next_functions] == [0, 1]


def test_metadata_lives_as_long_as_the_node():
    y = leaf(1.0) * 2
    y.grad_fn.metadata["mine"] = value = Function()
    seen = weakref.ref(value)
    del value
    gc.collect()
    assert set(y.grad_fn.metadata) == {"mine"}
    del y
    _kept.collect()
    assert seen() is None


def test_the_node_of_a_custom_function_has_its_context():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = 3
            ctx.save_for_backward(x)
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor

    node = Scale.apply(leaf(2.0)).grad_fn
    assert (node.name(), node.factor, lists(node.saved_tensors)) == ("ScaleBackward", 3, [[2.0]])
    with pytest.raises(AttributeError, match="missing"):
        _ = node.missing
    with pytest.raises(AttributeError, match="missing"):
        _ = (leaf(1.0) * 2).grad_fn.missing


def test_hooks_around_a_node_see_and_replace_gradients():
    x, w = leaf(2.0), leaf(5.0)
    y = x * w
    seen = []
    y.grad_fn.register_prehook(lambda out: seen.append(lists(out)))
    y.grad_fn.register_prehook(lambda out: (out[0] * 10,))
    removed = y.grad_fn.register_hook(lambda grads, out: (None, None))
    removed.remove()
    y.grad_fn.register_hook(lambda grads, out: seen.append((lists(grads), lists(out))))
    y.grad_fn.register_hook(lambda grads, out: (grads[0] * 2, None))
    y.backward()
    assert seen == [[[1.0]], ([[50.0], [20.0]], [[10.0]])]
    assert x.grad.tolist() == [100.0]
    assert w.grad is None


def test_hooks_around_the_node_that_accumulates():
    x = leaf(2.0)
    y = x * 3
    node = y.grad_fn.next_functions[0][0]
    seen = []
    node.register_prehook(lambda out: (out[0] * 2,))
    node.register_hook(lambda grads, out: seen.append((grads, lists(out), x.grad.tolist())))
    y.backward()
    assert seen == [((), [[6.0]], [6.0])]
    plait.autograd.grad(x * 3, x)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (lambda g: (g[0],), RuntimeError, "got 1, but expected 2"),
        (lambda g: [g[0], g[1]], TypeError, "tuple"),
        (lambda g: (3, g[1]), TypeError, "int"),
        (lambda g: (g[0], g[0]), RuntimeError, "can't replace a None gradient"),
        (lambda g: (g[0][:0], None), RuntimeError, "shape"),
    ],
)
def test_hooks_around_a_node_that_answer_wrongly(answer, error, match):
    y = leaf(2.0) * plait.ones(1, dtype=plait.float64)
    y.grad_fn.register_hook(lambda grads, out: answer(grads))
    with pytest.raises(error, match=match):
        y.backward()


def test_hooks_run_without_recording():
    x = leaf(2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: p.add_(p.grad))
    x.register_hook(lambda g: seen.append(plait.is_grad_enabled()))
    (x * 3).backward()
    assert x.tolist() == [5.0]
    plait.autograd.grad(x * 3, x, create_graph=True)
    assert seen == [False, True]


def test_hooks_go_with_what_they_were_registered_on():
    gc.collect()
    before, objects = _kept.kept_count(), _core.bind_ObjectCount()
    x = leaf(1.0)
    for _ in range(1000):
        t = leaf(1.0)
        t.register_hook(lambda g: g)
        t.register_post_accumulate_grad_hook(lambda p: None)
        y = x * t
        y.register_hook(lambda g: g)
        y.grad_fn.register_hook(lambda grads, out: None)
        y.grad_fn.register_prehook(lambda out: None)
        y.grad_fn.next_functions[1][0].register_hook(lambda grads, out: None)
        y.grad_fn.metadata["a"] = 1
    del t, y
    gc.collect()
    assert _kept.kept_count() == before
    assert _core.bind_ObjectCount() == objects
    handle = x.register_hook(lambda g: g)
    assert _kept.kept_count() == before + 1
    handle.remove()
    assert _kept.kept_count() == before


def test_a_hook_stays_without_its_handle():
    x = leaf(1.0)
    x.register_hook(lambda g: g * 2)
    gc.collect()
    (x * 3).backward()
    assert x.grad.tolist() == [6.0]


# --- saved values ---


def test_saved_values_go_through_hooks():
    a, b = leaf(5.0), leaf(3.0)
    log = []

    def pack(t):
        assert not plait.is_grad_enabled()
        log.append(("pack", t.tolist()))
        return t.tolist()

    def unpack(packed):
        log.append(("unpack", packed))
        return plait.tensor(packed, dtype=plait.float64)

    with graph.saved_tensors_hooks(pack, unpack):
        y = a * b
        assert sorted(log) == [("pack", [3.0]), ("pack", [5.0])]
    z = y * y
    z.backward()
    assert sorted(log[2:]) == [("unpack", [3.0]), ("unpack", [5.0])]
    assert (a.grad.tolist(), b.grad.tolist()) == ([2 * 15 * 3.0], [2 * 15 * 5.0])
    with pytest.raises(RuntimeError, match="freed"):
        y.backward()


def test_hooks_may_change_what_derivatives_see():
    x = leaf(3.0)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t * 10):
        y = x * x
    y.backward()
    assert x.grad.tolist() == [60.0]


def test_every_kind_of_operation_packs():
    x = plait.rand(3, 3, dtype=plait.float64).requires_grad_()

    def run():
        values, _ = plait.sort(x * 2, 1)
        y = plait.linalg.inv(values.exp() + plait.eye(3, dtype=plait.float64))
        y = y.clone()
        y[0] *= 2
        y.mul_(plait.tanh(x))
        a, b = plait.split(y @ x, 2)
        return a.sum() + (b**3).sum() + plait.nn.functional.layer_norm(y, (3,)).pow(2).sum()

    run().backward()
    want = x.grad.clone()
    count = [0, 0]

    def pack(t):
        count[0] += 1
        return t.clone()

    def unpack(t):
        count[1] += 1
        return t

    x.grad = None
    with graph.saved_tensors_hooks(pack, unpack):
        loss = run()
    loss.backward()
    assert plait.equal(x.grad, want)
    assert 10 < count[1] <= count[0]


def test_packed_values_are_dropped_with_their_nodes():
    class Token:
        pass

    alive = weakref.WeakSet()

    def pack(t):
        token = Token()
        token.value = t.clone()
        alive.add(token)
        return token

    x = leaf(1.0)
    with graph.saved_tensors_hooks(pack, lambda token: token.value):
        y = x.exp().exp().exp()
        assert len(alive) == 3
        y.backward(retain_graph=True)
        assert len(alive) == 3
        y.backward()
        assert len(alive) == 0
        y = x.exp().exp()
        assert len(alive) == 2
        del y
        _kept.collect()
        assert len(alive) == 0


def test_second_derivatives_through_packed_values():
    x = leaf(0.5)
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = plait.exp(x * x)
        (g,) = plait.autograd.grad(y, x, create_graph=True)
    (h,) = plait.autograd.grad(g, x)
    e = plait.exp(x.detach() ** 2)
    assert plait.allclose(h, (2 + 4 * x.detach() ** 2) * e)


def test_only_the_innermost_hooks_run():
    log = []

    def hooks(name):
        return graph.saved_tensors_hooks(lambda t: (log.append(name), t)[1], lambda t: t)

    x = leaf(1.0)
    with hooks("outer"):
        with hooks("inner"):
            x.exp()
        log.append("-")
        x.exp()
    x.exp()
    assert log == ["inner", "-", "outer"]


def test_hooks_belong_to_their_thread():
    log = []
    x = leaf(1.0)
    with graph.saved_tensors_hooks(lambda t: (log.append(1), t)[1], lambda t: t):
        other = threading.Thread(target=x.exp)
        other.start()
        other.join()
    assert log == []


def test_settings_made_under_hooks_stay():
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        plait.set_default_dtype(plait.float64)
        plait.set_grad_enabled(False)
    try:
        assert plait.ones(1).dtype is plait.float64
        assert not plait.is_grad_enabled()
    finally:
        plait.set_default_dtype(plait.float32)
        plait.set_grad_enabled(True)


def test_custom_functions_save_through_hooks():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y, None)
            return y

        @staticmethod
        def backward(ctx, g):
            x, _, none = ctx.saved_tensors
            assert none is None
            return 2 * x * g

    x = leaf(3.0)
    log = []
    with graph.saved_tensors_hooks(lambda t: (log.append(t.tolist()), t.clone())[1], lambda t: t):
        y = Square.apply(x)
    assert log == [[3.0], [9.0]]
    (g,) = plait.autograd.grad(y, x, create_graph=True)
    assert g.tolist() == [6.0]
    assert plait.autograd.grad(g, x)[0].tolist() == [2.0]


def test_hooks_that_fail():
    x = leaf(2.0)
    with graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t), pytest.raises(ZeroDivisionError):
        x.exp()
    with graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t), pytest.raises(RuntimeError, match="in place"):
        x.exp()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 1 / 0):
        y = x.exp()
    with pytest.raises(ZeroDivisionError):
        y.backward()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="int"):
        y.backward()
    (x * 2).backward()
    assert x.grad.tolist() == [2.0]


def test_hooks_can_be_forbidden():
    x = leaf(1.0)
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
        x.exp().backward()
    hooks = graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with hooks, pytest.raises(RuntimeError, match="not here"), graph.disable_saved_tensors_hooks("not here"):
        pass
    with hooks:
        x.exp()


def test_save_on_cpu():
    x = leaf(3.0)
    with graph.save_on_cpu(pin_memory=True):
        y = x * x
    y.backward()
    assert x.grad.tolist() == [6.0]


# --- edges, and hooks on several gradients ---


def test_gradient_edges_stand_for_tensors():
    x = leaf(3.0)
    y = x * 2
    edge = graph.get_gradient_edge(y)
    z = y * y
    del y
    assert plait.autograd.grad(z, [edge, graph.get_gradient_edge(x)], retain_graph=True)[0].tolist() == [12.0]
    assert plait.autograd.grad(z, graph.get_gradient_edge(x))[0].tolist() == [24.0]
    end = graph.get_gradient_edge((x * x).exp() * 0 + x * 5)
    plait.autograd.backward(end, plait.ones(1, dtype=plait.float64))
    assert x.grad.tolist() == [5.0]
    with pytest.raises(RuntimeError, match="gradient"):
        graph.get_gradient_edge(plait.ones(1))


def test_a_hook_on_several_gradients():
    a, b, c = leaf(1.0), leaf(2.0), leaf(3.0)
    every, first = [], []
    handle = graph.register_multi_grad_hook((a, b, c), lambda grads: every.append(lists(grads)))
    graph.register_multi_grad_hook((a, b, c), lambda g: first.append(g.tolist()), mode="any")
    (a * b).sum().backward()
    (a * b * c).sum().backward()
    handle.remove()
    (a * b).sum().backward()
    assert every == [[[2.0], [1.0], None], [[6.0], [3.0], [2.0]]]
    assert len(first) == 3
    with pytest.raises(ValueError, match="mode"):
        graph.register_multi_grad_hook((a,), lambda g: None, mode="some")


def test_callbacks_at_the_end_of_a_pass():
    x = leaf(1.0)
    log = []

    def hook(g):
        graph.queue_callback(lambda: log.append(x.grad.tolist()))

    y = x * 2
    y.register_hook(hook)
    y.backward()
    assert log == [[2.0]]
    with pytest.raises(RuntimeError, match="during backward"):
        graph.queue_callback(lambda: None)


def test_a_leaf_that_was_frozen_after_its_use_gets_no_gradient():
    x, w, log = leaf(2.0), leaf(3.0), []
    w.register_hook(lambda g: log.append(g.tolist()))
    w.register_post_accumulate_grad_hook(lambda t: log.append(t.grad))
    y = (x * w).sum()
    w.requires_grad_(False)
    y.backward(retain_graph=True)
    assert (x.grad.tolist(), w.grad, log) == ([3.0], None, [[2.0], None])
    w.requires_grad_(True)
    y.backward(retain_graph=True)
    w.requires_grad_(False)
    y.backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([9.0], [2.0])


def test_changes_through_data_are_counted_apart():
    w = plait.ones(3, requires_grad=True)
    x = w * 2
    y = x * x
    x.data[1:].mul_(3)  # a view of it as well
    assert x._version == 0 and x.data._version == 0
    y.sum().backward()
    assert w.grad.tolist() == [8, 24, 24]  # what was saved has changed all the same

    kept = plait.ones(3)
    apart = kept.data
    y = w * apart
    kept.add_(1)
    y.sum().backward()
    y = w * apart
    apart.view(3)[0] = 5
    assert kept._version == 1 and apart._version == apart.detach()._version == 1
    with pytest.raises(RuntimeError, match="at version 1, expected version 0"):
        y.sum().backward()
    y = w * kept
    kept.detach().add_(1)
    with pytest.raises(RuntimeError, match="at version 2, expected version 1"):
        y.sum().backward()
