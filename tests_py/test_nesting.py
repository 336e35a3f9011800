"""Sequences that contain themselves, or are nested too deep, are refused."""

import plait
import pytest


def around(inner, depth):
    for _ in range(depth):
        inner = [inner]
    return inner


def itself():
    made = []
    made.append(made)
    return made


def later():
    made = [plait.ones(1)]
    made.append(made)
    return made


def pair():
    a, b = [], []
    a.append((b,))
    b.append(a)
    return a


@pytest.mark.filterwarnings("ignore:index. a sequence")
@pytest.mark.parametrize(
    "make", [itself, later, pair, lambda: around(1.0, 100_000), lambda: around(plait.ones(1), 100)]
)
def test_sequences_that_do_not_end(make):
    x = plait.ones(3)
    for call in (
        plait.tensor, plait.as_tensor, plait.asarray, x.new_tensor, plait.Tensor, plait.FloatTensor,
        plait.array_api.asarray, lambda v: x[v], lambda v: x.__setitem__(v, 1.0), lambda v: x.__setitem__(0, v),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError, IndexError, RecursionError)):
            call(make())


def test_as_deep_as_tensors_go():
    assert plait.tensor(around(plait.tensor(1.5), 12)).shape == (1,) * 12
    with pytest.raises(ValueError, match="12"):
        plait.tensor(around(1.5, 13))
    with pytest.raises(ValueError, match="12"):
        plait.tensor(around(plait.tensor(1.5), 13))
