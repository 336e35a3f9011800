"""Windows against PyTorch's."""

import json
from pathlib import Path

import plait
import pytest

CASES = json.loads((Path(__file__).parent / "golden/windows.json").read_text("utf-8"))


@pytest.mark.parametrize(("name", "n", "periodic", "extra", "want"), CASES)
def test_values(name, n, periodic, extra, want):
    got = getattr(plait, name)(n, periodic, **extra, dtype=plait.float64)
    assert got.tolist() == pytest.approx(want, abs=1e-14)


def test_options():
    assert plait.hann_window(4).dtype == plait.float32
    assert plait.hann_window(4, requires_grad=True).requires_grad
    with pytest.raises(TypeError, match="floating-point"):
        plait.hann_window(4, dtype=plait.int64)
    with pytest.raises(TypeError, match="unexpected"):
        plait.kaiser_window(4, sides=2)
    with pytest.raises(ValueError, match="at least 0"):
        plait.bartlett_window(-1)
