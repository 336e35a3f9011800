"""Operations on lists of tensors are those on each of them."""

import plait
import pytest
from plait._functions.foreach import NAMES


def tensors(start=0.2):
    return [plait.arange(3.0) / 5 + start, plait.full([2, 2], 0.4), plait.tensor(0.7)]


BINARY = ["add", "clamp_max", "clamp_min", "div", "maximum", "minimum", "mul", "pow", "sub"]
UNARY = sorted(NAMES - {*BINARY, "addcdiv", "addcmul", "lerp"})


@pytest.mark.parametrize("name", UNARY)
def test_of_one_list(name):
    wanted = [getattr(t, name)().tolist() for t in tensors()]
    xs = tensors()
    assert [t.tolist() for t in getattr(plait, f"_foreach_{name}")(xs)] == wanted
    assert getattr(plait, f"_foreach_{name}_")(xs) is None and [t.tolist() for t in xs] == wanted


@pytest.mark.parametrize("name", BINARY)
def test_of_a_list_and_others(name):
    ys = tensors(0.3)
    for other in (ys, 0.5, [0.1, 0.2, 0.3]):
        xs = tensors()
        each = other if isinstance(other, list) else [other] * 3
        number = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(name, name)
        method = name if other is ys else number
        wanted = [getattr(t, method)(o).tolist() for t, o in zip(xs, each, strict=True)]
        assert [t.tolist() for t in getattr(plait, f"_foreach_{name}")(xs, other)] == wanted
        assert getattr(plait, f"_foreach_{name}_")(xs, other) is None and [t.tolist() for t in xs] == wanted


def test_of_several_lists():
    xs, ys, zs = tensors(), tensors(0.3), tensors(0.6)
    for name in ("addcdiv", "addcmul"):
        for value in (2.0, [1.0, 2.0, 3.0]):
            each = value if isinstance(value, list) else [value] * 3
            wanted = [getattr(x, name)(y, z, value=v).tolist() for x, y, z, v in zip(xs, ys, zs, each, strict=True)]
            function = getattr(plait, f"_foreach_{name}")
            assert [t.tolist() for t in function(xs, ys, zs, value)] == wanted
    assert [t.tolist() for t in plait._foreach_lerp(xs, ys, 0.25)] == [
        x.lerp(y, 0.25).tolist() for x, y in zip(xs, ys, strict=True)
    ]
    assert [t.tolist() for t in plait._foreach_add(xs, ys, alpha=-2)] == [
        x.add(y, alpha=-2).tolist() for x, y in zip(xs, ys, strict=True)
    ]


def test_norms_copies_and_zeros():
    xs = tensors()
    assert [t.tolist() for t in plait._foreach_norm(xs, 1)] == [x.abs().sum().tolist() for x in xs]
    assert [t.tolist() for t in plait._foreach_max(xs)] == [x.max().tolist() for x in xs]
    plait._foreach_copy_(xs, tensors(0.9))
    assert [x.tolist() for x in xs] == [y.tolist() for y in tensors(0.9)]
    plait._foreach_zero_(xs)
    assert all(not x.any() for x in xs)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="_foreach_add: got 3 tensors and a list of 2"):
        plait._foreach_add(tensors(), [1.0, 2.0])
    with pytest.raises(AttributeError, match="no attribute '_foreach_nothing'"):
        plait._foreach_nothing
