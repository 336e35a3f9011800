"""Single operations on an NVIDIA GPU beside PyTorch: twenty calls queued, and then one element read.

    python benchmarks/python/operations.py
    python benchmarks/python/operations.py --only sort topk --seconds 1
    python benchmarks/python/operations.py --device cpu --threads 1 --elements 100000

Both run in one process, in turns. Times are medians of the milliseconds of one call, with a twentieth of the read.
On one thread of a CPU they are of the processor.
Matrices are 4096 x 4096 where nothing else is said; vectors have 4 Mi elements; images are 32 x 64 x 56 x 56.
On a CPU, the operations on complex numbers alone are measured.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

CALLS = 20

# Each operation by its name, as an expression of what `arguments` makes.
OPERATIONS = {
    "add": "m + other",
    "add 1000": "m[0, :1000] + m[1, :1000]",
    "add bf16": "low + low",
    "add int64": "long + long",
    "mul number": "m * 2",
    "where": "torch.where(mask, m, other)",
    "exp": "m.exp()",
    "tanh": "m.tanh()",
    "gelu": "nn.gelu(m)",
    "pow": "positive ** 1.7",
    "clamp": "m.clamp(-1, 1)",
    "to bf16": "m.bfloat16()",
    "to float": "low.float()",
    "dropout": "nn.dropout(m, 0.1)",
    "randn": "torch.randn(n, n, device='cuda')",
    "sum": "m.sum()",
    "sum rows": "m.sum(1)",
    "sum columns": "m.sum(0)",
    "sum int64": "long.sum()",
    "mean": "m.mean()",
    "var": "m.var(1)",
    "norm": "m.norm()",
    "max": "m.max()",
    "max rows": "m.max(1)[0]",
    "argmax": "m.argmax(1)",
    "logsumexp": "m.logsumexp(1)",
    "softmax": "m.softmax(1)",
    "softmax columns": "m.softmax(0)",
    "cumsum": "m.cumsum(1)",
    "layer_norm": "nn.layer_norm(m, (n,))",
    "batch_norm": "nn.batch_norm(image, None, None, training=True)",
    "cross_entropy": "nn.cross_entropy(m, rows)",
    "mse": "nn.mse_loss(m, other)",
    "matmul": "m @ other",
    "matmul bf16": "low @ low",
    "matmul 512": "square @ square",
    "matmul 64": "square[:64, :64] @ square[:64, :64]",
    "mv": "m @ weight",
    "bmm": "query @ query.mT",
    "attention": "nn.scaled_dot_product_attention(query, query, query, is_causal=True)",
    "conv 3x3": "nn.conv2d(image, kernel, padding=1)",
    "conv 3x3 bf16": "nn.conv2d(image_low, kernel_low, padding=1)",
    "conv depthwise": "nn.conv2d(image, depthwise, padding=1, groups=64)",
    "max_pool": "nn.max_pool2d(image, 3, 2, 1)",
    "avg_pool": "nn.avg_pool2d(image, 2)",
    "adaptive_pool": "nn.adaptive_avg_pool2d(image, 1)",
    "unfold": "nn.unfold(image, 3, padding=1)",
    "bilinear": "nn.interpolate(image, scale_factor=2, mode='bilinear')",
    "pad": "nn.pad(m, (1, 1, 1, 1))",
    "transpose": "m.T.contiguous()",
    "cat": "torch.cat([m, other])",
    "flip": "m.flip(1)",
    "roll": "m.roll(3, 1)",
    "tril": "m.tril()",
    "outer": "torch.outer(weight, weight)",
    "gather": "m.gather(1, columns)",
    "scatter_add": "zeros.scatter_add(1, columns, m)",
    "index_select": "m.index_select(0, rows)",
    "take": "v.take(places)",
    "index_put": "torch.zeros_like(v).index_put_((places,), v, accumulate=True)",
    "embedding": "nn.embedding(tokens, table)",
    "one_hot": "nn.one_hot(rows, n)",
    "nonzero": "mask.nonzero()",
    "masked_select": "m.masked_select(mask)",
    "bincount": "few.bincount()",
    "unique": "places.unique()",
    "sort": "v.sort()[0]",
    "sort rows": "m.sort(1)[0]",
    "topk": "m.topk(10, 1)[0]",
    "median": "m.median(1)[0]",
    "multinomial": "positive[:64].multinomial(10)",
    "cdist": "torch.cdist(points, points)",
    "cholesky": "torch.linalg.cholesky(definite)",
    "inv": "torch.linalg.inv(square)",
    "solve": "torch.linalg.solve(square, square)",
    "qr": "torch.linalg.qr(square)[0]",
    "svd": "torch.linalg.svd(square)[1]",
    "eigh": "torch.linalg.eigh(definite)[0]",
}

# The same for complex numbers: z, u, unit, rows and square have about as many elements as is asked for;
# p, q and r are stacks of matrices.
COMPLEX = {
    "complex add": "z + u",
    "complex mul": "z * u",
    "complex div": "z / u",
    "complex mul number": "z * 2j",
    "complex mul real": "z * real",
    "complex mul rows": "rows * rows[0]",
    "complex mul_": "w.mul_(1)",
    "complex conj": "torch.conj_physical(z)",
    "complex neg": "-z",
    "complex addcmul": "torch.addcmul(z, z, u)",
    "complex abs": "z.abs()",
    "complex exp": "z.exp()",
    "complex sum": "z.sum()",
    "complex sum rows": "rows.sum(1)",
    "complex sum columns": "rows.sum(0)",
    "complex prod rows": "rows.prod(1)",
    "complex sum square 0": "square.sum(0)",
    "complex sum square 1": "square.sum(1)",
    "complex cumsum": "z.cumsum(0)",
    "complex cumsum rows": "square.cumsum(1)",
    "complex cumsum columns": "square.cumsum(0)",
    "complex cumprod": "unit.cumprod(0)",
    "complex cumprod rows": "turns.cumprod(1)",
    "complex cumprod columns": "turns.cumprod(0)",
    "complex cumsum backward": "torch.autograd.grad(leaf.cumsum(0), leaf, z)[0]",
    "complex cumprod backward": "torch.autograd.grad(leaf.cumprod(0), leaf, z)[0]",
    "complex mul column": "square * square[:, :1]",
    "complex add column": "square + square[:, :1]",
    "complex outer": "square[:, :1] * square[:1]",
    "complex norm": "torch.linalg.vector_norm(z)",
    "complex dot": "torch.dot(z, u)",
    "complex vdot": "torch.vdot(z, u)",
    "complex make": "torch.complex(real, real)",
    "complex clone": "z.clone()",
    "complex cat": "torch.cat([z, u])",
    "complex transpose": "rows.T.contiguous()",
    "complex matmul 128": "p[0] @ p[0]",
    "complex bmm 32": "q @ q",
    "complex bmm 64": "r @ r",
    "complex bmm 64 transposed": "r @ r.mT",
    "complex bmm 64 adjoint": "r @ r.mH",
    "complex bmm 128": "p[:8] @ p[:8]",
    "complex baddbmm 32": "torch.baddbmm(q, q, q)",
}


def arguments(torch: Any) -> dict[str, Any]:
    """Returns the tensors that the operations read, and the modules that they call."""
    torch.manual_seed(0)

    def real(*shape: int) -> Any:
        return torch.randn(*shape).to("cuda")

    def whole(high: int, *shape: int) -> Any:
        return torch.randint(0, high, shape).to("cuda")

    n = 4096
    m, image, square = real(n, n), real(32, 64, 56, 56), real(512, 512)
    kernel = real(64, 64, 3, 3)
    return {
        "torch": torch, "nn": torch.nn.functional, "n": n,
        "m": m, "other": real(n, n), "v": real(n * 1024), "weight": real(n), "positive": m.abs() + 0.1, "mask": m > 0,
        "low": m.bfloat16(), "long": whole(1000, n, n), "zeros": torch.zeros(n, n).to("cuda"),
        "columns": whole(n, n, n), "places": whole(n * 1024, n * 1024), "rows": whole(n, n), "few": whole(50, n * 1024),
        "image": image, "kernel": kernel, "depthwise": real(64, 1, 3, 3),
        "image_low": image.bfloat16(), "kernel_low": kernel.bfloat16(),
        "square": square, "definite": square @ square.T + 512 * torch.eye(512).to("cuda"), "points": real(n, 64),
        "query": real(8, 12, 1024, 64), "table": real(50_000, 768), "tokens": whole(50_000, 8, 1024),
    }  # fmt: skip


def complex_arguments(torch: Any, device: str, elements: int) -> dict[str, Any]:
    """Returns the tensors that the operations on complex numbers read."""

    def numbers(*shape: int) -> Any:
        return torch.complex(torch.randn(*shape), torch.randn(*shape)).to(device)

    z, side = numbers(elements), int(elements**0.5)
    unit = z / z.abs()
    square, turns = (x[: side * side].reshape(side, side) for x in (z, unit))
    return {
        "torch": torch, "z": z, "u": numbers(elements), "w": z.clone(), "real": torch.randn(elements).to(device),
        "rows": z[: elements // 100 * 100].reshape(-1, 100), "p": numbers(64, 128, 128), "q": numbers(64, 32, 32),
        "r": numbers(32, 64, 64), "square": square, "unit": unit, "turns": turns, "leaf": unit.clone().requires_grad_(),
    }  # fmt: skip


def operations(torch: Any, device: str, elements: int) -> dict[str, Callable[[], Any]]:
    """Returns a function for each operation."""
    texts, scope = COMPLEX, complex_arguments(torch, device, elements)
    if device != "cpu":
        texts, scope = OPERATIONS | COMPLEX, arguments(torch) | scope
    return {name: eval(f"lambda: {text}", scope) for name, text in texts.items()}


def timed(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Returns the milliseconds of one call of several, the last of which is waited for."""
    start = clock()
    for _ in range(CALLS):
        out = run()
    (out.real if out.is_complex() else out).reshape(-1)[0].item()
    return 1e3 * (clock() - start) / CALLS


def main() -> None:
    """Prints each operation's time on both sides, and their ratio, the slowest beside PyTorch last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names of operations")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each operation")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--threads", type=int, help="of a CPU")
    parser.add_argument("--elements", type=int, default=4 << 20, help="of vectors of complex numbers")
    args = parser.parse_args()
    sides = {"plait": importlib.import_module("plait")}
    if importlib.util.find_spec("torch"):
        sides["torch"] = importlib.import_module("torch")
    for module in sides.values():
        module.backends.cudnn.allow_tf32 = False  # PyTorch allows it for convolutions unless told otherwise
        if args.threads:
            module.set_num_threads(args.threads)
    made = {name: operations(module, args.device, args.elements) for name, module in sides.items()}
    clock = time.process_time if args.device == "cpu" and args.threads == 1 else time.perf_counter
    lines = []
    for case in made["plait"]:
        if args.only and case not in args.only:
            continue
        times: dict[str, list[float]] = {name: [] for name in sides}
        try:
            for name in sides:
                timed(made[name][case], clock)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            print(f"{case}: {name} refuses it: {error}", flush=True)
            continue
        end = time.perf_counter() + args.seconds
        while time.perf_counter() < end or len(times["plait"]) < 2:
            for name in sides:
                times[name].append(timed(made[name][case], clock))
        medians = {name: statistics.median(t) for name, t in times.items()}
        speed = medians["torch"] / medians["plait"] if "torch" in medians else 0.0
        lines.append((speed, f"{case:20}" + "".join(f"{medians[n]:10.4f}" for n in sides) + f"{speed:8.2f}x"))
    print(f"{'ms':20}" + "".join(f"{name:>10}" for name in sides) + f"{'speed':>9}")
    for _, line in sorted(lines, reverse=True):
        print(line)


if __name__ == "__main__":
    main()
