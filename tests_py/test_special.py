"""plait.special against exact values, and PyTorch's at the edges."""

import json
import math
from pathlib import Path

import plait
import pytest
from plait import special

GOLDEN = json.loads((Path(__file__).parent / "golden/special.json").read_text("utf-8"))
EDGES = GOLDEN.pop("edges")
# Where plait's values at edges are not PyTorch's: the limits at infinity, NaN for NaN, and NaN for a degree that
# is infinite.
LIMITS = {"airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i1"}
NAN_STAYS = {"gammainc", "gammaincc", "zeta"}
# Relative and absolute errors in float32 where the function itself enlarges the rounding of what it is made of.
NARROW = {"ndtr": (1e-5, 0), "logit": (2e-6, 1e-7)}


def differs(name, point):
    if name in LIMITS:
        return math.isinf(point[0])
    if name in NAN_STAYS:
        return any(map(math.isnan, point)) or math.isinf(point[0]) or (name == "zeta" and point[1] == math.inf)
    return "polynomial" in name and (math.isnan(point[0]) or not math.isfinite(point[1]))


def same(a, b):
    return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-15)


@pytest.mark.parametrize("name", GOLDEN)
def test_values(name):
    golden, of = GOLDEN[name], getattr(special, name)
    columns = [plait.tensor(c, dtype=plait.float64) for c in zip(*golden["points"], strict=True)]
    got = of(*columns).tolist()
    wrong = [
        (p, g, w)
        for p, g, w in zip(golden["points"], got, golden["values"], strict=True)
        if not math.isclose(g, w, rel_tol=2e-13, abs_tol=4e-16)
    ]
    assert not wrong
    narrow = of(*(c.float() for c in columns))
    assert narrow.dtype == plait.float32
    wide = of(*(c.float().double() for c in columns))
    rtol, atol = NARROW.get(name, (2e-6, 1e-37))
    assert plait.allclose(narrow, wide.float(), rtol=rtol, atol=atol)
    assert of(*(c.half() for c in columns)).dtype == plait.float16


@pytest.mark.parametrize("name", GOLDEN)
def test_edges(name):
    golden, of = GOLDEN[name], getattr(special, name)
    points = [(x,) for x in EDGES] if len(golden["edges"]) == len(EDGES) else [(x, y) for x in EDGES for y in EDGES]
    columns = [plait.tensor(c, dtype=plait.float64) for c in zip(*points, strict=True)]
    got = of(*columns).tolist()
    triples = [t for t in zip(points, got, golden["edges"], strict=True) if not differs(name, t[0])]
    assert triples
    assert not [t for t in triples if not same(t[1], t[2])]


def test_limits_and_nan():
    inf, nan = plait.tensor([math.inf]), plait.tensor([math.nan])
    for name in LIMITS:
        assert getattr(special, name)(inf).item() in (0.0, math.inf)
        assert math.isnan(getattr(special, name)(nan).item())
    assert special.zeta(plait.tensor([1.5, 2, 3]), inf).tolist() == [0, 0, 0]
    assert special.polygamma(2, inf).item() == 0
    for name in NAN_STAYS | {n for n in GOLDEN if "polynomial" in n}:
        assert math.isnan(getattr(special, name)(plait.tensor([1.5]), nan).item())
        assert math.isnan(getattr(special, name)(nan, plait.tensor([1.5])).item())


def test_integers_numbers_and_out():
    x = plait.tensor([1, 2, 3])
    assert special.bessel_j0(x).dtype == plait.float32
    assert special.hermite_polynomial_h(x, x).tolist() == [2, 14, 180]
    assert special.legendre_polynomial_p(x.double(), 1).tolist() == [1, 2, 3]
    assert special.zeta(2, plait.tensor([1.0])).item() == pytest.approx(math.pi**2 / 6)
    out = plait.empty(3)
    assert special.erfcx(x, out=out) is out
    assert special.multigammaln(plait.tensor([3.0]), 2).item() == pytest.approx(
        math.log(math.pi) / 2 + math.lgamma(3) + math.lgamma(2.5)
    )
    assert special.psi is special.digamma
    assert special.softmax(plait.zeros(2), 0).tolist() == [0.5, 0.5]


def test_gradients_that_are_formulas():
    for name in ["i0e", "i1e", "erfcx", "log_ndtr", "bessel_j1", "bessel_y0", "modified_bessel_k1", "ndtri"]:
        x = plait.tensor([0.3, 0.7], dtype=plait.float64, requires_grad=True)
        assert plait.autograd.gradcheck(getattr(special, name), x)
    x = plait.tensor([0.0, 1e-9], dtype=plait.float64, requires_grad=True)
    special.spherical_bessel_j0(x).sum().backward()
    assert x.grad.tolist() == pytest.approx([0.0, -1e-9 / 3])


def test_degrees_that_would_take_for_ever():
    x = plait.ones(2, 3)
    for name in ("chebyshev_polynomial_w", "hermite_polynomial_h", "legendre_polynomial_p", "laguerre_polynomial_l"):
        with pytest.raises(ValueError, match="more than is computed, 1048576"):
            getattr(plait.special, name)(x, 1 << 40).tolist()
