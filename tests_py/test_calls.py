"""Calls of operations that the extension makes at once, and those that it leaves to Python (capi/extension/calls.c)."""

import inspect

import numpy as np
import plait
import pytest
from plait import _core, _ops

A = plait.arange(6.0).reshape(2, 3)
ADD = _core.fast_call("Add")


def test_usual_arguments_are_taken_at_once():
    assert ADD(A, A).tolist() == (A * 2).tolist()
    assert ADD(A, 1).tolist() == ADD(A, 1.0).tolist() == ADD(A, True).tolist()
    assert _core.fast_call("Sum")(A, (0, 1), True, plait.float64).tolist() == [[15.0]]
    values, indices = _core.fast_call("Sort")(A, -1, True, False)
    assert values.tolist() == [[2, 1, 0], [5, 4, 3]]
    assert indices.tolist() == [[2, 1, 0]] * 2
    assert [p.tolist() for p in _core.fast_call("Unbind")(A, 0)] == A.tolist()
    assert _core.fast_call("Nonzero")(plait.tensor([0, 2, 3])).tolist() == [[1], [2]]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (A,),
        (A, A, A),
        (A, "1"),
        (A, None),
        (None, A),
        (A, np.float32(1)),
        (A, 2**60),
        (A, 1j),
        (1.0, "x"),
        (A, [1]),
    ],
)
def test_other_arguments_are_left(arguments):
    assert ADD(*arguments) is None


def test_changes_in_place_return_the_tensor():
    t = A.clone()
    assert _core.fast_call("AddInPlace")(t, 1.0) is t
    assert t.tolist() == (A + 1).tolist()


def test_lists_that_are_too_long_or_empty_are_left():
    cat = _core.fast_call("Cat")
    assert cat([], 0) is None
    assert cat([A] * 97, 0) is None
    assert cat((A, A), 0).shape == (4, 3)
    assert plait.cat([A] * 97).shape == (194, 3)


def test_errors_are_those_of_the_engine():
    with pytest.raises(ValueError, match=r"add: shapes \[\[2 3\] \[2\]\] do not broadcast"):
        ADD(A, plait.zeros(2))
    with pytest.raises(IndexError, match="sum: dimension 7 out of range"):
        plait.sum(A, 7)


# What programs call most often: it must not be left to Python.
NAMED = {
    "add": ((A, A), {}),
    "sub": ((A, 1), {"alpha": 1}),
    "pow": ((A,), {"exponent": 2}),
    "clamp": ((A,), {"min": 0}),
    "sum": ((A, 1), {"keepdim": True}),
    "mean": ((A,), {}),
    "max": ((A,), {}),
    "min": ((A, 1), {}),
    "argmax": ((A,), {"dim": 1}),
    "all": ((A,), {}),
    "cat": (([A, A],), {"dim": 1}),
    "stack": (([A, A],), {}),
    "sort": ((A,), {"descending": True}),
    "topk": ((A, 2), {}),
    "where": ((A > 1, A, 0.0), {}),
    "squeeze": ((A[None],), {}),
    "softmax": ((A, 1), {}),
    "zeros": ((2, 3), {}),
    "ones": (((2, 3),), {"dtype": plait.int64}),
    "full": (((2,), 1), {}),
    "arange": ((5,), {}),
    "eye": ((3,), {}),
    "randint": ((0, 5, (2,)), {}),
    "zeros_like": ((A,), {}),
    "nonzero": ((A,), {}),
}


@pytest.mark.parametrize("name", NAMED)
def test_functions_are_their_operations(name):
    args, kwargs = NAMED[name]
    function = getattr(plait, name)
    plait.manual_seed(0)
    at_once = function._fast(args, kwargs)
    assert at_once is not None
    plait.manual_seed(0)
    want = inspect.unwrap(function)(*args, **kwargs)
    assert type(at_once) is type(want)
    for x, y in zip(at_once, want, strict=True) if isinstance(want, tuple) else [(at_once, want)]:
        assert (x.dtype, x.tolist()) == (y.dtype, y.tolist())


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("add", (A, A), {"alpha": 2}),
        ("sort", (A,), {"out": (A.clone(), plait.zeros(2, 3, dtype=plait.int64))}),
        ("sum", (A, ()), {}),
        ("sum", (A,), {"axis": 0}),
        ("sum", (A, 0, False, 1), {}),
        ("max", (A, plait.zeros(3)), {}),
        ("all", (A, []), {}),
        ("softmax", (A, 1, plait.float64), {}),
        ("zeros", (2,), {"pin_memory": True}),
        ("zeros", (), {"size": (2,), "device": "cpu"}),
        ("arange", (1.0,), {"step": 2, "end": 5}),
        ("where", (A > 1,), {}),
        ("scatter", (A, 0, plait.zeros(1, 1, dtype=plait.int64)), {"value": 1.0}),
    ],
)
def test_more_than_the_operation_is_left(name, args, kwargs):
    function = getattr(plait, name)
    if name != "arange":
        assert function._fast(args, kwargs) is None
    if (name, len(args)) != ("sum", 4):
        assert function(*args, **kwargs) is not None


def test_results_go_to_out():
    for function, args, want in (
        (plait.exp, (A,), A.exp()),
        (plait.add, (A, 1.0), A + 1),
        (plait.sum, (A, 0), A.sum(0)),
        (plait.cat, ([A, A],), A.repeat(2, 1)),
        (plait.matmul, (A, A.t()), A @ A.t()),
    ):
        for out in (want * 0, plait.empty(0), (want * 0).t().contiguous().t(), want.double() * 0):
            address, fits = out.data_ptr(), out.shape == want.shape
            assert function(*args, out=out) is out
            assert out.tolist() == want.tolist()
            assert out.data_ptr() == address or not fits
            assert function._fast(args, {"out": out}) is out
    x = A.clone()
    assert plait.mul(x, x.flip(1), out=x) is x
    assert x.tolist() == (A * A.flip(1)).tolist()
    with pytest.raises(TypeError, match="out: want a tensor, got int 3"):
        plait.exp(A, out=3)
    with pytest.raises(TypeError, match="out: a result of"):
        plait.exp(A, out=plait.zeros(2, 3, dtype=plait.int64))
    with pytest.raises(RuntimeError, match="requires a gradient"):
        plait.exp(A.clone().requires_grad_(), out=A.clone())


def test_arange_takes_its_only_bound_as_the_end():
    assert plait.arange(3).tolist() == plait.arange(end=3).tolist() == [0, 1, 2]
    assert plait.arange(1, 4).tolist() == plait.arange(1, end=4).tolist() == [1, 2, 3]
    assert plait.arange(4, step=2).tolist() == [0, 2]
    assert plait.arange(0, 1, 0.5).dtype == plait.float32
    assert plait.arange(3).dtype == plait.int64


def test_places_are_those_of_the_index():
    mask, at = A > 1, plait.tensor([1, -1])
    assert A[mask].tolist() == plait.masked_select(A, mask).tolist() == [2, 3, 4, 5]
    assert A[:, at].tolist() == [[1, 2], [4, 5]]
    assert A[at].tolist() == [A.tolist()[1]] * 2
    assert A[plait.tensor(1), at].tolist() == [4, 5]
    assert A[at.to(plait.uint8) == 1].shape == (1, 3)
    x = A.clone().requires_grad_()
    (x[mask].sum() + 2 * x[:, at].sum() + 3 * x[at].sum()).backward()
    assert x.grad.tolist() == [[0, 2, 3], [7, 9, 9]]
    for wrong in (
        plait.tensor([2]),
        plait.tensor([0.5]),
        plait.zeros(3, dtype=plait.bool),
        plait.zeros(1, 1, 1, dtype=plait.int64),
    ):
        if wrong.dtype == plait.int64 and wrong.ndim == 3:
            assert A[wrong].shape == (1, 1, 1, 3)
            continue
        with pytest.raises((IndexError, TypeError), match="index"):
            A[wrong].tolist()


def test_values_that_derivatives_save_are_packed_once():
    packed = []

    def pack(t):
        packed.append(t)
        return t

    x = A.clone().requires_grad_()
    with plait.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = x[plait.tensor([0, 0])].sum() + plait.exp(x).sum() + x.sin().sum()
    assert len(packed) == 3
    y.backward()
    assert plait.allclose(x.grad, A.exp() + A.cos() + plait.tensor([[2.0], [0.0]]))


def test_equal_compares_as_numbers():
    nan = plait.tensor([float("nan"), 0.0])
    assert not plait.equal(nan, nan)
    assert plait.equal(plait.tensor([0.0]), plait.tensor([-0.0]))
    assert not plait.equal(A, A.t())
    assert plait.equal(A.t(), A.t().contiguous())
    assert plait.equal(plait.ones(2), plait.ones(2, dtype=plait.int64))
    for dtype in (plait.bool, plait.int8, plait.int64, plait.float16, plait.float32, plait.float64, plait.complex64):
        t = plait.tensor([0, 1, 1]).to(dtype)
        assert plait.equal(t, t.clone())
        assert not plait.equal(t, t.flip(0))


def test_a_device_that_was_used_is_taken_at_once():
    assert plait.zeros(2, device=A.device).tolist() == [0, 0]
    assert _ops.creation._zeros_fast(2, None, A.device, False).tolist() == [0, 0]
    assert _ops.creation._zeros_fast(2, None, plait.float32, False) is None
    with pytest.raises(TypeError):
        plait.zeros(2, device=plait.float32)
