"""Results in memory that the program names: `out`, to which operations write without a copy where they can."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import plait
import pytest
from plait import _core, _ops
from plait._functions import _common

X = plait.tensor([[0.5, -1.5, 2.25], [3.0, -0.75, 1.0]])
Y = plait.tensor([[1.5, 2.0, -0.5], [0.25, 4.0, 3.5]])
M = plait.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.25]])
I = plait.tensor([[5, 2, 7], [1, 9, 4]])

# Whether the operation writes to `out` itself is the last of each.
CALLS = [
    ("neg", (X,), True), ("exp", (X,), True), ("abs", (X,), True), ("logical_not", (X,), True), ("round", (X,), True),
    ("add", (X, Y), True), ("add", (X, 2.5), True), ("sub", (X, Y[0]), True), ("mul", (X, Y), True),
    ("div", (X, Y), True),
    ("eq", (X, Y), True), ("maximum", (X, Y), True), ("where", (X > 0, X, Y), True), ("lerp", (X, Y, 0.25), True),
    ("clamp", (X, -1.0, 1.0), True), ("addcmul", (X, Y, Y), True), ("bitwise_and", (I, I + 1), True),
    ("matmul", (X, M), True), ("mm", (X, M), True), ("addmm", (plait.ones(2, 2), X, M), True),
    ("sum", (X, 1), True), ("mean", (X, 0), True), ("amax", (X, 1), True), ("argmin", (X, 1), True),
    ("cumsum", (X, 1), True), ("softmax", (X, 1), True), ("gather", (X, 1, I % 3), True),
    ("cat", ([X, Y],), True), ("stack", ([X, Y], 1), True),
    ("kron", (X, Y), False), ("tril", (X,), False), ("take", (X, I % 6), False), ("var", (X, 1), False),
]  # fmt: skip


@pytest.fixture
def copied(monkeypatch):
    """The results that operations have not put into the memory that they were offered, one after another."""
    seen, store = [], _common.store

    def noting(out, result):
        if out is not None:
            seen.append(result)
        return store(out, result)

    monkeypatch.setattr("plait._functions._common.store", noting)
    monkeypatch.setattr("plait._functions.reduction.store", noting)
    _core.set_store(noting)
    yield seen
    _core.set_store(store)


@pytest.mark.parametrize(("name", "args", "direct"), CALLS)
def test_is_what_the_function_returns(name, args, direct, copied):
    function = getattr(plait, name)
    expected = function(*args)
    out = plait.full(expected.shape, 7, dtype=expected.dtype)
    at, version = out.data_ptr(), out._version
    assert function(*args, out=out) is out
    assert plait.equal(out, expected)
    assert (out.data_ptr(), out._version, not copied) == (at, version + 1, direct)


@pytest.mark.parametrize(("name", "args", "direct"), CALLS)
@pytest.mark.parametrize("shift", [0, 1])
def test_may_overlap_an_operand(name, args, direct, shift):
    function = getattr(plait, name)
    expected = function(*args)
    for i, x in enumerate(args):
        if isinstance(x, plait.Tensor) and x.shape == expected.shape and x.dtype is expected.dtype:
            memory = plait.zeros(x.numel() + 1, dtype=x.dtype)
            operand, out = memory[:-1].view(x.shape), memory[shift : x.numel() + shift].view(x.shape)
            operand.copy_(x)
            function(*args[:i], operand, *args[i + 1 :], out=out)
            assert plait.equal(out, expected)


def test_a_strided_out_is_written_to():
    memory = plait.zeros(3, 2)
    assert plait.add(X, Y, out=memory.t()).shape == (2, 3)
    assert plait.equal(memory, (X + Y).t())


def test_another_dtype_and_another_shape(copied):
    wide = plait.empty(2, 3, dtype=plait.float64)
    assert plait.equal(plait.exp(X, out=wide), X.exp().double())
    small = plait.empty(0)
    assert plait.exp(X, out=small) is small
    assert plait.equal(small, X.exp())
    with pytest.raises(TypeError, match="does not go into"):
        plait.exp(X, out=plait.empty(2, 3, dtype=plait.int64))
    assert len(copied) == 3


def test_gradients_are_refused():
    leaf = plait.zeros(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires a gradient"):
        plait.exp(X, out=leaf)
    with pytest.raises(RuntimeError):
        plait.exp(X, out=leaf[:])
    assert plait.equal(leaf, plait.zeros(2, 3))


def test_a_changed_value_is_missed_by_backward():
    x = X.clone().requires_grad_()
    saved = plait.ones(2, 3)
    y = x * saved
    plait.neg(X, out=saved)
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        y.sum().backward()


def test_operands_that_require_gradients_are_not_recorded(copied):
    x = X.clone().requires_grad_()
    out, low = plait.zeros(2, 3), plait.zeros(2)
    with pytest.raises(RuntimeError, match="an input requires a gradient"):
        plait.exp(x, out=out)
    with pytest.raises(RuntimeError, match="an input requires a gradient"):
        plait.max(x, 1, out=(low, plait.zeros(2)))
    assert len(copied) == 2
    assert not out.any()
    assert not low.any()
    assert plait.equal(plait.argmax(x, 1, out=plait.zeros(2, dtype=plait.int64)), X.argmax(1))
    copied.clear()
    with plait.no_grad():
        plait.exp(x, out=out)
        assert not copied
        leaf = plait.zeros(2, 3, requires_grad=True)
        assert plait.exp(x, out=leaf) is leaf
    assert plait.equal(out, X.exp())
    assert leaf.is_leaf
    assert leaf.requires_grad
    assert plait.equal(leaf, out)


def test_a_call_that_fails_leaves_no_offer():
    out = plait.zeros(2, 3)
    with pytest.raises(RuntimeError):
        plait.add(X, M, out=out)
    X + Y
    assert plait.equal(out, plait.zeros(2, 3))


def test_inside_vmap_nothing_is_offered():
    out = plait.zeros(3)
    with pytest.raises(RuntimeError):
        plait.vmap(lambda x: plait.neg(x, out=out))(X)
    assert plait.equal(out, plait.zeros(3))


def test_inference_tensors():
    with plait.inference_mode():
        out = plait.zeros(2, 3)
        assert plait.equal(plait.neg(X, out=out), -X)
    with pytest.raises(RuntimeError, match="inference"):
        plait.neg(X, out=out)


def test_memory_of_arrays():
    array = np.zeros((2, 3), np.float32)
    plait.matmul(X, plait.eye(3), out=plait.from_numpy(array))
    np.testing.assert_array_equal(array, X.numpy())
    plait.neg(X, out=plait.from_numpy(array))
    np.testing.assert_array_equal(array, -X.numpy())


def test_an_offer_is_for_the_thread_and_the_operation():
    out, expected = plait.zeros(2, 3), -X
    offer = _core.bind_OutOffer("neg", out._h, 0, 0)
    assert offer > 0
    with ThreadPoolExecutor(1) as pool:
        assert plait.equal(pool.submit(_ops.neg, X).result(), expected)
    assert plait.equal(_ops.exp(X), X.exp())
    assert plait.equal(out, plait.zeros(2, 3))
    assert _core.bind_Neg(X._h) == 1  # in the memory offered, and no handle
    assert plait.equal(out, expected)
    assert plait.equal(_ops.neg(X), expected)  # which has memory of its own again: the offer has ended
    assert _core.bind_OutEnd(offer) == 0


def test_a_result_that_nobody_offered_memory_for():
    with pytest.raises(SystemError, match="nobody offered"):
        _core.own(1)


def test_functions_in_functions_have_offers_of_their_own():
    out, inner = plait.zeros(2, 3), plait.zeros(2, 3)

    def neg(x):
        assert _core.call_into(inner, "neg", _ops.neg, (x,)) is inner
        return _ops.neg(x)

    assert _core.call_into(out, "neg", neg, (X,)) is out
    assert plait.equal(out, -X)
    assert plait.equal(inner, -X)
    assert _core.call_into(out, "neg", _ops.exp, (X,)) is not out

    strided = plait.zeros(3, 2).t()  # is not offered
    assert _core.call_into(out, "neg", lambda x: _core.call_into(strided, "neg", _ops.neg, (x,)), (X,)) is out
    assert not strided.any()
    with pytest.raises(TypeError, match="call_into"):
        _core.call_into(out, "neg", _ops.neg)
