"""What a comparison with PyTorch cannot decide, each with the reason."""

from __future__ import annotations

RANDOM = "drawn at random: only shapes and dtypes are compared"
CONTENTS = "contents are undefined: only shapes and dtypes are compared"
TIES = "which of several equal elements an index names is undefined: the values are compared"
BASIS = "vectors are unique up to signs, or to a basis: values are compared, of vectors shapes and dtypes"

# Results of which not every leaf has defined values: the leaves that are compared by value, and why the others are not.
UNDEFINED: dict[str, tuple[tuple[int, ...], str]] = {
    **dict.fromkeys(("empty", "empty_like", "new_empty", "new_empty_strided", "empty_permuted", "empty_strided", "resize_", "resize_as_"), ((), CONTENTS)),
    **dict.fromkeys(
        (
            "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal.in_place",
            "normal.number_mean", "uniform", "rand_like", "randint", "randint_like", "randn", "randn_like",
            "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
            "nn.functional.feature_alpha_dropout.with_train", "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "nn.functional.scaled_dot_product_attention",
            "nn.functional.multi_head_attention_forward",
        ),
        ((), RANDOM),
    ),
    **dict.fromkeys(("kthvalue", "topk", "mode", "median", "nanmedian", "cummax", "cummin", "sort", "max.reduction_with_dim",
                     "min.reduction_with_dim"), ((0,), TIES)),
    **dict.fromkeys(("argsort", "argmax", "argmin"), ((), TIES)),
    "msort": ((0,), TIES),
    **dict.fromkeys(("linalg.eigh",), ((0,), BASIS)),
    **dict.fromkeys(("svd", "linalg.svd"), ((1,), BASIS)),
    **dict.fromkeys(("qr", "linalg.qr"), ((), BASIS)),
}  # fmt: skip

# Gradients that are not compared.
GRADIENTS: dict[str, str] = {
    **dict.fromkeys(("msort", "sort", "topk", "kthvalue", "mode", "median", "nanmedian"), TIES),
    **dict.fromkeys(("linalg.eigh", "svd", "linalg.svd", "qr", "linalg.qr"), BASIS),
    **dict.fromkeys(
        ("cholesky_inverse", "cholesky_solve"),
        "the function reads one triangle: the other one's gradient is zero here, and what the formula leaves in PyTorch",
    ),
    **dict.fromkeys(("nextafter", "fill", "linalg.slogdet"), "the gradient is zero or missing in PyTorch, too, which marks the result"),
    "nn.functional.soft_margin_loss": "PyTorch's overflows in float16",
}

# Shared memory that is not compared.
ALIASES: dict[str, str] = {
    **dict.fromkeys(("contiguous", "reshape", "reshape_as", "ravel", "flatten", "to"), "left open by PyTorch's documentation"),
}
