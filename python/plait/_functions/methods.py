"""Methods of tensors whose signature is not that of a generated function, and other names of methods."""

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
    order,
    reduction,
    shape,
    splitting,
)
from plait._functions._checked import method
from plait._functions._common import in_place


class TensorFunctions:
    """The methods of tensors that are functions of this package."""

    __slots__ = ()

    # Arithmetic.
    add = arithmetic.add
    add_ = arithmetic.add_
    sub, subtract = arithmetic.sub, arithmetic.subtract
    sub_, subtract_ = arithmetic.sub_, arithmetic.subtract_
    multiply = _ops.mul
    multiply_ = _ops.mul_
    div = divide = arithmetic.div
    div_ = divide_ = arithmetic.div_
    clamp = clip = arithmetic.clamp
    clamp_ = clip_ = method(arithmetic.clamp_)
    clamp_min = method(arithmetic.clamp_min)
    clamp_min_ = method(arithmetic.clamp_min_)
    clamp_max = method(arithmetic.clamp_max)
    clamp_max_ = method(arithmetic.clamp_max_)
    pow = arithmetic.pow
    pow_ = arithmetic.pow_
    float_power = method(arithmetic.float_power)
    nan_to_num = method(arithmetic.nan_to_num)
    nan_to_num_ = method(arithmetic.nan_to_num_)
    logit = method(arithmetic.logit)
    logit_ = method(arithmetic.logit_)
    addcmul = method(arithmetic.addcmul)
    addcmul_ = arithmetic.addcmul_
    addcdiv = method(arithmetic.addcdiv)
    addcdiv_ = arithmetic.addcdiv_
    round = method(arithmetic.round)
    round_ = method(arithmetic.round_)
    softmax = arithmetic.softmax
    log_softmax = arithmetic.log_softmax
    negative = _ops.neg
    negative_ = _ops.neg_
    positive = method(conversion.positive)
    absolute = _ops.abs
    absolute_ = _ops.abs_
    fix = _ops.trunc
    fix_ = _ops.trunc_
    angle = method(conversion.angle)
    heaviside = method(arithmetic.heaviside)
    mvlgamma = method(matrix.mvlgamma)
    mvlgamma_ = in_place(matrix.mvlgamma, "mvlgamma_")
    bernoulli = method(arithmetic.bernoulli)
    bernoulli_ = arithmetic.bernoulli_
    random_ = arithmetic.random_
    multinomial = method(indexing.multinomial)

    def polygamma(self, n: int):  # type: ignore[no-untyped-def]
        """Returns the n-th derivative of the digamma function."""
        return _ops.polygamma(n, self)  # type: ignore[arg-type]

    def polygamma_(self, n: int):  # type: ignore[no-untyped-def]
        """Replaces the elements by the n-th derivative of the digamma function."""
        return _ops.polygamma_(n, self)  # type: ignore[arg-type]

    # Other names of inverse functions.
    arccos, arccos_ = _ops.acos, _ops.acos_
    arccosh, arccosh_ = _ops.acosh, _ops.acosh_
    arcsin, arcsin_ = _ops.asin, _ops.asin_
    arcsinh, arcsinh_ = _ops.asinh, _ops.asinh_
    arctan, arctan_ = _ops.atan, _ops.atan_
    arctan2, arctan2_ = _ops.atan2, _ops.atan2_
    arctanh, arctanh_ = _ops.atanh, _ops.atanh_

    # Comparisons.
    greater, greater_ = _ops.gt, _ops.gt_
    greater_equal, greater_equal_ = _ops.ge, _ops.ge_
    less, less_ = _ops.lt, _ops.lt_
    less_equal, less_equal_ = _ops.le, _ops.le_
    not_equal, not_equal_ = _ops.ne, _ops.ne_
    isclose = method(arithmetic.isclose)
    allclose = method(arithmetic.allclose)
    equal = method(arithmetic.equal)
    isneginf = method(arithmetic.isneginf)
    isposinf = method(arithmetic.isposinf)
    isreal = method(arithmetic.isreal)

    # Reductions.
    sum = reduction.sum
    nansum = reduction.nansum
    mean = reduction.mean
    nanmean = reduction.nanmean
    prod = reduction.prod
    var = reduction.var
    std = reduction.std
    max = reduction.max
    min = reduction.min
    amax = reduction.amax
    amin = reduction.amin
    aminmax = reduction.aminmax
    argmax = reduction.argmax
    argmin = reduction.argmin
    all = reduction.all
    any = reduction.any
    count_nonzero = reduction.count_nonzero
    logsumexp = reduction.logsumexp
    median = reduction.median
    nanmedian = reduction.nanmedian
    mode = reduction.mode
    quantile = reduction.quantile
    nanquantile = reduction.nanquantile
    norm = reduction.norm_method
    dist = method(reduction.dist)

    # Order.
    sort = order.sort
    argsort = order.argsort
    topk = order.topk
    kthvalue = order.kthvalue
    cummax = order.cummax
    cummin = order.cummin
    cumsum = order.cumsum
    cumsum_ = order.cumsum_
    cumprod = order.cumprod
    cumprod_ = order.cumprod_
    logcumsumexp = order.logcumsumexp
    unique = method(order.unique)
    unique_consecutive = method(order.unique_consecutive)
    bincount = method(order.bincount)
    histc = method(order.histc)
    histogram = method(order.histogram)
    nonzero = method(order.nonzero)
    argwhere = method(order.argwhere)
    nonzero_static = method(order.nonzero_static)
    diff = order.diff
    cov = method(order.cov)
    renorm = order.renorm
    renorm_ = order.renorm_

    # Views, splits, joins.
    split = unsafe_split = splitting.split_method
    unsafe_chunk = _ops.chunk
    tensor_split = splitting.tensor_split
    hsplit = method(splitting.hsplit)
    vsplit = method(splitting.vsplit)
    dsplit = method(splitting.dsplit)
    squeeze = shape.squeeze
    unsqueeze = aliases.unsqueeze
    flip = method(shape.flip)
    view = shape.view
    repeat_interleave = method(shape.repeat_interleave)
    as_strided = method(shape.as_strided)
    as_strided_ = method(shape.as_strided_)
    sum_to_size = shape.sum_to_size
    slice_scatter = method(shape.slice_scatter)
    moveaxis = _ops.movedim
    swapdims, swapaxes = _ops.transpose, method(shape.swapaxes)
    transpose_ = swapdims_ = shape.transpose_
    swapaxes_ = shape.swapaxes_
    t_ = method(shape.t_)
    squeeze_ = method(shape.squeeze_)
    unsqueeze_ = method(shape.unsqueeze_)
    resize_ = shape.resize_
    resize_as_ = method(shape.resize_as_)
    set_ = arithmetic.set_
    adjoint = _ops.mT

    # Choosing.
    where = indexing.where_method
    scatter = indexing.scatter
    scatter_ = indexing.scatter_
    scatter_reduce = method(indexing.scatter_reduce)
    index_add = method(indexing.index_add)
    index_add_ = indexing.index_add_
    index_put = method(indexing.index_put)
    index_put_ = method(indexing.index_put_)
    index_reduce = method(indexing.index_reduce)
    gather = indexing.gather
    take_along_dim = indexing.take_along_dim
    fill_diagonal_ = indexing.fill_diagonal_
    as_strided_scatter = method(indexing.as_strided_scatter)
    cross = method(indexing.cross)

    # New tensors.
    new_zeros = likes.new_zeros
    new_ones = likes.new_ones
    new_empty = likes.new_empty
    new_full = likes.new_full
    new = likes.new
    new_tensor = likes.new_tensor
    new_empty_strided = likes.new_empty_strided

    # Matrices.
    addmm, addmm_ = method(matrix.addmm), method(matrix.addmm_)
    addmv, addmv_ = method(matrix.addmv), method(matrix.addmv_)
    addr, addr_ = method(matrix.addr), method(matrix.addr_)
    addbmm, addbmm_ = method(matrix.addbmm), method(matrix.addbmm_)
    baddbmm, baddbmm_ = method(matrix.baddbmm), method(matrix.baddbmm_)
    det = la.det
    inverse = la.inv
    logdet = method(matrix.logdet)
    lu = matrix.lu_method
    lu_solve = method(matrix.lu_solve)
    slogdet = method(matrix.slogdet)
    cholesky = method(matrix.cholesky)
    cholesky_solve = method(matrix.cholesky_solve)
    cholesky_inverse = method(matrix.cholesky_inverse)
    matrix_exp = la.matrix_exp
    matrix_power = la.matrix_power
    pinverse = method(matrix.pinverse)
    qr = method(matrix.qr)
    svd = method(matrix.svd)
    ger = method(matrix.ger)
    triangular_solve = method(matrix.triangular_solve)

    # Conversions and questions.
    type = conversion.type
    type_as = conversion.type_as
    to = conversion.to
    cpu = conversion.cpu
    cuda = conversion.cuda
    pin_memory = conversion.pin_memory
    share_memory_ = conversion.share_memory_
    record_stream = conversion.record_stream
    get_device = conversion.get_device
    is_floating_point = method(conversion.is_floating_point)
    is_complex = method(conversion.is_complex)
    is_signed = method(conversion.is_signed)
    is_nonzero = method(conversion.is_nonzero)
    is_same_size = method(conversion.is_same_size)
    is_set_to = conversion.is_set_to
    is_pinned = conversion.is_pinned
    is_shared = conversion.never("is_shared", "other processes share the memory")
    is_conj = conversion.never("is_conj", "the elements are conjugates")
    is_neg = conversion.never("is_neg", "the elements stand for their negatives")
    is_coalesced = conversion.never("is_coalesced", "the tensor is a coalesced sparse one")
    storage = conversion.storage
    untyped_storage = conversion.untyped_storage
    detach_ = method(conversion.detach_)
    apply_ = conversion.apply_
    map_ = conversion.map_
    clone = method(conversion.clone)
    contiguous = conversion.contiguous
    copy_ = conversion.copy_
    conj = method(conversion.conj)
    conj_physical = method(conversion.conj_physical)
    conj_physical_ = method(conversion.conj_physical_)
    resolve_conj = method(conversion.resolve_conj)
    resolve_neg = method(conversion.resolve_neg)
    to_dense = conversion.to_dense

    # Last, since their names are those of types.
    float = conversion.to_float
    double = conversion.to_double
    half = conversion.to_half
    bfloat16 = conversion.to_bfloat16
    long = conversion.to_long
    int = conversion.to_int
    bool = conversion.to_bool
    byte = conversion.to_byte
