"""Methods of tensors whose signature is not that of a generated function, and other names of methods."""

from __future__ import annotations

from plait import _ops
from plait import linalg as la
from plait._functions import arithmetic, choosing, conversion, likes, matrix, order, reduction, shape
from plait._functions._common import in_place, numpy_names


class TensorFunctions:
    """The methods of tensors that are functions of this package."""

    __slots__ = ()

    # Arithmetic.
    add = arithmetic.add
    add_ = arithmetic.add_
    sub, subtract = arithmetic.sub, arithmetic.subtract
    sub_, subtract_ = arithmetic.sub_, arithmetic.subtract_
    mul = multiply = _ops.mul
    mul_ = multiply_ = _ops.mul_
    div = divide = arithmetic.div
    div_ = divide_ = arithmetic.div_
    clamp = clip = arithmetic.clamp
    clamp_ = clip_ = arithmetic.clamp_
    clamp_min = arithmetic.clamp_min
    clamp_min_ = arithmetic.clamp_min_
    clamp_max = arithmetic.clamp_max
    clamp_max_ = arithmetic.clamp_max_
    pow = arithmetic.pow
    pow_ = arithmetic.pow_
    float_power = arithmetic.float_power
    nan_to_num = arithmetic.nan_to_num
    nan_to_num_ = arithmetic.nan_to_num_
    logit = arithmetic.logit
    logit_ = arithmetic.logit_
    addcmul = arithmetic.addcmul
    addcmul_ = arithmetic.addcmul_
    addcdiv = arithmetic.addcdiv
    addcdiv_ = arithmetic.addcdiv_
    round = arithmetic.round
    round_ = arithmetic.round_
    softmax = arithmetic.softmax
    log_softmax = arithmetic.log_softmax
    relu = _ops.relu
    relu_ = _ops.relu_
    prelu = _ops.prelu
    logaddexp = _ops.logaddexp
    negative = _ops.neg
    negative_ = _ops.neg_
    positive = conversion.positive
    absolute = _ops.abs
    absolute_ = _ops.abs_
    fix = _ops.trunc
    fix_ = _ops.trunc_
    angle = conversion.angle
    heaviside = arithmetic.heaviside
    hardshrink = _ops.hardshrink
    mvlgamma = matrix.mvlgamma
    mvlgamma_ = in_place(matrix.mvlgamma, "mvlgamma_")
    bernoulli = arithmetic.bernoulli
    bernoulli_ = arithmetic.bernoulli_
    random_ = arithmetic.random_
    multinomial = choosing.multinomial
    fill_ = _ops.fill_
    zero_ = _ops.zero_

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
    isclose = arithmetic.isclose
    allclose = arithmetic.allclose
    equal = arithmetic.equal
    isneginf = arithmetic.isneginf
    isposinf = arithmetic.isposinf
    isreal = arithmetic.isreal
    logical_not_ = _ops.logical_not_

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
    dist = reduction.dist

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
    unique = order.unique
    unique_consecutive = order.unique_consecutive
    bincount = order.bincount
    histc = order.histc
    histogram = order.histogram
    nonzero = order.nonzero
    argwhere = order.argwhere
    nonzero_static = order.nonzero_static
    diff = order.diff
    cov = order.cov
    renorm = order.renorm
    renorm_ = order.renorm_

    # Views, splits, joins.
    split = unsafe_split = shape.split_method
    chunk = unsafe_chunk = _ops.chunk
    split_with_sizes = _ops.split_with_sizes
    tensor_split = shape.tensor_split
    hsplit = shape.hsplit
    vsplit = shape.vsplit
    dsplit = shape.dsplit
    squeeze = shape.squeeze
    unsqueeze = numpy_names(_ops.unsqueeze)
    flip = shape.flip
    permute = _ops.permute
    reshape = _ops.reshape
    view = shape.view
    repeat_interleave = shape.repeat_interleave
    as_strided = shape.as_strided
    as_strided_ = shape.as_strided_
    sum_to_size = shape.sum_to_size
    slice_scatter = shape.slice_scatter
    moveaxis = movedim = _ops.movedim
    swapdims, swapaxes = _ops.transpose, shape.swapaxes
    transpose_ = swapdims_ = shape.transpose_
    swapaxes_ = shape.swapaxes_
    t_ = shape.t_
    squeeze_ = shape.squeeze_
    unsqueeze_ = shape.unsqueeze_
    resize_ = shape.resize_
    resize_as_ = shape.resize_as_
    set_ = arithmetic.set_
    adjoint = _ops.mT
    unfold = _ops.unfold

    # Choosing.
    where = choosing.where_method
    scatter = choosing.scatter
    scatter_ = choosing.scatter_
    scatter_reduce = choosing.scatter_reduce
    index_add = choosing.index_add
    index_add_ = choosing.index_add_
    index_put = choosing.index_put
    index_put_ = choosing.index_put_
    index_reduce = choosing.index_reduce
    gather = choosing.gather
    take_along_dim = choosing.take_along_dim
    fill_diagonal_ = choosing.fill_diagonal_
    as_strided_scatter = choosing.as_strided_scatter
    cross = choosing.cross

    # New tensors.
    new_zeros = likes.new_zeros
    new_ones = likes.new_ones
    new_empty = likes.new_empty
    new_full = likes.new_full
    new = likes.new
    new_tensor = likes.new_tensor
    new_empty_strided = likes.new_empty_strided

    # Matrices.
    addmm, addmm_ = matrix.addmm, matrix.addmm_
    addmv, addmv_ = matrix.addmv, matrix.addmv_
    addr, addr_ = matrix.addr, matrix.addr_
    addbmm, addbmm_ = matrix.addbmm, matrix.addbmm_
    baddbmm, baddbmm_ = matrix.baddbmm, matrix.baddbmm_
    det = la.det
    inverse = la.inv
    logdet = matrix.logdet
    lu = matrix.lu_method
    lu_solve = matrix.lu_solve
    slogdet = matrix.slogdet
    cholesky = matrix.cholesky
    cholesky_solve = matrix.cholesky_solve
    cholesky_inverse = matrix.cholesky_inverse
    matrix_exp = la.matrix_exp
    matrix_power = la.matrix_power
    pinverse = matrix.pinverse
    qr = matrix.qr
    svd = matrix.svd
    ger = matrix.ger
    triangular_solve = matrix.triangular_solve

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
    is_floating_point = conversion.is_floating_point
    is_complex = conversion.is_complex
    is_signed = conversion.is_signed
    is_nonzero = conversion.is_nonzero
    is_same_size = conversion.is_same_size
    is_set_to = conversion.is_set_to
    is_pinned = conversion.is_pinned
    is_shared = conversion.never("is_shared", "other processes share the memory")
    is_conj = conversion.never("is_conj", "the elements are conjugates")
    is_neg = conversion.never("is_neg", "the elements stand for their negatives")
    is_coalesced = conversion.never("is_coalesced", "the tensor is a coalesced sparse one")
    storage = conversion.storage
    untyped_storage = conversion.untyped_storage
    detach_ = conversion.detach_
    apply_ = conversion.apply_
    map_ = conversion.map_
    clone = conversion.clone
    contiguous = conversion.contiguous
    copy_ = conversion.copy_
    conj = conversion.itself("conj", "Returns the tensor: its elements are real.")
    conj_physical = conversion.itself("conj_physical", "Returns the tensor: its elements are real.")
    conj_physical_ = conversion.itself("conj_physical_", "Returns the tensor: its elements are real.")
    resolve_conj = conversion.itself("resolve_conj", "Returns the tensor: its elements are real.")
    resolve_neg = conversion.itself("resolve_neg", "Returns the tensor.")
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
