"""Functions and contexts that refer to the tensors they belong to are freed, and called as long as they can be."""

import gc

import plait
import pytest
from plait import _core, nn
from plait._engine import callbacks as _kept


class Twice(plait.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        Twice.context = ctx
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 + 0 * ctx.o[0]


def leaf_hook():
    x = plait.ones(4, requires_grad=True)
    x.register_hook(lambda _: x.sum() and None)


def result_hook():
    y = plait.ones(4, requires_grad=True) * 2
    y.register_hook(lambda _: y.sum() and None)


def hook_that_ran():
    x = plait.ones(4, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda _: y.sum() and None)
    y.sum().backward()


def post_hook():
    x = plait.ones(4, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda _: x.sum() and None)
    x.sum().backward()


def parameter_of_a_module():
    m = nn.Linear(2, 2)
    m.weight.owner = m
    m.weight.register_hook(lambda _: m(plait.ones(2)))


def module_hook():
    m = nn.Linear(2, 2)
    m.register_full_backward_hook(lambda *_: m.weight.sum() and None)
    m.register_full_backward_pre_hook(lambda *_: m.weight.sum() and None)
    m(plait.ones(1, 2, requires_grad=True)).sum().backward()


def context_after_apply():
    y = Twice.apply(plait.ones(4, requires_grad=True))
    Twice.context.o = [y]
    del Twice.context


def context_of_a_pass():
    x = plait.ones(4, requires_grad=True)
    y = Twice.apply(x)
    Twice.context.o = (y, {"y": y})
    assert Twice.context.o[0].tolist() == y.tolist()
    del Twice.context
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 4


def saved_hooks():
    box = []
    with plait.autograd.graph.saved_tensors_hooks(lambda t: [t, box], lambda p: p[0]):
        box.append(plait.ones(4, requires_grad=True).exp())
    box[0].sum().backward()
    box.clear()


MEMBERS = [
    *(leaf_hook, result_hook, hook_that_ran, post_hook, parameter_of_a_module, module_hook),
    *(context_after_apply, context_of_a_pass, saved_hooks),
]


@pytest.mark.parametrize("make", MEMBERS)
def test_a_cycle_is_freed(make):
    def counts(rounds):
        for _ in range(rounds):
            make()
        gc.collect()
        return _kept.kept_count(), _core.bind_TensorCount()

    counts(2)
    before = counts(1)
    assert counts(20) == before


@pytest.mark.parametrize("cyclic", [True, False])
def test_hooks_are_called_though_the_tensor_has_gone(cyclic):
    called = []

    def graph():
        x = plait.ones(2, requires_grad=True)
        x.register_hook(lambda _, held=x if cyclic else None: called.append("leaf"))
        x.register_post_accumulate_grad_hook(lambda _: called.append("post"))
        y = x * 2
        y.register_hook(lambda _, held=y if cyclic else None: called.append("result"))
        z = y * 3
        z.register_hook(lambda _: called.append("changed"))
        other = z * 5
        z.mul_(2)
        del z
        return other.sum() + y.sum()

    loss = graph()
    gc.collect()
    loss.backward()
    assert called[:3] == ["changed", "result", "leaf"]


def test_hooks_that_come_and_go_are_not_kept():
    x = plait.ones(2, requires_grad=True)
    before = _kept.kept_count()  # of what other tests have left
    for _ in range(200):
        x.register_hook(lambda _: None).remove()
    assert _kept.kept_count() < before + 100
    assert len(x._held) < 5
