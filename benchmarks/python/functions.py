"""Many functions on a CPU beside PyTorch, to find those that are far behind.

    python benchmarks/python/functions.py
    python benchmarks/python/functions.py --only pool sort --seconds 0.3 --slowest 100

Both run in one process, in turns, on the same numbers. On several threads a turn has thirty calls and begins with a
pause: the workers of the other library spin for a while after a call, on the cores that the next one needs. Times are
the shortest of one call and the read of one element, which waits for the call. Matrices are 1000 x 300 where nothing
else is said, vectors have 100,000 elements, images are 4 x 16 x 64 x 64.
"""

from __future__ import annotations

import argparse
import importlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def named(names: str, form: str) -> dict[str, str]:
    """Returns an expression for each name, in whose form @ stands for the name."""
    return {name: form.replace("@", name) for name in names.split()}


ALONG = (
    "sum mean std var amax amin argmax prod logsumexp median cumsum cumprod cummax logcumsumexp nanmean nansum norm "
    "count_nonzero sort argsort"
)

# Each function by its name, as an expression of what `arguments` makes. `torch` is either library.
FUNCTIONS = {
    **named(
        "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac "
        "lgamma log log10 log1p log2 neg rad2deg reciprocal relu round rsqrt sigmoid sign signbit sin sinc sinh sqrt "
        "square tan tanh trunc isnan isinf isfinite nan_to_num logit i0 sgn angle flatten",
        "torch.@(a)",
    ),
    **named(
        "bessel_j0 bessel_j1 bessel_y0 i0e i1 i1e log_ndtr ndtr ndtri entr erfcx expit gammaln psi",
        "torch.special.@(a)",
    ),
    **{f"{name} float64": text for name, text in named("erf erfc exp exp2 sin tan tanh", "torch.@(wide)").items()},
    **{f"{name} float64": text for name, text in named("erfinv log log10", "torch.@(shares)").items()},
    "ndtr float64": "torch.special.ndtr(wide)",
    **named("zeta xlog1py", "torch.special.@(positive, positive + 1)"),
    **named(
        "add sub mul div atan2 hypot fmod remainder maximum minimum fmax fmin logaddexp logaddexp2 copysign nextafter "
        "floor_divide eq lt heaviside dist ldexp",
        "torch.@(a, b)",
    ),
    **named("allclose equal", "torch.@(a, a)"),
    **named("pow xlogy", "torch.@(positive, b)"),
    **named("bitwise_and bitwise_or bitwise_xor gcd lcm logical_and", "torch.@(indices, indices + 1)"),
    **named("mode", "torch.@(indices, dim=1)"),
    **named(f"{ALONG} softmax log_softmax aminmax", "torch.@(a, dim=1)"),
    **{f"{name} columns": text for name, text in named(ALONG, "torch.@(a, dim=0)").items()},
    **{
        f"{name} vector": text
        for name, text in named("sum mean std median sort argsort norm argmax nonzero", "torch.@(vector)").items()
    },
    **named("any all", "torch.@(mask, dim=1)"),
    "topk": "torch.topk(vector, 100)",
    "topk rows": "torch.topk(a, 10, dim=1)",
    "kthvalue": "torch.kthvalue(a, 5, dim=1)",
    "quantile": "torch.quantile(a, 0.3, dim=1)",
    "histc": "torch.histc(vector, 100)",
    "bincount": "torch.bincount(rows)",
    "unique": "torch.unique(indices)",
    "unique_consecutive": "torch.unique_consecutive(indices)",
    "gather": "torch.gather(a, 1, columns)",
    "scatter_add": "torch.zeros(1000, 300).scatter_add(1, columns, a)",
    "scatter_reduce": "torch.zeros(1000, 300).scatter_reduce(1, columns, a, 'amax')",
    "index_select rows": "torch.index_select(a, 0, rows)",
    "index_select columns": "torch.index_select(a, 1, classes)",
    "index_add": "torch.zeros(1000, 300).index_add(0, rows, a)",
    "masked_select": "torch.masked_select(a, mask)",
    "masked_fill": "a.masked_fill(mask, 1.0)",
    "where": "torch.where(mask, a, b)",
    "take": "torch.take(a, indices)",
    "put": "a.clone().put_(indices, a)",
    "a[rows]": "a[rows]",
    "a[:, columns]": "a[:, classes]",
    "a[mask]": "a[mask]",
    "searchsorted": "torch.searchsorted(ascending, vector)",
    "isin": "torch.isin(indices, rows)",
    "one_hot": "F.one_hot(rows, 1000)",
    "cat rows": "torch.cat([a, b])",
    "cat columns": "torch.cat([a, b], 1)",
    "stack": "torch.stack([a, b], -1)",
    "roll": "torch.roll(a, 3, 1)",
    "flip": "torch.flip(a, [1])",
    "rot90": "torch.rot90(a)",
    "tril": "torch.tril(a)",
    "repeat": "a.repeat(2, 2)",
    "repeat_interleave": "torch.repeat_interleave(a, 2, 0)",
    "transpose": "a.t().contiguous()",
    "channels last": "image.permute(0, 2, 3, 1).contiguous()",
    "diff": "torch.diff(a)",
    "trapezoid": "torch.trapezoid(a)",
    "kron": "torch.kron(a[:30, :30], b[:20, :20])",
    "outer": "torch.outer(vector[:1000], vector[:300])",
    "cross": "torch.cross(a[:, :3].repeat(100, 1), b[:, :3].repeat(100, 1), dim=-1)",
    "cdist": "torch.cdist(a, b)",
    **{f"cdist {p}": f"torch.cdist(a[:300, :30], b[:300, :30], p={p})" for p in ("1.0", "math.inf", "0.5")},
    "pdist": "torch.pdist(a)",
    "cdist backward": "backward(torch.cdist, normal(200, 64), normal(201, 64))",
    **{
        f"cdist {p} backward": f"backward(lambda x, y: torch.cdist(x, y, p={p}), normal(200, 64), normal(201, 64))"
        for p in ("1.0", "math.inf", "3.0")
    },
    "cdist batched backward": "backward(torch.cdist, normal(8, 100, 16), normal(8, 101, 16))",
    "cdist of points backward": "backward(torch.cdist, normal(1000, 3), normal(1001, 3))",
    "pdist backward": "backward(torch.pdist, normal(200, 64))",
    "glu backward": "backward(F.glu, a)",
    "split backward": "backward(lambda x: sum(y * y for y in x.split(100, 1)), a)",
    "slice backward": "backward(lambda x: x[:, 10:200], a)",
    "einsum": "torch.einsum('ij,ij->i', a, b)",
    "tensordot": "torch.tensordot(a, b, dims=([0], [0]))",
    "addmm": "torch.addmm(square, square, square)",
    "baddbmm": "torch.baddbmm(batch, batch, batch)",
    "lerp": "torch.lerp(a, b, 0.3)",
    "addcmul": "torch.addcmul(a, a, b)",
    "clamp": "torch.clamp(a, -1, 1)",
    "polygamma": "torch.polygamma(1, positive)",
    "corrcoef": "torch.corrcoef(square)",
    "renorm": "torch.renorm(a, 2, 0, 1.0)",
    "vander": "torch.vander(vector[:1000], 50)",
    "cartesian_prod": "torch.cartesian_prod(vector[:300], vector[:300])",
    **{f"to {d}": f"a.to(torch.{d})" for d in ("float64", "float16", "bfloat16", "int64", "bool")},
    "to float32": "indices.float()",
    **named("inv det slogdet qr svd svdvals eig eigvals lu pinv matrix_rank cond", "torch.linalg.@(square)"),
    **named("cholesky eigh eigvalsh", "torch.linalg.@(definite)"),
    "solve": "torch.linalg.solve(definite, square[:, :5])",
    "lstsq": "torch.linalg.lstsq(square, square[:, :5])[0]",
    "matrix_exp": "torch.linalg.matrix_exp(square * 0.01)",
    "solve_triangular": "torch.linalg.solve_triangular(definite, square, upper=True)",
    "cholesky_solve": "torch.cholesky_solve(square, definite)",
    **{f"small {f}": f"torch.linalg.{f}(small)" for f in ("inv", "svd", "det", "cholesky", "eigh", "qr")},
    **named(
        "gelu silu mish softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid relu6 softsign tanhshrink "
        "hardshrink softshrink logsigmoid glu normalize dropout",
        "F.@(a)",
    ),
    "layer_norm": "F.layer_norm(a, (300,))",
    "rms_norm": "F.rms_norm(a, (300,))",
    "batch_norm": "F.batch_norm(image, None, None, training=True)",
    "group_norm": "F.group_norm(image, 4)",
    "instance_norm": "F.instance_norm(image)",
    "local_response_norm": "F.local_response_norm(image, 5)",
    **named(
        "mse_loss l1_loss smooth_l1_loss huber_loss kl_div cosine_similarity pairwise_distance poisson_nll_loss",
        "F.@(a, b)",
    ),
    **named("binary_cross_entropy binary_cross_entropy_with_logits", "F.@(share, share)"),
    **named("cross_entropy nll_loss multi_margin_loss", "F.@(a, classes)"),
    "triplet_margin_loss": "F.triplet_margin_loss(a, b, a)",
    "ctc_loss": "F.ctc_loss(steps, labels, [100] * 8, [20] * 8)",
    "embedding": "F.embedding(indices[:100], a)",
    "embedding_bag": "F.embedding_bag(indices[:100, :20], a)",
    "embedding_bag max": "F.embedding_bag(indices[:100, :20], a, mode='max')",
    **named("max_pool2d avg_pool2d", "F.@(image, 3, 2, 1)"),
    "lp_pool2d": "F.lp_pool2d(image, 2.0, 3)",
    "max_pool1d": "F.max_pool1d(sound, 3)",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(image, 7)",
    "adaptive_max_pool2d": "F.adaptive_max_pool2d(image, 7)",
    "unfold": "F.unfold(image, 3)",
    "fold": "F.fold(patches, (64, 64), 3)",
    "pixel_shuffle": "F.pixel_shuffle(image, 2)",
    "grid_sample": "F.grid_sample(image, places, align_corners=False)",
    "affine_grid": "F.affine_grid(maps, (4, 16, 64, 64), align_corners=False)",
    **{
        f"interpolate {m}": f"F.interpolate(image, scale_factor=2, mode='{m}')"
        for m in ("nearest", "bilinear", "bicubic", "area")
    },
    "interpolate antialias": "F.interpolate(image, size=(40, 40), mode='bilinear', antialias=True)",
    **{f"pad {m}": f"F.pad(image, (2, 2, 2, 2), mode='{m}')" for m in ("constant", "reflect", "replicate", "circular")},
    "conv1d": "F.conv1d(sound, normal(32, 32, 5))",
    "conv1d depthwise": "F.conv1d(sound, normal(32, 1, 5), groups=32)",
    "conv2d": "F.conv2d(image, normal(32, 16, 3, 3))",
    "conv2d dilated": "F.conv2d(image, normal(32, 16, 3, 3), dilation=2)",
    "conv_transpose2d": "F.conv_transpose2d(image, normal(16, 32, 3, 3))",
    "conv3d": "F.conv3d(volume, normal(8, 4, 3, 3, 3))",
    "bilinear": "F.bilinear(a[:100, :30], b[:100, :20], normal(10, 30, 20))",
    "attention": "F.scaled_dot_product_attention(query, query, query)",
    "stft": "torch.stft(vector, 400, 160, window=window, return_complex=True)",
    "istft": "torch.istft(spectrum, 400, 160, window=window)",
    "fft": "torch.fft.fft(a)",
    "irfft": "torch.fft.irfft(complex)",
    "hann_window": "torch.hann_window(4000)",
    "linspace": "torch.linspace(0, 1, 300000)",
    "arange": "torch.arange(300000)",
    **named("rand randn zeros", "torch.@(1000, 300)"),
    "randint": "torch.randint(0, 100, (1000, 300))",
    "randperm": "torch.randperm(100000)",
    "bernoulli": "torch.bernoulli(share)",
    "multinomial": "torch.multinomial(share, 50)",
    "normal": "torch.normal(a, share)",
    "poisson": "torch.poisson(share)",
    "poisson of 100": "torch.poisson(share * 100)",
    "poisson of few": "torch.poisson(normal(40).abs() * 50)",
    "exponential": "a.clone().exponential_()",
    "complex mul": "complex * complex",
    "complex abs": "complex.abs()",
    "complex exp": "torch.exp(complex)",
    "complex matmul": "complex[:200, :200] @ complex[:200, :200]",
    "polar": "torch.polar(positive, a)",
    "vdot": "torch.vdot(complex.flatten(), complex.flatten())",
}


def arguments(torch: Any) -> dict[str, Any]:
    """Returns what the expressions name, the same numbers for both libraries."""
    rng = np.random.default_rng(0)
    kept: dict[tuple[int, ...], Any] = {}

    def tensor(values: Any) -> Any:
        return torch.from_numpy(np.ascontiguousarray(values))

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def normal(*shape: int) -> Any:
        """Returns a tensor that is made once."""
        if shape not in kept:
            kept[shape] = tensor(np.random.default_rng(shape).standard_normal(shape).astype(np.float32))
        return kept[shape]

    def backward(run: Callable[..., Any], *inputs: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in inputs]
        return torch.autograd.grad(run(*leaves).sum(), leaves)[0]

    a, b, square, small, vector = draw(1000, 300), draw(1000, 300), draw(200, 200), draw(500, 8, 8), draw(100_000)
    window = torch.hann_window(400)
    return {
        "torch": torch,
        "F": torch.nn.functional,
        "math": math,
        "normal": normal,
        "backward": backward,
        "a": tensor(a),
        "b": tensor(b),
        "positive": tensor(np.abs(a) + 0.1),
        "share": tensor(1 / (1 + np.exp(-a))),
        "wide": tensor(a.astype(np.float64)),
        "shares": tensor(1 / (1 + np.exp(-a.astype(np.float64)))),
        "mask": tensor(a > 0),
        "complex": tensor(a + 1j * b),
        "indices": tensor(rng.integers(0, 1000, (1000, 300))),
        "columns": tensor(rng.integers(0, 300, (1000, 300))),
        "rows": tensor(rng.integers(0, 1000, 1000)),
        "classes": tensor(rng.integers(0, 300, 1000)),
        "vector": tensor(vector),
        "ascending": tensor(np.sort(vector)),
        "square": tensor(square),
        "definite": tensor(square @ square.T + 200 * np.eye(200, dtype=np.float32)),
        "small": tensor(small @ small.transpose(0, 2, 1) + 8 * np.eye(8, dtype=np.float32)),
        "batch": tensor(draw(32, 64, 64)),
        "image": tensor(draw(4, 16, 64, 64)),
        "volume": tensor(draw(2, 4, 16, 32, 32)),
        "sound": tensor(draw(8, 32, 500)),
        "patches": tensor(draw(4, 144, 62 * 62)),
        "places": tensor(2 * rng.random((4, 64, 64, 2), dtype=np.float32) - 1),
        "maps": tensor(draw(4, 2, 3)),
        "query": tensor(draw(2, 8, 256, 64)),
        "steps": torch.log_softmax(tensor(draw(100, 8, 40)), -1),
        "labels": tensor(rng.integers(1, 40, (8, 20))),
        "window": window,
        "spectrum": torch.stft(tensor(vector), 400, 160, window=window, return_complex=True),
    }


def timed(run: Callable[[], Any]) -> float:
    """Returns the microseconds of one call and the read of an element."""
    start = time.perf_counter()
    out = run()
    while isinstance(out, tuple | list):
        out = out[0]
    if not isinstance(out, bool):
        out.reshape(-1)[:1].tolist()
    return 1e6 * (time.perf_counter() - start)


def turn(run: Callable[[], Any], threads: int) -> list[float]:
    """Returns the microseconds of the calls of one turn."""
    if threads == 1:
        return [timed(run)]
    time.sleep(0.02)
    times = [timed(run)]
    while len(times) < 30 and sum(times) < 20_000:
        times.append(timed(run))
    return times


def main() -> None:
    """Prints the geometric mean of the speeds relative to PyTorch, and the slowest functions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="parts of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each function, and three calls at least")
    parser.add_argument("--slowest", type=int, default=60)
    args = parser.parse_args()
    sides: dict[str, dict[str, Callable[[], Any]]] = {}
    for side in ("plait", "torch"):
        library = importlib.import_module(side)
        library.set_num_threads(args.threads)
        scope = arguments(library)
        sides[side] = {name: eval(f"lambda: {text}", scope) for name, text in FUNCTIONS.items()}
    found: list[tuple[float, str, float]] = []
    for name in FUNCTIONS:
        if args.only and not any(part in name for part in args.only):
            continue
        times: dict[str, list[float]] = {side: [] for side in sides}
        end = time.perf_counter() + args.seconds
        while time.perf_counter() < end or len(times["plait"]) < 3:
            for side, functions in sides.items():
                times[side] += turn(functions[name], args.threads)
        best = {side: min(t) for side, t in times.items()}
        found.append((best["torch"] / best["plait"], name, best["plait"]))
    found.sort()
    mean = math.exp(sum(math.log(ratio) for ratio, *_ in found) / len(found))
    print(f"{len(found)} functions, {args.threads} threads: {mean:.2f} times as fast as PyTorch in the geometric mean")
    print(f"{'the slowest':28}{'us':>10}{'torch':>10}")
    for ratio, name, us in found[: args.slowest]:
        print(f"{name:28}{us:10.1f}{ratio:10.2f}")


if __name__ == "__main__":
    main()
