"""The methods of tensors that are neither a generated function nor one of this package under its own name."""

from __future__ import annotations

from plait import _ops
from plait import linalg as la
from plait._functions import (
    aliases,
    arithmetic,
    conversion,
    indexing,
    likes,
    matrix,
    reduction,
    shape,
    splitting,
)
from plait._functions._checked import made_method, method
from plait._functions._common import in_place


class TensorFunctions:
    """Methods under other names than their functions, and those with arguments of their own."""

    __slots__ = ()

    # Other names.
    multiply, multiply_ = _ops.mul, _ops.mul_
    divide, divide_ = arithmetic.div, arithmetic.div_
    clip = arithmetic.clamp
    clamp_ = clip_ = method(arithmetic.clamp_)
    negative, negative_ = _ops.neg, _ops.neg_
    absolute, absolute_ = _ops.abs, _ops.abs_
    fix, fix_ = _ops.trunc, _ops.trunc_
    arccos, arccos_ = _ops.acos, _ops.acos_
    arccosh, arccosh_ = _ops.acosh, _ops.acosh_
    arcsin, arcsin_ = _ops.asin, _ops.asin_
    arcsinh, arcsinh_ = _ops.asinh, _ops.asinh_
    arctan, arctan_ = _ops.atan, _ops.atan_
    arctan2, arctan2_ = _ops.atan2, _ops.atan2_
    arctanh, arctanh_ = _ops.atanh, _ops.atanh_
    greater, greater_ = _ops.gt, _ops.gt_
    greater_equal, greater_equal_ = _ops.ge, _ops.ge_
    less, less_ = _ops.lt, _ops.lt_
    less_equal, less_equal_ = _ops.le, _ops.le_
    not_equal, not_equal_ = _ops.ne, _ops.ne_
    unsafe_chunk = _ops.chunk
    moveaxis = _ops.movedim
    swapdims, swapdims_ = _ops.transpose, shape.transpose_
    adjoint = method(conversion.adjoint)
    det, inverse, matrix_exp, matrix_power = la.det, la.inv, la.matrix_exp, la.matrix_power

    # The functions of these names have other arguments.
    def polygamma(self, n: int):  # type: ignore[no-untyped-def]
        """Returns the n-th derivative of the digamma function."""
        return _ops.polygamma(n, self)  # type: ignore[arg-type]

    def polygamma_(self, n: int):  # type: ignore[no-untyped-def]
        """Replaces the elements by the n-th derivative of the digamma function."""
        return _ops.polygamma_(n, self)  # type: ignore[arg-type]

    mvlgamma_ = in_place(matrix.mvlgamma, "mvlgamma_")
    norm = made_method(reduction.norm_method, "norm")
    split = unsafe_split = made_method(splitting.split_method, "split")
    where = made_method(indexing.where_method, "where")
    lu = made_method(matrix.lu_method, "lu")
    unsqueeze = aliases.unsqueeze
    permute, reshape, movedim, tile, select_scatter = (
        _ops.permute,
        _ops.reshape,
        _ops.movedim,
        _ops.tile,
        _ops.select_scatter,
    )

    # Other modules have functions of these names, too, or PyTorch lists them elsewhere.
    index_reduce = method(indexing.index_reduce)
    cross = method(indexing.cross)
    new = likes.new
    lu_solve = method(matrix.lu_solve)
    slogdet = method(matrix.slogdet)
    cholesky = method(matrix.cholesky)
    qr = method(matrix.qr)
    smm = method(matrix.smm)
    sspaddmm = method(matrix.sspaddmm)
    geqrf = method(matrix.geqrf)
    orgqr = method(matrix.orgqr)
    ormqr = method(matrix.ormqr)
    svd = method(matrix.svd)
    record_stream = conversion.record_stream
    get_device = conversion.get_device
    is_complex = method(conversion.is_complex)
    is_shared = conversion.is_shared
    is_conj = conversion.never("is_conj", "the elements are conjugates")
    is_neg = conversion.never("is_neg", "the elements stand for their negatives")
    conj_physical_ = method(conversion.conj_physical_)

    # Last, since their names are those of types.
    float = conversion.to_float
    double = conversion.to_double
    half = conversion.to_half
    bfloat16 = conversion.to_bfloat16
    long = conversion.to_long
    int = conversion.to_int
    bool = conversion.to_bool
    byte = conversion.to_byte
    char = conversion.to_char
    short = conversion.to_short
    cfloat = conversion.to_cfloat
    cdouble = conversion.to_cdouble
