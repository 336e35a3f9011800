"""Functions at the top of the package that are generated ones with `out`, and other names of functions."""

from plait import _ops
from plait._functions import arithmetic as _arithmetic
from plait._functions import conversion as _conversion
from plait._functions import matrix as _matrix
from plait._functions import order as _order
from plait._functions import shape as _shape
from plait._functions._common import numpy_names as _numpy_names
from plait._functions._common import with_out as _with_out

abs = absolute = _with_out(_ops.abs)
acos = arccos = _with_out(_ops.acos)
acosh = arccosh = _with_out(_ops.acosh)
asin = arcsin = _with_out(_ops.asin)
asinh = arcsinh = _with_out(_ops.asinh)
atan = arctan = _with_out(_ops.atan)
atan2 = arctan2 = _with_out(_ops.atan2)
atanh = arctanh = _with_out(_ops.atanh)
bitwise_and, bitwise_or, bitwise_xor = (
    _with_out(_ops.bitwise_and),
    _with_out(_ops.bitwise_or),
    _with_out(_ops.bitwise_xor),
)
bitwise_not = _with_out(_ops.bitwise_not)
bitwise_left_shift, bitwise_right_shift = _with_out(_ops.bitwise_left_shift), _with_out(_ops.bitwise_right_shift)
bmm, mm, mv, dot, matmul = (_with_out(f) for f in (_ops.bmm, _ops.mm, _ops.mv, _ops.dot, _ops.matmul))
spmm = mm
ceil, floor, trunc, frac = _with_out(_ops.ceil), _with_out(_ops.floor), _with_out(_ops.trunc), _with_out(_ops.frac)
fix = trunc
complex, polar = _with_out(_ops.complex), _with_out(_ops.polar)
copysign = _with_out(_ops.copysign)
cos, cosh, sin, sinh, tan, tanh = (
    _with_out(f) for f in (_ops.cos, _ops.cosh, _ops.sin, _ops.sinh, _ops.tan, _ops.tanh)
)
deg2rad, rad2deg = _with_out(_ops.deg2rad), _with_out(_ops.rad2deg)
digamma, lgamma = _with_out(_ops.digamma), _with_out(_ops.lgamma)
eq, ne, lt, le, gt, ge = (_with_out(f) for f in (_ops.eq, _ops.ne, _ops.lt, _ops.le, _ops.gt, _ops.ge))
not_equal, less, less_equal, greater, greater_equal = ne, lt, le, gt, ge
erf, erfc, erfinv = _with_out(_ops.erf), _with_out(_ops.erfc), _with_out(_ops.erfinv)
exp, exp2, expm1 = _with_out(_ops.exp), _with_out(_ops.exp2), _with_out(_ops.expm1)
floor_divide, fmod, remainder = _with_out(_ops.floor_divide), _with_out(_ops.fmod), _with_out(_ops.remainder)
fmax, fmin, maximum, minimum = (_with_out(f) for f in (_ops.fmax, _ops.fmin, _ops.maximum, _ops.minimum))
gcd, lcm = _with_out(_ops.gcd), _with_out(_ops.lcm)
hypot = _with_out(_ops.hypot)
index_select, index_copy = _with_out(_ops.index_select), _ops.index_copy
kron, inner, outer = _with_out(_ops.kron), _with_out(_ops.inner), _with_out(_ops.outer)
ldexp = _with_out(_ops.ldexp)
lerp = _with_out(_ops.lerp)
log, log10, log1p, log2 = (_with_out(f) for f in (_ops.log, _ops.log10, _ops.log1p, _ops.log2))
logaddexp, logaddexp2 = _with_out(_ops.logaddexp), _with_out(_ops.logaddexp2)
logical_and, logical_or, logical_xor = (
    _with_out(_ops.logical_and),
    _with_out(_ops.logical_or),
    _with_out(_ops.logical_xor),
)
logical_not = _with_out(_ops.logical_not)
masked_select = _with_out(_ops.masked_select)
mul = multiply = _with_out(_ops.mul)
neg = negative = _with_out(_ops.neg)
nextafter = _with_out(_ops.nextafter)
reciprocal = _with_out(_ops.reciprocal)
rsqrt, sqrt, square = _with_out(_ops.rsqrt), _with_out(_ops.sqrt), _with_out(_ops.square)
sigmoid = _with_out(_ops.sigmoid)
sign, sgn, signbit = _with_out(_ops.sign), _with_out(_ops.sgn), _with_out(_ops.signbit)
sinc = _with_out(_ops.sinc)
frexp, hardshrink, msort, vdot = (_with_out(f) for f in (_ops.frexp, _ops.hardshrink, _ops.msort, _ops.vdot))
take, trace, tril, triu = _with_out(_ops.take), _ops.trace, _with_out(_ops.tril), _with_out(_ops.triu)
true_divide = _with_out(_ops.true_divide)
xlogy = _with_out(_ops.xlogy)
scatter_add = _with_out(_ops.scatter_add)
diag = _with_out(_ops.diag)
hstack, vstack, dstack, column_stack = (
    _with_out(f) for f in (_ops.hstack, _ops.vstack, _ops.dstack, _ops.column_stack)
)
row_stack = vstack
i0 = _with_out(_ops.i0)
polygamma = _with_out(_ops.polygamma)
unsqueeze, unbind, chunk = _numpy_names(_ops.unsqueeze), _numpy_names(_ops.unbind), _ops.chunk
roll, narrow, select = _ops.roll, _ops.narrow, _ops.select
divide, clip = _arithmetic.div, _arithmetic.clamp
concat = concatenate = _shape.cat
moveaxis = movedim = _shape.movedim
transpose = _ops.transpose
adjoint = _conversion.adjoint
trapz = _order.trapezoid
unsafe_chunk = _ops.chunk
logdet, slogdet = _matrix.logdet, _matrix.slogdet
conj, conj_physical, real = _conversion.conj, _conversion.conj_physical, _conversion.real
resolve_conj, resolve_neg = _conversion.resolve_conj, _conversion.resolve_neg
