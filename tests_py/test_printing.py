"""How tensors print, and how they are formatted."""

import math
import pickle

import plait
import pytest


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 2000.0], "[1.0000e+00, 2.0000e+03]"),
        ([1.0, 100.0], "[  1., 100.]"),
        ([2e8], "[2.0000e+08]"),
        ([1e8, 1e8], "[100000000., 100000000.]"),
        ([math.nan, math.inf, -math.inf], "[nan, inf, -inf]"),
        ([0.0, math.nan], "[0., nan]"),
        ([1.0, math.inf], "[1., inf]"),
        ([0.5, math.nan], "[0.5000,    nan]"),
        ([0.0, 0.25], "[0.0000, 0.2500]"),
        ([-1.5, 2.0], "[-1.5000,  2.0000]"),
        ([0.25, 1e-5], "[2.5000e-01, 1.0000e-05]"),
        ([0.0, 0.0], "[0., 0.]"),
    ],
)
def test_floating_point_numbers(values, text):
    assert repr(plait.tensor(values)) == f"tensor({text})"


def test_formats_are_for_one_number():
    assert f"{plait.tensor(3.14159):.2f} {plait.tensor(7):03d} {plait.ones(2)}" == "3.14 007 tensor([1., 1.])"
    loss = plait.tensor(1.5, requires_grad=True)
    assert f"{loss} {plait.tensor(3)} {plait.tensor(True)}" == "1.5 3 True"
    assert str(loss) == "tensor(1.5000, requires_grad=True)"
    with pytest.raises(TypeError, match=r"'\.2f' is for one number, got a tensor of shape \[2\]"):
        f"{plait.ones(2):.2f}"


def test_many_elements_are_cut():
    assert repr(plait.arange(2000)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    lines = repr(plait.zeros(1001, 2)).split("\n")
    assert len(lines) == 7 and lines[3].strip() == "...,"


def test_parts_of_a_text_for_classes_that_print_themselves():
    from plait import _tensor_str as parts

    t = plait.arange(6.0).reshape(2, 3)
    assert (
        parts._tensor_str(t, 4) == "[[0., 1., 2.],\n     [3., 4., 5.]]" and parts._tensor_str(plait.ones(0), 4) == "[]"
    )
    assert parts._add_suffixes("T([1]", ["nnz=1", "dtype=x"], 2, False) == "T([1], nnz=1, dtype=x)"
    assert parts._add_suffixes("T([1]", ["nnz=1"], 2, True) == "T([1],\n  nnz=1)"
    assert parts._add_suffixes("T([1]", ["a" * 60, "b" * 60], 2, False) == f"T([1], {'a' * 60},\n  {'b' * 60})"
    assert parts._str_intern(t, tensor_contents="here") == "tensor(here)" and parts.PRINT_OPTS.linewidth == 80


def test_sizes_that_are_tensors():
    n = plait.tensor(2)
    assert plait.zeros((n,)).shape == plait.full((n,), 1.0).shape == (2,) and plait.empty([n, 3]).shape == (2, 3)


def test_results_of_several_parts_print_with_the_name_of_their_function():
    x = plait.tensor([[1.0, 3.0], [2.0, 0.0]])
    assert repr(plait.max(x, 0)) == "plait.return_types.max(\nvalues=tensor([2., 3.]),\nindices=tensor([1, 0]))"
    assert repr(x.aminmax()) == "plait.return_types.aminmax(\nmin=tensor(0.),\nmax=tensor(3.))"
    names = {"min": (0,), "median": (0,), "nanmedian": (0,), "mode": (), "sort": (), "topk": (1,), "kthvalue": (1,)}
    for name, args in {**names, "cummax": (0,), "cummin": (0,)}.items():
        got = getattr(plait, name)(x, *args)
        assert type(got) is getattr(plait.return_types, name) and isinstance(got, plait.return_types.ValuesIndices)
        assert repr(got).startswith(f"plait.return_types.{name}(\nvalues=") and got.values is got[0]
    assert repr(plait.linalg.slogdet(x)).startswith("plait.return_types.linalg_slogdet(\nsign=tensor(-1.),\nlogabsdet=")
    copy = pickle.loads(pickle.dumps(plait.max(x, 0)))
    assert type(copy) is plait.return_types.max and copy.indices.tolist() == [1, 0]
