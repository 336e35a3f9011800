"""What a comparison with PyTorch cannot decide, each with the reason."""

from __future__ import annotations

RANDOM = "drawn at random: only shapes and dtypes are compared"
CONTENTS = "contents are undefined: only shapes and dtypes are compared"
TIES = "which of several equal elements an index names is undefined: the values are compared"
BASIS = "vectors are unique up to signs, or to a basis: values are compared, of vectors shapes and dtypes"

# Results of which not every leaf has defined values: the leaves that are compared by value, and why the others are not.
UNDEFINED: dict[str, tuple[tuple[int, ...], str]] = {}


def _undefined(names: str, compared: tuple[int, ...], reason: str) -> None:
    UNDEFINED.update((name, (compared, reason)) for name in names.split())


_undefined("empty empty_like new_empty new_empty_strided empty_permuted empty_strided resize_ resize_as_", (), CONTENTS)
_undefined("bernoulli cauchy exponential geometric log_normal multinomial normal normal.in_place", (), RANDOM)
_undefined("normal.number_mean uniform rand_like randint randint_like randn randn_like", (), RANDOM)
_undefined("nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d", (), RANDOM)
_undefined("nn.functional.dropout3d nn.functional.feature_alpha_dropout.with_train", (), RANDOM)
_undefined("nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.rrelu", (), RANDOM)
_undefined("nn.functional.scaled_dot_product_attention nn.functional.multi_head_attention_forward", (), RANDOM)
_undefined("kthvalue topk mode median nanmedian cummax cummin sort msort", (0,), TIES)
_undefined("svd_lowrank pca_lowrank", (), RANDOM)
_undefined("max.reduction_with_dim min.reduction_with_dim", (0,), TIES)
_undefined("argsort argmax argmin", (), TIES)
_undefined("unique", (), "the order of elements that are not sorted is undefined: only shapes and dtypes are compared")
_undefined("polygamma special.polygamma", (), "PyTorch's trigamma is large, not infinite, at its poles")
_undefined("linalg.eigh linalg.eig", (0,), BASIS)
_undefined("svd linalg.svd", (1,), BASIS)
_undefined("qr linalg.qr", (), BASIS)
_undefined("special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1", (), "PyTorch's are off by 1e-7")
_undefined("linalg.pinv.singular", (), "next to a rank that is decided by rounding")
_undefined("nn.functional.softmin.with_dtype", (), "of uint8: PyTorch negates before it converts, which wraps around")

# Functions of uint8 whose result may also be PyTorch's of the same values in float64, and how far it may be off either.
_WRAPS = "PyTorch subtracts in uint8, which wraps around"
_FIXED = "PyTorch's weights are fixed-point numbers, and where a dimension is 1 it takes other elements; two roundings"
BYTES: dict[str, tuple[float, str]] = {
    **dict.fromkeys(("pairwise_distance", "triplet_margin_loss", "margin_ranking_loss"), (0.0, _WRAPS)),
    **dict.fromkeys(("interpolate", "upsample_bilinear"), (2.0, _FIXED)),
}

# Functions that are given contiguous tensors alone.
CONTIGUOUS: dict[str, str] = dict.fromkeys(
    ("CTCLoss", "nn.functional.ctc_loss"),
    "of a vector of targets with a stride PyTorch 2.15 reads others from the second sample on",
)

# Gradients that are differences of larger terms, and how much more than others they may be off: what is added is
# rounded, not what is left.
CANCELLING: dict[str, float] = {
    "nn.functional.normalize": 64,
    "nn.functional.scaled_dot_product_attention": 16,
    "cov": 64,
}

# Modules whose results are differences of larger terms, and how far those may be off, in units of precision.
CANCELLING_MODULES: dict[str, float] = {"GELU": 4}  # 1 + erf(x) far below zero

# Optimisers whose parameters may come close to zero, and how far they may be off there.
ENDS_NEAR_ZERO: dict[str, float] = {
    "LBFGS": 1e-6,
    "ASGD": 1e-7,  # PyTorch keeps its step size in float32
}

# Gradients that are not compared.
GRADIENTS: dict[str, str] = {
    **dict.fromkeys(("msort", "sort", "topk", "kthvalue", "mode", "median", "nanmedian"), TIES),
    **dict.fromkeys(("linalg.eigh", "linalg.eig", "svd", "linalg.svd", "qr", "linalg.qr"), BASIS),
    **dict.fromkeys(
        ("nextafter", "fill", "linalg.slogdet"),
        "the gradient is zero or missing in PyTorch, too, which marks the result",
    ),
    "nn.functional.poisson_nll_loss": "PyTorch's is nan for a target whose logarithm is left out",
    "as_strided_scatter": "PyTorch 2.15 gives the input the gradient of the elements that src replaced, and no other",
}

# Shared memory that is not compared.
ALIASES: dict[str, str] = {
    **dict.fromkeys(
        ("contiguous", "reshape", "reshape_as", "ravel", "flatten", "to"), "left open by PyTorch's documentation"
    ),
    **dict.fromkeys(("conj", "H", "mH"), "PyTorch marks a view of complex numbers as conjugate; here they are copied"),
    "histogramdd": "edges of bins that are given come back as they are",
}
