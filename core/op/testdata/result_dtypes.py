"""Writes result_dtypes.txt: the dtypes of PyTorch's results for all pairs of the inputs' dtypes.

Run with PyTorch installed: python result_dtypes.py > result_dtypes.txt. Each line says an operation, how its inputs are
given and the results' dtypes, a word for each dtype of the first input and in it a letter for each dtype, or kind of
number, of the second: b(ool), u(int8), i(nt32), l (int64), h (float16), g (bfloat16), f(loat32), d (float64), c (int8),
s (int16), w (uint16), v (uint32), q (uint64), and . where PyTorch refuses the inputs. Operations on one tensor have the
dtypes of all results in each word.
"""

import warnings

import torch

LETTERS = {
    "b": torch.bool, "u": torch.uint8, "i": torch.int32, "l": torch.int64,
    "h": torch.float16, "g": torch.bfloat16, "f": torch.float32, "d": torch.float64,
    "c": torch.int8, "s": torch.int16, "w": torch.uint16, "v": torch.uint32, "q": torch.uint64,
}  # fmt: skip
NAMES = {d: c for c, d in LETTERS.items()}
NUMBERS = (True, 2, 2.5)


def _words(text):
    return text.split()


ONE = _words(
    """
    abs acos acosh asin asinh atan atanh bitwise_not ceil clone cos cosh deg2rad digamma erf erfc erfinv exp
    exp2 expm1 floor frac i0 isfinite isinf isnan lgamma log log10 log1p log2 logical_not neg rad2deg
    reciprocal relu rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trace trunc all any amax
    amin argmax argmin count_nonzero mean nanmean nansum norm prod std sum var var_mean std_mean cov corrcoef
    msort nonzero ravel special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
    special_ndtr special_ndtri special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0
    special_bessel_y1
    """
)
ALONG = _words(
    """
    cummax cummin cumprod cumsum logcumsumexp logsumexp sort softmax log_softmax max min mode median nanmedian
    diff
    """
)
TWO = _words(
    """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign div eq
    float_power floor_divide fmax fmin fmod gcd ge gt heaviside hypot igamma igammac lcm ldexp le logaddexp
    logaddexp2 logical_and logical_or logical_xor lt maximum minimum mul ne nextafter outer pow remainder sub
    true_divide xlogy special_xlog1py special_zeta cat stack where hstack vstack clamp
    """
)


def _function(name):
    if name.startswith("special_"):
        return getattr(torch.special, name.removeprefix("special_"))
    if name in ("cat", "stack", "hstack", "vstack"):
        return lambda x, y: getattr(torch, name)([x, y])
    if name == "where":
        return lambda x, y: torch.where(torch.ones(2, 2, dtype=torch.bool), x, y)
    if name == "clamp":
        return torch.clamp
    return getattr(torch, name)


def _letters(f, *args):
    try:
        out = f(*args)
    except (RuntimeError, TypeError, NotImplementedError):
        return "."
    return "".join(NAMES[t.dtype] for t in (out if isinstance(out, tuple) else (out,)))


def _main():
    warnings.simplefilter("ignore")
    for name in ONE:
        print(name, "one", *(_letters(_function(name), torch.ones(2, 2, dtype=d)) for d in LETTERS.values()))
    for name in ALONG:
        print(
            name,
            "along",
            *(
                _letters(_function(name), torch.ones(2, 2, dtype=d), *([] if name == "diff" else [0]))
                for d in LETTERS.values()
            ),
        )
    for name in TWO:
        for kind, shape in (("tensor", (2, 2)), ("0-d", ())):
            if kind == "0-d" and name in ("cat", "stack", "hstack", "vstack", "outer"):
                continue
            size = (2,) if name == "outer" else (2, 2)
            make = [torch.ones(size if kind == "tensor" else shape, dtype=d) for d in LETTERS.values()]
            print(
                name,
                kind,
                *(
                    "".join(_letters(_function(name), torch.ones(size, dtype=d), y) for y in make)
                    for d in LETTERS.values()
                ),
            )
        print(
            name,
            "number",
            *(
                "".join(_letters(_function(name), torch.ones(2, 2, dtype=d), v) for v in NUMBERS)
                for d in LETTERS.values()
            ),
        )


_main()
