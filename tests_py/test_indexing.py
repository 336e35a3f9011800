"""Indexing agrees with NumPy: reading, writing, and the gradients of both."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import plait
import pytest

SHAPE = (4, 3, 5)
E = Ellipsis

# What stands for one dimension, with an array where a tensor is meant.
PARTS: list[Any] = [
    1, -1, slice(None), slice(1, None), slice(None, -1), slice(0, 9, 2), slice(2, 2), slice(-2, None), slice(-9, 2),
    np.array([0, 2]), np.array([-1, 0]), np.array([[0, 1], [2, 2]]), np.array([], dtype=np.int64), np.array(1),
]  # fmt: skip

FEW: list[Any] = [1, slice(None, None, 2), np.array([0, 2]), np.array([[1], [0]])]

MIXED: list[Any] = [
    (), E, None, (None, E), (E, None), (0, E), (E, 0), (E, slice(1, 3)), (None, 1, None), (None, slice(None), None),
    (0, None, 1), (0, E, 1), (slice(None), E, np.array([0, 1])), (np.array([0, 1]), E, np.array([0, 1])),
    (None, np.array([0, 1]), None), (np.array([0, 1]), None, np.array([1, 2])), (0, slice(None), np.array([0, 1])),
    (np.array([0, 1]), slice(None), 2), (slice(None), np.array([0, 1]), np.array([[0], [1]])),
    (np.array([[0, 1]]), np.array([[0], [1]]), slice(1, 4)), (np.array(0), np.array([1, 1])),
    True, False, (True, 0), (None, True), (0, False),
    np.array([True, False, True, False]), (np.array([False] * 4),), (slice(None), np.array([True, False, True])),
    (np.array([True, False, True, True]), 0), (np.array([True, False, True, True]), np.array([0, 1, 2])),
    (E, np.array([True, False, True, False, True])), (1, np.array([True, True, False]), slice(None, 2)),
    (np.array([True, True, False, False]), None, np.array([0, 2])),
    np.arange(12).reshape(4, 3) % 2 == 0, (np.arange(12).reshape(4, 3) % 3 == 0, slice(1, 3)),
    np.arange(60).reshape(SHAPE) % 7 == 0, (np.arange(12).reshape(4, 3) > 100,),
    [0, 2], ([0, 2], [1, 1]), ([0, 1], slice(None), 3), [True, False, False, True], (slice(None), [2, 0]),
    range(2), np.int64(2), (np.int32(1), np.int16(2)), np.array([3, 1], dtype=np.int32),
]  # fmt: skip


def apart(index: Any) -> bool:
    """Whether an integer stands apart from arrays, which makes their dimensions the first in NumPy, not in PyTorch."""
    kinds = ""
    for part in index if isinstance(index, tuple) else ():
        whole = isinstance(part, int | np.integer) and not isinstance(part, bool)
        kinds += "i" if whole else " " if part is None or part is E or isinstance(part, slice) else "a"
    used = kinds.strip()
    return "i" in used and "a" in used and " " in used


def valid(index: Any) -> bool:
    """Whether NumPy takes an index; the indices of several dimensions may not broadcast."""
    try:
        np.empty(SHAPE)[index]
    except IndexError:
        return False
    return True


COMBINED = [*PARTS, *itertools.product(FEW, PARTS), *itertools.product(FEW, FEW, FEW), *MIXED]
GRID: list[Any] = [index for index in COMBINED if valid(index) and not apart(index)]


def with_tensors(index: Any) -> Any:
    """Replaces arrays in an index by tensors."""
    if isinstance(index, tuple):
        return tuple(with_tensors(i) for i in index)
    if isinstance(index, np.ndarray):
        return plait.tensor(index)
    return index


def elements() -> np.ndarray:
    return np.arange(60, dtype=np.float64).reshape(SHAPE)


def agree(got: plait.Tensor, want: Any, index: Any) -> None:
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape, index
    np.testing.assert_array_equal(got.detach().numpy(), want, err_msg=str(index))


def test_reading():
    a = elements()
    t = plait.tensor(a)
    for index in GRID:
        agree(t[with_tensors(index)], a[index], index)
        agree(t[index], a[index], index)


def test_integers_apart_from_arrays():
    a, t = elements(), plait.tensor(elements())
    agree(t[1, ::2, [0, 2]], a[1][::2, [0, 2]], "last")
    agree(t[[0, 2], :, 1], a[:, :, 1][[0, 2]], "first")
    agree(t[[0, 2], None, 1], a[:, 1][[0, 2]][:, None], "new axis")


def test_what_numpy_refuses():
    refused = [index for index in COMBINED if not valid(index)]
    assert len(refused) > 0 and len(GRID) > 120
    for index in refused:
        with pytest.raises((IndexError, ValueError)):
            plait.tensor(elements())[with_tensors(index)].tolist()


def test_reading_a_transposed_part():
    a = np.arange(240.0).reshape(5, 4, 6, 2)[::2, :, 1:6, 1].transpose(1, 0, 2)
    t = plait.tensor(np.arange(240.0).reshape(5, 4, 6, 2))[::2, :, 1:6, 1].permute(1, 0, 2)
    assert t.shape == a.shape == SHAPE
    for index in GRID:
        agree(t[with_tensors(index)], a[index], index)


def test_writing_a_number():
    for index in GRID:
        a, t = elements(), plait.tensor(elements())
        a[index] = -1
        t[with_tensors(index)] = -1
        agree(t, a, index)


def test_writing_a_tensor():
    for index in GRID:
        a, t = elements(), plait.tensor(elements())
        shape = a[index].shape
        value = -1 - np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
        if _repeats(index):
            value = np.full(shape, -7.0)  # the order of writes to one element is not defined
        a[index] = value
        t[with_tensors(index)] = plait.tensor(value)
        agree(t, a, index)


def _repeats(index: Any) -> bool:
    count = np.zeros(SHAPE)
    np.add.at(count, index, 1)
    return bool((count > 1).any())


def test_writing_what_broadcasts():
    for index in GRID:
        a, t = elements(), plait.tensor(elements())
        shape = a[index].shape
        if not shape or shape[-1] == 0:
            continue
        value = np.full(shape[-1:], 3.0)
        a[index] = value
        t[with_tensors(index)] = plait.tensor(value)
        agree(t, a, index)


def test_gradients_of_reading():
    for index in GRID:
        a, t = elements(), plait.tensor(elements(), requires_grad=True)
        part = t[with_tensors(index)]
        weight = np.arange(part.numel(), dtype=np.float64).reshape(tuple(part.shape)) + 1
        (part * plait.tensor(weight)).sum().backward()
        want = np.zeros_like(a)
        np.add.at(want, index, weight)
        agree(t.grad, want, index)


def test_gradients_of_writing():
    for index in GRID:
        if _repeats(index):
            continue
        leaf = plait.tensor(elements(), requires_grad=True)
        shape = elements()[index].shape
        value = plait.tensor(np.full(shape, 2.0), requires_grad=True)
        t = leaf * 1.0
        t[with_tensors(index)] = value
        weight = np.arange(60, dtype=np.float64).reshape(SHAPE) + 1
        (t * plait.tensor(weight)).sum().backward()
        kept = weight.copy()
        kept[index] = 0
        agree(leaf.grad, kept, index)
        agree(value.grad, weight[index], index)


def test_second_gradients():
    index = (plait.tensor([0, 0, 2]), slice(None), plait.tensor([1, 1, 4]))
    x = plait.tensor(elements() / 60, requires_grad=True)
    y = (x[index] ** 3).sum()
    (g,) = plait.autograd.grad(y, x, create_graph=True)
    (gg,) = plait.autograd.grad((g * g).sum(), x)
    a = elements() / 60
    count = np.zeros(SHAPE)
    np.add.at(count, ([0, 0, 2], slice(None), [1, 1, 4]), 1)
    np.testing.assert_allclose(gg.numpy(), 2 * (3 * count * a**2) * (6 * count * a), rtol=1e-12)


def test_views_share_memory_and_copies_do_not():
    t = plait.zeros(4, 3)
    t[1:3][0] += 1
    t[:, 0].add_(5)
    t[[0]].add_(100)
    t[t > 50].add_(1)
    assert t.tolist() == [[5, 0, 0], [6, 1, 1], [5, 0, 0], [5, 0, 0]]
    t[t == 0] += 2
    t[plait.tensor([0, 0]), 0] += 1  # read, added to and written back: once
    t[-1] *= 3
    assert t.tolist() == [[6, 2, 2], [6, 1, 1], [5, 2, 2], [15, 6, 6]]


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (4, IndexError), (-5, IndexError), ((0, 0, 0, 0), IndexError), (slice(None, None, -1), ValueError),
        (slice(None, None, 0), ValueError), (slice(0.5, 2), TypeError), (1.5, (IndexError, TypeError)),
        ("a", (IndexError, TypeError)), ((E, E), (IndexError, ValueError)), ([0.5], (IndexError, TypeError)),
        ([4], IndexError), (([[0, 1], [2]],), ValueError), (np.array([True, False]), IndexError),
        ((np.array([0, 1]), np.array([0, 1, 2])), (IndexError, ValueError)), ({}, TypeError), (1 << 70, IndexError),
        (plait.tensor([1.0]), (IndexError, TypeError)), (1j, TypeError), (object(), TypeError),
    ],
)  # fmt: skip
def test_wrong_indices(index, error):
    t = plait.tensor(elements())
    with pytest.raises(error):
        t[with_tensors(index)].tolist()
    before = t.tolist()
    with pytest.raises(error):
        t[with_tensors(index)] = 1.0
        t.tolist()
    assert plait.tensor(elements()).tolist() == before


def test_wrong_values():
    t = plait.zeros(2, 3)
    for value in (plait.ones(2), plait.ones(2, 2, 3), [1.0, 2.0], np.ones((2, 2)), "a", None, object(), 1j):
        with pytest.raises((ValueError, TypeError)):
            t[:, :] = value
    assert t.tolist() == [[0.0] * 3] * 2
    t[0] = [1, 2, 3]
    t[1] = np.float64(4)
    t[0, 0] = plait.tensor(9)
    t[1, 1:] = np.array([7, 8], dtype=np.int16)
    assert t.tolist() == [[9, 2, 3], [4, 7, 8]]
    with pytest.raises(RuntimeError):
        plait.ones(2, requires_grad=True)[0] = 1.0


@pytest.mark.parametrize("index", [1.0, {}, "a", (0, 2.5)])
def test_what_is_no_index(index):
    for error in (IndexError, TypeError):
        with pytest.raises(error, match="want integers, slices"):
            plait.ones(2, 3)[index]


def test_contiguous_tensors_are_themselves():
    t = plait.ones(2, 3)
    assert t.contiguous() is t
    assert t.T.contiguous() is not t.T and t.T.contiguous().is_contiguous()


def test_lists_that_stand_for_tuples():
    x = plait.arange(24.0).reshape(2, 3, 4)
    one, two = plait.tensor([0, 1]), plait.tensor([1, 2])
    for index in (
        [slice(0, 1), slice(1, 3)], [slice(0, 1)], [0, slice(1, 3)], [0, None], [..., 0], [[0, 1], [1, 2]], [[0, 1]],
        [one, two], [plait.tensor(0), plait.tensor(1)], [plait.tensor(0), 1], [[], []], [range(2), range(2)],
        [(0, 1), (1, 2)], [one.numpy(), two.numpy()],
    ):  # fmt: skip
        with pytest.warns(UserWarning, match="stands for a tuple"):
            found = x[index]
        assert plait.equal(found, x[tuple(index)])
        changed, wanted = x.clone(), x.clone()
        wanted[tuple(index)] = 5
        with pytest.warns(UserWarning, match="stands for a tuple"):
            changed[index] = 5
        assert plait.equal(changed, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x[[0, 1]].shape == x[range(2)].shape == (2, 3, 4) and x[[True, False]].shape == (1, 3, 4)
        assert x[[]].shape == (0, 3, 4) and x[[[0]] * 33].shape == (33, 1, 3, 4)


def test_sums_and_products_of_sizes():
    size = plait.Size([1, 2])
    three, listed = (3,), [3]
    for made in (size + three, size + plait.Size(three)):
        assert type(made) is plait.Size and made == (1, 2, 3)
    assert type(three + size) is plait.Size and three + size == (3, 1, 2)
    for made in (size * 2, 2 * size, size * np.int64(2)):
        assert type(made) is plait.Size and made == (1, 2, 1, 2)
    assert (size + np.array(1)).tolist() == (np.array(1) + size).tolist() == [2, 3]
    assert (size + np.array([1, 2])).tolist() == [2, 4] and (size * np.array(2)).tolist() == [2, 4]
    for wrong in (lambda: size + listed, lambda: size + 3, lambda: listed + size, lambda: size * 2.0):
        with pytest.raises(TypeError):
            wrong()
