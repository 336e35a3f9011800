"""Special functions, under PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait import _ops
from plait._engine.missing_names import absent as _absent
from plait._functions import public
from plait._functions._checked import overridable
from plait._functions._common import operand, store, with_out

if TYPE_CHECKING:
    from plait._tensor import Tensor

airy_ai = with_out(_ops.special_airy_ai, "airy_ai")
bessel_j0 = with_out(_ops.special_bessel_j0, "bessel_j0")
bessel_j1 = with_out(_ops.special_bessel_j1, "bessel_j1")
bessel_y0 = with_out(_ops.special_bessel_y0, "bessel_y0")
bessel_y1 = with_out(_ops.special_bessel_y1, "bessel_y1")
digamma = psi = public.digamma
entr = with_out(_ops.entr)
erf, erfc, erfinv = public.erf, public.erfc, public.erfinv
erfcx = with_out(_ops.special_erfcx, "erfcx")
exp2, expm1, log1p = public.exp2, public.expm1, public.log1p
expit = public.sigmoid
gammainc, gammaincc = public.igamma, public.igammac
gammaln = public.lgamma
i0, i0e = public.i0, with_out(_ops.special_i0e, "i0e")
i1, i1e = with_out(_ops.special_i1, "i1"), with_out(_ops.special_i1e, "i1e")
log_ndtr = with_out(_ops.special_log_ndtr, "log_ndtr")
ndtr, ndtri = with_out(_ops.special_ndtr, "ndtr"), with_out(_ops.special_ndtri, "ndtri")
modified_bessel_i0, modified_bessel_i1 = i0, i1
modified_bessel_k0 = with_out(_ops.special_modified_bessel_k0, "modified_bessel_k0")
modified_bessel_k1 = with_out(_ops.special_modified_bessel_k1, "modified_bessel_k1")
scaled_modified_bessel_k0 = with_out(_ops.special_scaled_modified_bessel_k0, "scaled_modified_bessel_k0")
scaled_modified_bessel_k1 = with_out(_ops.special_scaled_modified_bessel_k1, "scaled_modified_bessel_k1")
polygamma = public.polygamma
sinc = public.sinc
spherical_bessel_j0 = with_out(_ops.special_spherical_bessel_j0, "spherical_bessel_j0")
log_softmax, logit, logsumexp, softmax = public.log_softmax, public.logit, public.logsumexp, public.softmax
multigammaln, round = public.mvlgamma, public.round


def _of_two(name: str, of: Any) -> Any:
    def function(input: Tensor | float, other: Tensor | float, *, out: Tensor | None = None) -> Tensor:
        return store(out, of(operand(input), operand(other)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (of.__doc__ or "").split("\n", maxsplit=1)[0]
    return overridable(function)


xlog1py, xlogy, zeta = (
    _of_two("xlog1py", _ops.special_xlog1py),
    _of_two("xlogy", _ops.xlogy),
    _of_two("zeta", _ops.zeta),
)


def _polynomial(name: str) -> Any:
    of = getattr(_ops, f"special_{name}")

    def function(x: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
        return store(out, of(operand(x), operand(n)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (of.__doc__ or "").split("\n", maxsplit=1)[0]
    return overridable(function)


chebyshev_polynomial_t, chebyshev_polynomial_u, chebyshev_polynomial_v, chebyshev_polynomial_w = (
    _polynomial(f"chebyshev_polynomial_{kind}") for kind in "tuvw"
)
(
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
) = (_polynomial(f"shifted_chebyshev_polynomial_{kind}") for kind in "tuvw")
hermite_polynomial_h, hermite_polynomial_he = _polynomial("hermite_polynomial_h"), _polynomial("hermite_polynomial_he")
laguerre_polynomial_l, legendre_polynomial_p = (
    _polynomial("laguerre_polynomial_l"),
    _polynomial("legendre_polynomial_p"),
)


def __getattr__(name: str) -> Any:
    raise _absent("special", "plait.special", name)
