"""States of random generators: tensors of bytes, which are kept, copied and saved like others."""

import copy
import io

import plait
import pytest
from plait import nn


def drawn(**options):
    """Draws numbers in many ways."""
    return [
        plait.rand(4, **options), plait.randn(3, **options), plait.randperm(6, **options),
        plait.randint(0, 100, (4,), **options), plait.bernoulli(plait.full((5,), 0.5), **options),
        plait.multinomial(plait.ones(5), 3, **options),
    ]  # fmt: skip


def same(a, b):
    return all(plait.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_state_goes_back_as_often_as_is_asked():
    plait.manual_seed(-3)
    plait.rand(5)
    state = plait.get_rng_state()
    assert (state.dtype, state.shape, state.device.type) == (plait.uint8, (16,), "cpu")
    kept = state.clone()
    first = [*drawn(), nn.functional.dropout(plait.ones(6), 0.5)]
    assert plait.equal(state, kept) and not plait.equal(plait.get_rng_state(), state)
    for again in (state, copy.deepcopy(state), plait.tensor(state.tolist(), dtype=plait.uint8), state.cpu()):
        plait.set_rng_state(again)
        assert same(first, [*drawn(), nn.functional.dropout(plait.ones(6), 0.5)])
    plait.manual_seed(8)
    plait.random.set_rng_state(state)
    assert plait.initial_seed() == 2**64 - 3 and same(first[:6], drawn())


def test_states_are_saved_and_shared_between_generators():
    plait.manual_seed(11)
    g = plait.Generator().manual_seed(5)
    drawn(generator=g)
    file = io.BytesIO()
    plait.save({"own": g.get_state(), "default": plait.get_rng_state()}, file)
    file.seek(0)
    loaded = plait.load(file)
    want, default = drawn(generator=g), drawn()
    other = plait.Generator()
    assert other.set_state(loaded["own"]) is None
    assert same(want, drawn(generator=other))
    other.set_state(loaded["default"])
    assert same(default, drawn(generator=other))
    with plait.device("meta"):
        assert plait.get_rng_state().device.type == "cpu"


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ((3, 0), TypeError, "want a tensor of bytes on the CPU, as get_state returns, got tuple"),
        (plait.zeros(16), TypeError, "got plait.float32 on cpu"),
        (plait.zeros(3, dtype=plait.uint8), RuntimeError, r"want shape \[16\], as get_state returns, got \[3\]"),
    ],
)
def test_other_states_are_refused(state, error, text):
    before = plait.get_rng_state()
    with pytest.raises(error, match=text):
        plait.set_rng_state(state)
    assert plait.equal(plait.get_rng_state(), before)
