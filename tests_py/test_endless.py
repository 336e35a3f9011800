"""What would have no end: sequences that say how long they are and go on, and what the package keeps of a long loop."""

import gc

import plait
import pytest
from plait import _core, optim


def tensor_count() -> int:
    """How many tensors live, without those that earlier tests left in reference cycles."""
    gc.collect()
    return _core.bind_TensorCount()


class Endless:
    """A sequence of a length, whose elements never end."""

    def __init__(self, element, length=2):
        self.element, self.length = element, length

    def __len__(self):
        return self.length

    def __getitem__(self, _):
        return self.element


@pytest.mark.parametrize(
    "use",
    [
        lambda: plait.zeros(Endless(1)),
        lambda: plait.ones(4).reshape(Endless(2)),
        lambda: plait.ones(2, 2).sum(Endless(0)),
        lambda: plait.cat(Endless(plait.ones(2))),
        lambda: plait.stack(Endless(plait.ones(2), 1)),
        lambda: plait.nn.functional.interpolate(plait.ones(1, 1, 2, 2), scale_factor=Endless(2.0)),
        lambda: plait.ones(2, 2).permute(Endless(0)),
    ],
)
def test_a_sequence_without_end_is_an_error(use):
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        use()


def test_large_integers_are_not_kept():
    x = plait.zeros(1, dtype=plait.int64)

    def add(n):
        for i in range(n):
            assert (x + (2**60 + i)).item() == 2**60 + i

    add(100)
    before = tensor_count()
    add(200)
    assert tensor_count() == before


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_releases_the_losses(search):
    p = plait.nn.Parameter(plait.tensor([3.0, -2.0]))
    o = optim.LBFGS([p], max_iter=3, history_size=2, line_search_fn=search)

    def closure():
        o.zero_grad()
        loss = ((p - plait.tensor([1.0, 2.0])) ** 4).sum()
        loss.backward()
        return loss

    for _ in range(4):
        o.step(closure)
    before = tensor_count()
    for _ in range(10):
        o.step(closure)
    assert tensor_count() == before
