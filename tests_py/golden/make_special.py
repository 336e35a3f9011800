# ruff: noqa: E501
"""Writes special.json: values of special functions to 17 digits. Run it where PyTorch, and with it mpmath, is installed.

Values at ordinary points are mpmath's; those at zeros, infinities, NaN and outside of domains are PyTorch's.
"""

import json
import math
from pathlib import Path

import mpmath as mp
import torch

mp.mp.dps = 40
inf, nan = math.inf, math.nan

POSITIVE = [1e-6, 0.03, 0.5, 0.99, 1.01, 1.9, 2.1, 3.3, 5.0, 9.7, 20.5, 29.9, 30.1, 88.0, 250.0, 690.0, 705.0]
REAL = [-x for x in POSITIVE[1:11]] + POSITIVE[:11]
UNIT = [1e-300, 1e-20, 1e-5, 0.03, 0.0999, 0.1001, 0.3, 0.49999, 0.5000001, 0.75, 0.8999, 0.9001, 0.97, 0.999999]
EDGES = [0.0, -0.0, inf, -inf, nan, -1.5, 1.0, -1.0, 2.0]


def v(n, x):
    """Returns the Chebyshev polynomial of the third kind."""
    t = mp.acos(x)
    return mp.cos((n + mp.mpf(1) / 2) * t) / mp.cos(t / 2)


def w(n, x):
    """Returns the Chebyshev polynomial of the fourth kind."""
    t = mp.acos(x)
    return mp.sin((n + mp.mpf(1) / 2) * t) / mp.sin(t / 2)


def hermite_he(n, x):
    """Returns the probabilists' Hermite polynomial."""
    return mp.hermite(n, x / mp.sqrt(2)) / mp.mpf(2) ** (mp.mpf(n) / 2)


ONE = {
    "airy_ai": (mp.airyai, [-80.0, -25.5, -10.1, -9.9, -6.2, -4.1, -2.01, -1.99, -1.0, -0.2, 0.3, 0.99, 1.01, 3.0, 15.0, 50.0]),
    "bessel_j0": (lambda x: mp.besselj(0, x), REAL), "bessel_j1": (lambda x: mp.besselj(1, x), REAL),
    "bessel_y0": (lambda x: mp.bessely(0, x), POSITIVE), "bessel_y1": (lambda x: mp.bessely(1, x), POSITIVE),
    "digamma": (lambda x: mp.psi(0, x), POSITIVE), "entr": (lambda x: -x * mp.log(x), POSITIVE),
    "erf": (mp.erf, REAL), "erfc": (mp.erfc, [x for x in REAL if x < 10]), "erfinv": (mp.erfinv, [-0.99, -0.4, 1e-5, 0.2, 0.9999]),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), [-20.0, -3.3, -0.5, 1e-3, 0.7, 2.0, 8.1, 24.9, 25.1, 300.0]),
    "exp2": (lambda x: mp.mpf(2) ** x, REAL), "expit": (lambda x: 1 / (1 + mp.exp(-x)), REAL), "expm1": (mp.expm1, REAL),
    "gammaln": (lambda x: mp.log(abs(mp.gamma(x))), POSITIVE), "i0": (lambda x: mp.besseli(0, x), REAL), "i1": (lambda x: mp.besseli(1, x), REAL),
    "i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), REAL + POSITIVE), "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), REAL + POSITIVE),
    "log1p": (mp.log1p, POSITIVE), "ndtr": (mp.ncdf, [x for x in REAL if abs(x) < 10]),
    "log_ndtr": (lambda x: mp.log(mp.ncdf(x)), [-100.0, -20.0, -5.0, -1.01, -0.99, -0.1, 0.4, 3.0, 7.0]),
    "logit": (lambda x: mp.log(x / (1 - x)), UNIT), "ndtri": (lambda p: -mp.sqrt(2) * mp.erfinv(1 - 2 * p), UNIT[2:]),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), POSITIVE), "modified_bessel_k1": (lambda x: mp.besselk(1, x), POSITIVE),
    "scaled_modified_bessel_k0": (lambda x: mp.besselk(0, x) * mp.exp(x), POSITIVE),
    "scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), POSITIVE),
    "sinc": (mp.sincpi, [0.2, 0.5, 1.3, -2.7]), "spherical_bessel_j0": (mp.sinc, REAL),
}  # fmt: skip

POLYNOMIALS = {
    "chebyshev_polynomial_t": mp.chebyt, "chebyshev_polynomial_u": mp.chebyu, "chebyshev_polynomial_v": v, "chebyshev_polynomial_w": w,
    "shifted_chebyshev_polynomial_t": lambda n, x: mp.chebyt(n, 2 * x - 1), "shifted_chebyshev_polynomial_u": lambda n, x: mp.chebyu(n, 2 * x - 1),
    "shifted_chebyshev_polynomial_v": lambda n, x: v(n, 2 * x - 1), "shifted_chebyshev_polynomial_w": lambda n, x: w(n, 2 * x - 1),
    "hermite_polynomial_h": mp.hermite, "hermite_polynomial_he": hermite_he,
    "laguerre_polynomial_l": lambda n, x: mp.laguerre(n, 0, x), "legendre_polynomial_p": mp.legendre,
}  # fmt: skip

GAMMA = [
    (a, x)
    for a in [0.01, 0.5, 1.0, 3.7, 11.9, 12.1, 60.0, 1000.0]
    for x in [0.001 * a, 0.3 * a, 0.9 * a, a, 1.1 * a + 0.1, 3 * a + 1]
]

TWO = {
    "gammainc": (lambda a, x: mp.gammainc(a, 0, x, regularized=True), GAMMA),
    "gammaincc": (lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), [(a, x) for a, x in GAMMA if x >= 0.3 * a]),
    "xlog1py": (lambda x, y: x * mp.log1p(y), [(2.5, 1e-9), (0.3, -0.7), (-1.0, 4.0)]),
    "xlogy": (lambda x, y: x * mp.log(y), [(2.5, 1e-9), (0.3, 0.7), (-1.0, 4.0)]),
    "zeta": (mp.zeta, [(1.1, 0.5), (2.0, 1.0), (4.5, 3.25), (12.0, 0.1)]),
    **{
        name: ((lambda x, n, of=of: of(int(n), x)), [(x, n) for x in [0.3, 0.77, 0.999] for n in [0.0, 1.0, 2.0, 7.0, 12.0]])
        for name, of in POLYNOMIALS.items()
    },
}  # fmt: skip


def main() -> None:
    """Writes the file."""
    values = {}
    for name, (of, points) in ONE.items():
        edges = getattr(torch.special, name)(torch.tensor(EDGES, dtype=torch.float64)).tolist()
        values[name] = {
            "points": [[x] for x in points],
            "values": [float(of(mp.mpf(x))) for x in points],
            "edges": edges,
        }
    for name, (of, points) in TWO.items():
        pairs = [[x, y] for x in EDGES for y in EDGES]
        at = torch.tensor(pairs, dtype=torch.float64)
        edges = getattr(torch.special, name)(at[:, 0], at[:, 1]).tolist()
        values[name] = {
            "points": points,
            "values": [float(of(mp.mpf(x), mp.mpf(y))) for x, y in points],
            "edges": edges,
        }
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(d)}" for k, d in values.items())
    (Path(__file__).parent / "special.json").write_text(
        '{\n"edges": ' + json.dumps(EDGES) + ",\n" + lines[1:] + "\n}\n", "utf-8"
    )


if __name__ == "__main__":
    main()
