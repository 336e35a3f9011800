"""Functions at the top of the package that are generated ones with `out`, and other names of functions."""

from __future__ import annotations

from plait import _ops
from plait._functions import arithmetic, conversion, matrix, order, shape
from plait._functions._common import numpy_names, with_out

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "adjoint",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bmm",
    "ceil",
    "chunk",
    "clip",
    "column_stack",
    "concat",
    "concatenate",
    "conj",
    "conj_physical",
    "copysign",
    "cos",
    "cosh",
    "deg2rad",
    "diag",
    "digamma",
    "divide",
    "dot",
    "dstack",
    "eq",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "fix",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "frexp",
    "gcd",
    "ge",
    "greater",
    "greater_equal",
    "gt",
    "hardshrink",
    "hstack",
    "hypot",
    "i0",
    "index_copy",
    "index_select",
    "inner",
    "kron",
    "lcm",
    "ldexp",
    "le",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "masked_select",
    "matmul",
    "maximum",
    "minimum",
    "mm",
    "moveaxis",
    "movedim",
    "msort",
    "mul",
    "multiply",
    "mv",
    "narrow",
    "ne",
    "neg",
    "negative",
    "nextafter",
    "not_equal",
    "outer",
    "polygamma",
    "rad2deg",
    "real",
    "reciprocal",
    "remainder",
    "resolve_conj",
    "resolve_neg",
    "roll",
    "row_stack",
    "rsqrt",
    "scatter_add",
    "select",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "slogdet",
    "sqrt",
    "square",
    "take",
    "tan",
    "tanh",
    "trace",
    "transpose",
    "trapz",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "unbind",
    "unsafe_chunk",
    "unsqueeze",
    "vdot",
    "vstack",
    "xlogy",
]  # fmt: skip

abs = absolute = with_out(_ops.abs)
acos = arccos = with_out(_ops.acos)
acosh = arccosh = with_out(_ops.acosh)
asin = arcsin = with_out(_ops.asin)
asinh = arcsinh = with_out(_ops.asinh)
atan = arctan = with_out(_ops.atan)
atan2 = arctan2 = with_out(_ops.atan2)
atanh = arctanh = with_out(_ops.atanh)
bitwise_and, bitwise_or, bitwise_xor = with_out(_ops.bitwise_and), with_out(_ops.bitwise_or), with_out(_ops.bitwise_xor)
bitwise_not = with_out(_ops.bitwise_not)
bitwise_left_shift, bitwise_right_shift = with_out(_ops.bitwise_left_shift), with_out(_ops.bitwise_right_shift)
bmm, mm, mv, dot, matmul = (with_out(f) for f in (_ops.bmm, _ops.mm, _ops.mv, _ops.dot, _ops.matmul))
ceil, floor, trunc, frac = with_out(_ops.ceil), with_out(_ops.floor), with_out(_ops.trunc), with_out(_ops.frac)
fix = trunc
copysign = with_out(_ops.copysign)
cos, cosh, sin, sinh, tan, tanh = (with_out(f) for f in (_ops.cos, _ops.cosh, _ops.sin, _ops.sinh, _ops.tan, _ops.tanh))
deg2rad, rad2deg = with_out(_ops.deg2rad), with_out(_ops.rad2deg)
digamma, lgamma = with_out(_ops.digamma), with_out(_ops.lgamma)
eq, ne, lt, le, gt, ge = (with_out(f) for f in (_ops.eq, _ops.ne, _ops.lt, _ops.le, _ops.gt, _ops.ge))
not_equal, less, less_equal, greater, greater_equal = ne, lt, le, gt, ge
erf, erfc, erfinv = with_out(_ops.erf), with_out(_ops.erfc), with_out(_ops.erfinv)
exp, exp2, expm1 = with_out(_ops.exp), with_out(_ops.exp2), with_out(_ops.expm1)
floor_divide, fmod, remainder = with_out(_ops.floor_divide), with_out(_ops.fmod), with_out(_ops.remainder)
fmax, fmin, maximum, minimum = (with_out(f) for f in (_ops.fmax, _ops.fmin, _ops.maximum, _ops.minimum))
gcd, lcm = with_out(_ops.gcd), with_out(_ops.lcm)
hypot = with_out(_ops.hypot)
index_select, index_copy = with_out(_ops.index_select), _ops.index_copy
kron, inner, outer = with_out(_ops.kron), with_out(_ops.inner), with_out(_ops.outer)
ldexp = with_out(_ops.ldexp)
lerp = with_out(_ops.lerp)
log, log10, log1p, log2 = (with_out(f) for f in (_ops.log, _ops.log10, _ops.log1p, _ops.log2))
logaddexp, logaddexp2 = with_out(_ops.logaddexp), with_out(_ops.logaddexp2)
logical_and, logical_or, logical_xor = with_out(_ops.logical_and), with_out(_ops.logical_or), with_out(_ops.logical_xor)
logical_not = with_out(_ops.logical_not)
masked_select = with_out(_ops.masked_select)
mul = multiply = with_out(_ops.mul)
neg = negative = with_out(_ops.neg)
nextafter = with_out(_ops.nextafter)
reciprocal = with_out(_ops.reciprocal)
rsqrt, sqrt, square = with_out(_ops.rsqrt), with_out(_ops.sqrt), with_out(_ops.square)
sigmoid = with_out(_ops.sigmoid)
sign, sgn, signbit = with_out(_ops.sign), with_out(_ops.sgn), with_out(_ops.signbit)
sinc = with_out(_ops.sinc)
frexp, hardshrink, msort, vdot = (with_out(f) for f in (_ops.frexp, _ops.hardshrink, _ops.msort, _ops.vdot))
take, trace, tril, triu = with_out(_ops.take), _ops.trace, with_out(_ops.tril), with_out(_ops.triu)
true_divide = with_out(_ops.true_divide)
xlogy = with_out(_ops.xlogy)
scatter_add = with_out(_ops.scatter_add)
diag = with_out(_ops.diag)
hstack, vstack, dstack, column_stack = (with_out(f) for f in (_ops.hstack, _ops.vstack, _ops.dstack, _ops.column_stack))
row_stack = vstack
i0 = with_out(_ops.i0)
polygamma = with_out(_ops.polygamma)
unsqueeze, unbind, chunk = numpy_names(_ops.unsqueeze), numpy_names(_ops.unbind), _ops.chunk
roll, narrow, select = _ops.roll, _ops.narrow, _ops.select
divide, clip = arithmetic.div, arithmetic.clamp
concat = concatenate = shape.cat
moveaxis = movedim = shape.movedim
transpose = _ops.transpose
adjoint = _ops.mT
trapz = order.trapezoid
unsafe_chunk = _ops.chunk
logdet, slogdet = matrix.logdet, matrix.slogdet
conj, conj_physical, real = conversion.conj, conversion.conj_physical, conversion.real
resolve_conj, resolve_neg = conversion.resolve_conj, conversion.resolve_neg
