# ruff: noqa: E501, SIM905
"""Writes amp.json: the dtypes of results under PyTorch's autocast. Run it where PyTorch is installed.

Each expression is evaluated with all inputs in float32, with all in the lower dtype, and with every second one in it;
on a CPU, and on a GPU that PyTorch only pretends to have, since dtypes do not depend on values.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

# The names that expressions use, and their shapes. Every second one is of the lower dtype where inputs are mixed.
SHAPES = {
    "x": [4, 4], "y": [4, 4], "z": [4, 4], "v": [4], "w": [4], "u": [4],
    "s": [2, 3, 3], "r": [2, 3, 3], "q": [2, 3, 3],
    "line": [1, 2, 6], "wl": [2, 2, 3], "img": [1, 2, 6, 6], "wi": [2, 2, 3, 3], "vol": [1, 2, 6, 6, 6],
    "wv": [2, 2, 3, 3, 3], "two": [2], "pair": [2], "heads": [1, 2, 4, 8], "keys": [1, 2, 4, 8], "vals": [1, 2, 4, 8],
    "grid": [1, 3, 3, 2], "bil": [3, 4, 4], "three": [3],
}  # fmt: skip

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac
lgamma log log10 log1p log2 logit neg rad2deg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh
trunc i0 nan_to_num prod sum mean std var amax amin cumsum_0 cumprod_0 logcumsumexp_0 softmax_0 log_softmax_0 logsumexp_0
norm trace nansum nanmean median nanmedian inverse pinverse cholesky det logdet slogdet_ svd_ triu tril
diag t flatten clone isnan argmax sort_ msort flip_ cov corrcoef matrix_exp qr_""".split()

FUNCTIONAL = """celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus softsign
tanhshrink hardshrink softshrink normalize softmin_0 glu""".split()

EXPRESSIONS = [
    "x + y", "x * y", "x / y", "x - y", "x ** 2", "x ** y", "2 ** x", "x @ y", "x == y", "x < y", "x.pow(3)", "x.exp()", "x.sum()",
    "T.addcmul(x, y, z)", "T.addcdiv(x, y, z)", "T.atan2(x, y)", "T.lerp(x, y, 0.5)", "T.maximum(x, y)", "T.fmod(x, y)",
    "T.hypot(x, y)", "T.copysign(x, y)", "T.where(x > y, x, y)", "T.logaddexp(x, y)", "T.xlogy(x, y)", "T.float_power(x, 2)",
    "T.matmul(x, y)", "T.matmul(s, r)", "T.matmul(x, v)", "T.mm(x, y)", "T.bmm(s, r)", "T.mv(x, v)", "T.dot(v, w)",
    "T.vdot(v, w)", "T.inner(x, y)", "T.outer(v, w)", "T.addmm(x, y, z)", "T.addmv(v, x, w)", "T.addr(x, v, w)",
    "T.baddbmm(s, r, q)", "T.addbmm(s[0], r, q)", "T.einsum('ij,jk->ik', x, y)", "T.einsum('ij->ji', x)",
    "T.tensordot(x, y, 1)", "T.kron(x, y)", "T.chain_matmul(x, y, z)", "T.linalg.multi_dot([x, y, z])",
    "T.linalg.matmul(x, y)", "T.linalg.vecdot(v, w)", "T.linalg.vecdot(x, y)", "T.linalg.norm(x)",
    "T.linalg.vector_norm(x)", "T.linalg.matrix_norm(x)", "T.linalg.inv(x)", "T.linalg.det(x)", "T.linalg.solve(x, y)",
    "T.linalg.cholesky(x @ x.T)", "T.linalg.matrix_power(x, 2)", "T.matrix_power(x, 3)", "T.linalg.svdvals(x)",
    "T.linalg.slogdet(x)[1]", "T.linalg.pinv(x)", "T.linalg.eigvalsh(x)", "T.linalg.qr(x)[0]", "T.linalg.lstsq(x, y)[0]",
    "T.linalg.solve_triangular(x, y, upper=True)", "T.linalg.matrix_exp(x)", "T.linalg.cross(r[0], q[0])",
    "T.linalg.tensorinv(x, 1)", "T.linalg.matrix_rank(x)", "T.cholesky_solve(x, y)", "T.cholesky_inverse(x)",
    "T.cat([x, y])", "T.stack([x, y])", "T.hstack([x, y])", "T.vstack([x, y])", "T.cross(r[0], q[0], dim=1)",
    "T.cdist(x, y)", "T.dist(x, y)", "F.pdist(x)", "T.renorm(x, 2, 0, 1)", "T.quantile(x, 0.5)", "T.nanquantile(x, 0.5)", "T.std_mean(x)[0]",
    "T.cumulative_trapezoid(x)", "T.trapezoid(x)", "T.bilinear(x, y, bil, None)", "F.bilinear(x, y, bil)", "T.block_diag(x, y)",
    "T.index_copy(x, 0, idx, y)", "T.index_add(x, 0, idx, y)", "T.index_put(x, (idx,), y)", "T.scatter_add(x, 0, idx2, y)",
    "T.scatter(x, 0, idx2, y)", "T.gather(x, 0, idx2)", "T.take_along_dim(x, idx2, 0)", "T.index_select(x, 0, idx)",
    "T.masked_fill(x, x > 2, 0.0)", "T.clamp(x, 0, 1)", "T.polygamma(1, x)", "T.prod(x, 0)", "T.sum(x, 0)", "T.mean(x, 0)",
    "T.sum(x, dtype=T.float64)", "T.softmax(x, 0, dtype=T.float64)", "T.prod(x, dtype=T.float64)", "T.norm(x, 1)", "T.norm(x, 2, 0)", "T.max(x, 0)[0]",
    "T.var_mean(x)[0]", "T.histc(x)", "T.topk(x, 2)[0]", "T.kthvalue(x, 1)[0]", "T.cummax(x, 0)[0]", "T.diff(x)", "T.logit(x, 0.1)",
    "F.linear(x, y)", "F.linear(x, y, v)", "F.prelu(x, v)", "F.conv1d(line, wl)", "F.conv1d(line, wl, two)", "F.conv2d(img, wi)",
    "F.conv2d(img, wi, two)", "F.conv3d(vol, wv)", "F.conv_transpose1d(line, wl)", "F.conv_transpose2d(img, wi, two)",
    "F.conv_transpose3d(vol, wv)", "F.scaled_dot_product_attention(heads, keys, vals)",
    "F.scaled_dot_product_attention(heads, keys, vals, is_causal=True)",
    "F.layer_norm(x, [4])", "F.layer_norm(x, [4], v, w)", "F.group_norm(img, 2)", "F.group_norm(img, 2, two, pair)",
    "F.rms_norm(x, [4])", "F.rms_norm(x, [4], v)", "F.batch_norm(x, None, None, training=True)", "F.instance_norm(img)",
    "F.local_response_norm(img, 2)", "F.cosine_similarity(x, y)", "F.pairwise_distance(x, y)", "F.embedding(idx, x)",
    "F.embedding_bag(idx, x, offsets)", "F.dropout(x, 0.5)", "F.softmax(x, 1)", "F.log_softmax(x, 1)",
    "F.gumbel_softmax(x)", "F.threshold(x, 0.1, 1)",
    "F.mse_loss(x, y)", "F.l1_loss(x, y)", "F.huber_loss(x, y)", "F.smooth_l1_loss(x, y)", "F.kl_div(x, y, reduction='batchmean')",
    "F.kl_div(x, y, log_target=True)",
    "F.poisson_nll_loss(x, y)", "F.gaussian_nll_loss(x, y, z)", "F.binary_cross_entropy_with_logits(x, y)",
    "F.binary_cross_entropy_with_logits(x, y, z, pos_weight=v)", "F.binary_cross_entropy(x, y)", "F.nll_loss(x, idx)", "F.nll_loss(x, idx, v)",
    "F.cross_entropy(x, idx)", "F.cross_entropy(x, y)", "F.cross_entropy(x, idx, w)", "F.cross_entropy(x, idx, label_smoothing=0.1)",
    "F.hinge_embedding_loss(x, y)", "F.cosine_embedding_loss(x, y, v)", "F.margin_ranking_loss(v, w, u)",
    "F.soft_margin_loss(x, y)", "F.triplet_margin_loss(x, y, z)", "F.multi_margin_loss(x, idx)", "F.multilabel_margin_loss(x, idx2)",
    "F.multilabel_soft_margin_loss(x, y)", "F.triplet_margin_with_distance_loss(x, y, z)",
    "F.avg_pool1d(line, 2)", "F.avg_pool2d(img, 2)", "F.avg_pool3d(vol, 2)", "F.max_pool1d(line, 2)", "F.max_pool2d(img, 2)", "F.max_pool3d(vol, 2)",
    "F.adaptive_avg_pool1d(line, 2)", "F.adaptive_avg_pool2d(img, 2)", "F.adaptive_avg_pool3d(vol, 2)", "F.adaptive_max_pool1d(line, 2)",
    "F.adaptive_max_pool2d(img, 2)", "F.adaptive_max_pool3d(vol, 2)", "F.lp_pool1d(line, 2, 2)", "F.lp_pool2d(img, 2, 2)",
    "F.grid_sample(img, grid, align_corners=False)", "F.interpolate(img, scale_factor=2)", "F.interpolate(img, scale_factor=2, mode='bilinear')",
    "F.pad(img, [1, 1], mode='reflect')", "F.pad(img, [1, 1, 1, 1], mode='replicate')", "F.pad(img, [1, 1], mode='circular')", "F.pad(img, [1, 1])",
    "F.unfold(img, 2)", "F.pixel_shuffle(T.cat([img, img], 1), 2)", "F.max_unpool2d(*F.max_pool2d(img, 2, return_indices=True), 2)",
    "nn.LSTM(4, 4)(line4)[0]", "nn.GRU(4, 4)(line4)[0]", "nn.RNN(4, 4)(line4)[0]", "nn.LSTMCell(4, 4)(x)[0]", "nn.GRUCell(4, 4)(x)",
    "nn.RNNCell(4, 4)(x)", "nn.MultiheadAttention(4, 2)(x, x, x)[0]", "nn.Linear(4, 4)(x)", "nn.Conv2d(2, 2, 3)(img)",
    "nn.LayerNorm(4)(x)", "nn.BatchNorm1d(4)(x)", "nn.TransformerEncoderLayer(4, 2, 8)(x)",
]  # fmt: skip


def expressions() -> list[str]:
    """Returns every expression."""
    out = []
    for module, names in (("T", UNARY), ("F", FUNCTIONAL)):
        for n in names:
            name, _, dim = n.partition("_0") if n.endswith("_0") else (n, "", None)
            name = name.removesuffix("_") if n.endswith("_") else name
            args = "x, 0" if dim == "" and n.endswith("_0") else "x, [0]" if n == "flip_" else "x"
            tail = {"slogdet_": "[1]", "svd_": "[1]", "sort_": "[0]", "qr_": "[0]"}.get(n, "")
            out.append(f"{module}.{name}({args}){tail}")
    return out + EXPRESSIONS


def evaluate(expression: str, device: str, low: torch.dtype, which: str) -> str:
    """Returns the dtype of the result, or what kind of error there is."""
    make: dict[str, Any] = {"T": torch, "F": torch.nn.functional}

    class Nn:
        def __getattr__(self, name: str) -> Any:
            return lambda *a, **k: getattr(torch.nn, name)(*a, **k).to(device)

    make["nn"] = Nn()
    for i, (name, shape) in enumerate(SHAPES.items()):
        dtype = {"float32": torch.float32, "low": low, "mixed": (torch.float32, low)[i % 2]}[which]
        n = torch.Size(shape).numel()
        values = torch.arange(n, dtype=torch.float32).mul(0.37).remainder(1).mul(0.8).add(0.1).reshape(shape)
        if shape == [4, 4]:
            values = values * 0.2 + torch.eye(4) * 0.7
        make[name] = values.to(device, dtype)
    make["line4"] = torch.ones(3, 1, 4, device=device, dtype=make["x"].dtype)
    make["idx"] = torch.tensor([0, 1, 2, 3], device=device)
    make["idx2"] = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]], device=device).repeat(2, 1)
    make["offsets"] = torch.tensor([0, 2], device=device)
    try:
        with torch.no_grad():
            torch.set_autocast_enabled(device.partition(":")[0], True)
            out = eval(expression, make)
        return str(out.dtype).replace("torch.", "").replace(str(low).replace("torch.", ""), "low")
    except Exception as e:
        return "error" if device == "cpu" else f"{type(e).__name__}"
    finally:
        torch.set_autocast_enabled(device.partition(":")[0], False)


def main() -> None:
    """Writes the file."""
    table = {}
    for e in expressions():
        cpu = [evaluate(e, "cpu", torch.bfloat16, w) for w in ("float32", "low", "mixed")]
        with FakeTensorMode(allow_non_fake_inputs=True):
            gpu = [evaluate(e, "cuda:0", torch.float16, w) for w in ("float32", "low", "mixed")]
        table[e] = {"cpu": cpu, "gpu": gpu}
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in table.items())
    shapes = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in SHAPES.items())
    text = '{\n"shapes": {\n' + shapes + '},\n"dtypes": {\n' + lines + "\n}}\n"
    (Path(__file__).parent / "amp.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
