"""What a caller's own function raises comes out as it is."""

import plait
import plait.nn.functional as F
import pytest

ERRORS = [
    AttributeError("mine"), IndexError("mine"), KeyError("mine"), TypeError("mine"), ValueError("mine"),
    StopIteration("mine"), ZeroDivisionError("mine"), OverflowError("mine"),
]  # fmt: skip


def raising(error):
    def function(*_args, **_kwargs):
        raise error

    return function


class Index:
    def __init__(self, error):
        self.error = error

    def __index__(self):
        raise self.error

    def __iter__(self):
        raise self.error


def calls(error):
    f, x = raising(error), plait.ones(2, 3)
    # `map_` is not a guarded function but belongs to the class.
    yield "triplet", lambda: F.triplet_margin_with_distance_loss(x, x, x, distance_function=f)
    yield "apply_", lambda: plait.ones(1).apply_(f)
    yield "map_", lambda: plait.ones(1).map_(plait.ones(1), f)
    yield "vmap", lambda: plait.vmap(f)(x)
    yield "grad", lambda: plait.func.grad(f)(x)
    yield "hook", lambda: hooked(f)
    yield "module", lambda: plait.nn.Sequential(plait.nn.Linear(3, 3), Forward(f))(x)
    yield "lambda policy", lambda: plait.optim.lr_scheduler.LambdaLR(optimizer(), f)
    if not isinstance(error, TypeError | AttributeError | StopIteration):  # which say that a value is no number
        yield "index", lambda: plait.narrow(x, 0, Index(error), 1)


class Forward(plait.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def hooked(function):
    x = plait.ones(1, requires_grad=True)
    x.register_hook(function)
    (x * 2).backward()


def optimizer():
    return plait.optim.SGD([plait.ones(1, requires_grad=True)], lr=0.1)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_errors_pass_unchanged(error):
    for name, call in calls(error):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error, name


def test_errors_of_the_package_still_name_the_function():
    with pytest.raises(TypeError, match="meshgrid: "):
        plait.meshgrid(3)
    with pytest.raises(TypeError, match="triplet_margin_with_distance_loss: "):
        F.triplet_margin_with_distance_loss(*[plait.ones(2, 3)] * 3, distance_function=3)
