"""Methods that change their tensor, of which the engine computes the result in other memory or changes the layout."""

import plait
import pytest
from plait.nn import functional as F

REPLACING = [
    ("cumsum", (0,)), ("cumprod", (-1,)), ("renorm", (2.0, 0, 0.5)), ("float_power", (3,)),
    ("heaviside", (plait.tensor(7.0),)), ("ldexp", (plait.tensor([1, 2, 3]),)), ("i0", ()),
    ("igamma", (plait.tensor(1.5),)), ("igammac", (plait.tensor(1.5),)),
    ("nextafter", (plait.tensor(9.0),)), ("polygamma", (1,)), ("mvlgamma", (1,)), ("nan_to_num", (0.5, 4.0)),
]  # fmt: skip
DIFFERENTIABLE = {"cumsum", "cumprod", "renorm", "float_power", "ldexp", "i0", "polygamma", "mvlgamma", "nan_to_num"}

RESHAPING = [
    ("squeeze", ()), ("squeeze", (1,)), ("unsqueeze", (0,)), ("transpose", (0, 2)),
    ("swapaxes", (0, 1)), ("swapdims", (1, 2)), ("as_strided", ((3, 2), (1, 3))),
]  # fmt: skip


def start(name):
    x = plait.tensor([[0.75, 1.5, 1.25], [1.0, 2.5, 0.625]], requires_grad=True)
    return x.double() if name in ("float_power", "ldexp") else x


@pytest.mark.parametrize(("name", "args"), REPLACING)
def test_agrees_with_the_function_that_returns(name, args):
    def gradient(change):
        leaf = start(name).detach().requires_grad_()
        base = leaf * 1
        out = change(base)
        out.sum().backward() if name in DIFFERENTIABLE else None
        return base, leaf.grad

    def through_a_view(base):
        part = base.view(-1).view(2, 3)
        before = base._version
        assert getattr(part, name + "_")(*args) is part
        assert base._version > before
        return base

    base, got = gradient(through_a_view)
    returned = {}
    _, want = gradient(lambda base: returned.setdefault("out", getattr(base, name)(*args)))
    assert base.tolist() == returned["out"].tolist()
    assert (got is None) == (want is None)
    assert got is None or plait.allclose(got, want)
    with pytest.raises(RuntimeError, match="leaf that requires a gradient"):
        getattr(start(name).detach().requires_grad_(), name + "_")(*args)


def test_what_was_saved_is_missed():
    x = plait.ones(3, requires_grad=True) * 2
    y = x.exp() * x
    x.cumsum_(0)
    with pytest.raises(RuntimeError, match="in-place"):
        y.sum().backward()


def test_what_does_not_fit_is_refused():
    x = plait.ones(3)
    with pytest.raises(RuntimeError, match=r"cumsum_: a result of plait.float64 can't be cast to plait.float32"):
        x.cumsum_(0, dtype=plait.float64)
    with pytest.raises(RuntimeError, match="a result of float64 can't be cast"):
        x.float_power_(2)
    with pytest.raises(RuntimeError, match="cannot hold the result of shape"):
        x.heaviside_(plait.ones(2, 3))
    with pytest.raises(RuntimeError, match="a result of float32 can't be cast"):
        plait.tensor([1, 2]).ldexp_(plait.tensor([1]))
    assert x.tolist() == [1, 1, 1] and x._version == 0
    assert x.cumsum_(axis=0, dtype=plait.float32).tolist() == [1, 2, 3]
    counts = plait.tensor([200, 100], dtype=plait.uint8)
    assert counts.cumsum_(0).tolist() == [200, 44] and counts.dtype == plait.uint8
    assert plait.tensor([4, 6]).lcm_(plait.tensor([6, 4])).tolist() == [12, 12]


def test_rrelu_keeps_the_elements_that_its_derivative_needs():
    x = plait.tensor([-2.0, 3.0], requires_grad=True)
    F.rrelu(x * 1, 0.5, 0.5, training=True, inplace=True).sum().backward()
    assert x.grad.tolist() == [0.5, 1]


@pytest.mark.parametrize(("name", "args"), RESHAPING)
def test_becomes_the_view(name, args):
    leaf = plait.rand(2, 1, 3, requires_grad=True)
    base = leaf * 1
    part = base.view(2, 1, 3)
    want = getattr(base, name)(*args)
    square = part * part
    assert getattr(part, name + "_")(*args) is part
    assert part.shape == want.shape and part.stride() == want.stride() and part.tolist() == want.tolist()
    square.sum().backward(retain_graph=True)  # no element has changed
    leaf.grad = None
    weights = plait.arange(part.numel()).view(part.shape)
    (part * weights).sum().backward()
    got, leaf.grad = leaf.grad, None
    (getattr(leaf * 1, name)(*args) * weights).sum().backward()
    assert got.tolist() == leaf.grad.tolist()
    with pytest.raises(RuntimeError, match="a leaf that requires a gradient"):
        getattr(leaf, name + "_")(*args)
    assert leaf.shape == (2, 1, 3)
    leaf.grad, wanted = None, getattr(leaf.detach(), name)(*args)
    with plait.no_grad():
        assert getattr(leaf, name + "_")(*args) is leaf
    assert leaf.is_leaf and leaf.requires_grad and leaf.tolist() == wanted.tolist()
    (leaf * weights).sum().backward()
    assert leaf.grad.tolist() == weights.tolist()
