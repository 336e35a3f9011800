"""Mixed precision: dtypes against PyTorch's, gradients, training, the scaler's rule."""

import copy
import json
import math
import threading
import warnings
from pathlib import Path

import plait
import pytest
from plait import nn, optim
from plait.amp import GradScaler, autocast, custom_bwd, custom_fwd
from plait.nn import functional as F

GOLDEN = json.loads((Path(__file__).parent / "golden/amp.json").read_text("utf-8"))
SHAPES, DTYPES = GOLDEN["shapes"], GOLDEN["dtypes"]


def inputs(which, low):
    out = {"T": plait, "F": F, "nn": nn}
    for i, (name, shape) in enumerate(SHAPES.items()):
        dtype = {"float32": plait.float32, "low": low, "mixed": (plait.float32, low)[i % 2]}[which]
        values = plait.arange(math.prod(shape), dtype=plait.float32).mul(0.37).remainder(1).mul(0.8).add(0.1)
        values = values.reshape(shape)
        if shape == [4, 4]:
            values = values * 0.2 + plait.eye(4) * 0.7
        out[name] = values.to(dtype)
    out["line4"] = plait.ones(3, 1, 4, dtype=out["x"].dtype)
    out["idx"] = plait.tensor([0, 1, 2, 3])
    out["idx2"] = plait.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]).repeat(2, 1)
    out["offsets"] = plait.tensor([0, 2])
    return out


@pytest.mark.parametrize("low", [plait.bfloat16, plait.float16], ids=str)
@pytest.mark.parametrize("which", ["float32", "low", "mixed"])
def test_dtypes_are_those_of_pytorch(which, low):
    wrong = []
    for expression, devices in DTYPES.items():
        want = devices["cpu"][["float32", "low", "mixed"].index(which)]
        if want == "error" or expression in OTHER:
            continue
        names = inputs(which, low)
        try:
            with plait.no_grad(), autocast("cpu", low), warnings.catch_warnings(action="ignore"):
                got = str(eval(expression, names).dtype)
        except Exception as e:
            got = f"{type(e).__name__}: {e}"
        got = got.replace("plait.", "").replace(str(low).replace("plait.", ""), "low")
        if got != want:
            wrong.append((expression, got, want))
    assert not wrong


# Where plait's dtype is another, and why.
OTHER = {
    "T.linalg.vecdot(v, w)": "made of a product and a sum",
    "T.linalg.vecdot(x, y)": "made of a product and a sum",
    "T.linalg.pinv(x)": "as pinverse, of which PyTorch lists only the name",
}


def many(form, names):
    return {n: form.format(n) for n in names.split()}


# What the rows say of devices that this machine may lack, tried on PyTorch's dtypes there.
ROWS = {
    **many("T.{}(x)", "acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh tan"),
    **many("T.{}(x)", "abs sigmoid tanh cos sqrt relu mean var amax logit square sum prod norm trace"),
    **many("T.{}(x, 0)", "cumsum cumprod softmax log_softmax logsumexp logcumsumexp"),
    **many("F.{}(x)", "gelu silu mish softplus elu hardswish logsigmoid"),
    **many("T.{}(x, y)", "matmul mm atan2 hypot fmod xlogy cdist dist"),
    **many("F.{}(x, y)", "mse_loss l1_loss huber_loss smooth_l1_loss poisson_nll_loss soft_margin_loss"),
    **many("F.{}(x, idx)", "nll_loss cross_entropy multi_margin_loss"),
    "bmm": "T.bmm(s, r)", "mv": "T.mv(x, v)", "dot": "T.dot(v, w)", "addmm": "T.addmm(x, y, z)",
    "addmv": "T.addmv(v, x, w)", "addr": "T.addr(x, v, w)", "baddbmm": "T.baddbmm(s, r, q)",
    "addbmm": "T.addbmm(s[0], r, q)", "einsum": "T.einsum('ij,jk->ik', x, y)", "linear": "F.linear(x, y)",
    "multi_dot": "T.linalg.multi_dot([x, y, z])", "prelu": "F.prelu(x, v)", "conv1d": "F.conv1d(line, wl)",
    "conv2d": "F.conv2d(img, wi)", "conv3d": "F.conv3d(vol, wv)", "conv_transpose1d": "F.conv_transpose1d(line, wl)",
    "matrix_power": "T.matrix_power(x, 3)", "inner": "T.inner(x, y)", "tensordot": "T.tensordot(x, y, 1)",
    "pow": "x ** y", "cat": "T.cat([x, y])", "stack": "T.stack([x, y])", "addcmul": "T.addcmul(x, y, z)",
    "addcdiv": "T.addcdiv(x, y, z)", "cross": "T.cross(r[0], q[0], dim=1)", "bilinear": "F.bilinear(x, y, bil)",
    "index_put": "T.index_put(x, (idx,), y)", "scatter_add": "T.scatter_add(x, 0, idx2, y)",
    "grid_sample": "F.grid_sample(img, grid, align_corners=False)", "layer_norm": "F.layer_norm(x, [4])",
    "group_norm": "F.group_norm(img, 2)", "rms_norm": "F.rms_norm(x, [4])", "kl_div": "F.kl_div(x, y, log_target=True)",
    "batch_norm": "F.batch_norm(x, None, None, training=True)", "cosine_similarity": "F.cosine_similarity(x, y)",
    "pairwise_distance": "F.pairwise_distance(x, y)", "renorm": "T.renorm(x, 2, 0, 1)",
    "interpolate": "F.interpolate(img, scale_factor=2)", "lp_pool2d": "F.lp_pool2d(img, 2, 2)",
    "avg_pool2d": "F.avg_pool2d(img, 2)", "avg_pool3d": "F.avg_pool3d(vol, 2)", "max_pool3d": "F.max_pool3d(vol, 2)",
    "adaptive_avg_pool3d": "F.adaptive_avg_pool3d(vol, 2)", "embedding": "F.embedding(idx, x)",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(heads, keys, vals)",
    "binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(x, y)",
    "hinge_embedding_loss": "F.hinge_embedding_loss(x, y)", "triplet_margin_loss": "F.triplet_margin_loss(x, y, z)",
    "margin_ranking_loss": "F.margin_ranking_loss(v, w, u)",
    "cosine_embedding_loss": "F.cosine_embedding_loss(x, y, v)",
    "multilabel_margin_loss": "F.multilabel_margin_loss(x, idx2)", "index_copy": "T.index_copy(x, 0, idx, y)",
    "local_response_norm": "F.local_response_norm(img, 2)",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_policies_give_the_dtypes_of_pytorch(kind):
    wrong = []
    for row, expression in ROWS.items():
        of_float32, of_low, _ = DTYPES[expression][kind]
        policy = plait._core.bind_AutocastPolicy(row, kind)
        got = {1: ("low", "low"), 2: ("float32", "float32")}.get(policy, ("float32", "low"))
        if got != (of_float32, of_low):
            wrong.append((row, policy, of_float32, of_low))
    assert not wrong


def test_state_is_the_threads_and_nests():
    assert not plait.is_autocast_enabled("cpu")
    assert plait.get_autocast_dtype("cpu") == plait.bfloat16
    assert plait.get_autocast_dtype("cuda") == plait.get_autocast_gpu_dtype() == plait.float16
    seen = []
    with autocast("cpu", plait.float16, cache_enabled=False):
        assert plait.is_autocast_enabled("cpu") and plait.is_autocast_cpu_enabled()
        assert not plait.is_autocast_enabled()
        assert plait.get_autocast_cpu_dtype() == plait.float16
        assert not plait.is_autocast_cache_enabled()
        thread = threading.Thread(target=lambda: seen.append(plait.is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
        with autocast("cpu", enabled=False):
            assert not plait.is_autocast_enabled("cpu")
            assert (plait.ones(2, 2) @ plait.ones(2, 2)).dtype == plait.float32
            plait.set_grad_enabled(False)
        assert plait.is_autocast_enabled("cpu")
        assert not plait.is_grad_enabled(), "leaving autocast changes nothing else"
        plait.set_grad_enabled(True)
    assert seen == [False]
    assert not plait.is_autocast_enabled("cpu")
    assert plait.is_autocast_cache_enabled()
    with pytest.raises(KeyError), autocast("cpu"):
        raise KeyError
    assert not plait.is_autocast_enabled("cpu")


def test_settings_without_a_region():
    try:
        plait.set_autocast_enabled("cpu", True)
        plait.set_autocast_dtype("cpu", plait.float16)
        assert (plait.ones(2, 2) @ plait.ones(2, 2)).dtype == plait.float16
        assert plait.autocast_increment_nesting() == 1
        assert plait.autocast_decrement_nesting() == 0
    finally:
        plait.set_autocast_enabled("cpu", False)
        plait.set_autocast_dtype("cpu", plait.bfloat16)
    plait.clear_autocast_cache()
    with pytest.raises(RuntimeError, match="float16 or bfloat16"):
        plait.set_autocast_dtype("cpu", plait.float64)


def test_decorator_and_older_names():
    @autocast("cpu", plait.bfloat16)
    def product(x):
        return x @ x

    assert product(plait.ones(2, 2)).dtype == plait.bfloat16
    assert plait.amp.is_autocast_available("cuda")
    assert not plait.amp.is_autocast_available("toaster")
    with plait.cpu.amp.autocast():
        assert (plait.ones(2, 2) @ plait.ones(2, 2)).dtype == plait.bfloat16
    assert isinstance(plait.cuda.amp.GradScaler(enabled=False), GradScaler)
    assert plait.autocast is autocast


@pytest.mark.parametrize("device", [3, "toaster"])
def test_wrong_devices_are_named(device):
    with pytest.raises((RuntimeError, ValueError), match="autocast: "):
        autocast(device)


def test_what_cannot_be_warns_and_stays_off():
    with pytest.warns(UserWarning, match="float16 or bfloat16"):
        region = autocast("cpu", plait.float64)
    with region:
        assert not plait.is_autocast_enabled("cpu")
    if not plait.cuda.is_available():
        with pytest.warns(UserWarning, match="no GPU"), plait.cuda.amp.autocast():
            assert not plait.is_autocast_enabled("cuda")


def test_gradients_have_the_dtypes_of_their_tensors():
    x = plait.randn(3, 4, requires_grad=True)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))
    with autocast("cpu"):
        y = model(x)
        assert y.dtype == plait.bfloat16
        loss = F.cross_entropy(y, plait.tensor([0, 1, 0]))
        assert loss.dtype == plait.float32
    loss.backward()
    assert x.grad.dtype == plait.float32
    assert {p.grad.dtype for p in model.parameters()} == {plait.float32}


class Product(plait.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        Product.seen = (grad.dtype, (grad.float() @ y.T).dtype)
        return grad.float() @ y.T, x.T @ grad.float()


class InFloat32(plait.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=plait.float32)
    def forward(ctx, x, kept):
        InFloat32.seen = (x.dtype, kept["a"][0].dtype, plait.is_autocast_enabled("cpu"))
        return x @ x

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        return grad, None


def test_functions_of_python():
    x, y = plait.ones(2, 2, requires_grad=True), plait.ones(2, 2, requires_grad=True)
    with autocast("cpu"):
        out = Product.apply(x, y)
    assert out.dtype == plait.bfloat16
    out.sum().backward()
    assert Product.seen == (plait.bfloat16, plait.bfloat16), "backward computes as forward did"
    assert x.grad.tolist() == [[2, 2], [2, 2]]
    low = plait.ones(2, 2, dtype=plait.bfloat16, requires_grad=True)
    with autocast("cpu"):
        assert InFloat32.apply(low, {"a": [low]}).dtype == plait.float32
    assert InFloat32.seen == (plait.float32, plait.float32, False)
    assert InFloat32.apply(low, {"a": [low]}).dtype == plait.bfloat16


def data():
    plait.manual_seed(3)
    x = plait.randn(64, 8)
    return x, (x[:, :4].sum(1) > x[:, 4:].sum(1)).long()


def model():
    plait.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 2))


def train(dtype, steps=40):
    net, (x, y), losses = model(), data(), []
    optimizer = optim.AdamW(net.parameters(), lr=0.01)
    scaler = GradScaler("cpu", enabled=dtype is not None, growth_interval=10)
    for _ in range(steps):
        optimizer.zero_grad()
        with autocast("cpu", dtype or plait.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, scaler


@pytest.mark.parametrize(("dtype", "near"), [(plait.bfloat16, 0.02), (plait.float16, 0.005)], ids=str)
def test_training_is_near_that_in_float32(dtype, near):
    plain, _ = train(None)
    mixed, scaler = train(dtype)
    assert plain[-1] < 0.5 * plain[0]
    assert mixed == pytest.approx(plain, abs=near)
    assert mixed != plain
    assert scaler.get_scale() == 2.0**20


def test_scaler_follows_its_rule():
    p = nn.Parameter(plait.ones(3))
    optimizer = optim.SGD([p], lr=0.5)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scaler.scale(p.sum()).backward()
    assert p.grad.tolist() == [8, 8, 8]
    assert scaler.step(optimizer) is None
    assert p.tolist() == [0.5, 0.5, 0.5]
    scaler.update()
    p.grad = plait.tensor([1.0, math.inf, 0.0])
    scaler.step(optimizer)
    assert p.tolist() == [0.5, 0.5, 0.5], "the step is left out"
    scaler.update()
    assert scaler.get_scale() == 4.0
    assert scaler.state_dict() == {
        "scale": 4.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2,
        "_growth_tracker": 0,
    }
    other = GradScaler("cpu")
    other.load_state_dict({**scaler.state_dict(), "_growth_tracker": 1})
    p.grad = plait.zeros(3)
    other.step(optimizer)
    other.update()
    assert other.get_scale() == 8.0
    other.update(3.0)
    other.set_growth_factor(4.0)
    assert (other.get_scale(), other.get_growth_factor(), other.get_backoff_factor()) == (3.0, 4.0, 0.5)
    assert copy.deepcopy(other).state_dict() == other.state_dict()
    a, (b, c) = scaler.scale([p.sum(), (p.sum(), p.sum())])
    assert a.item() == b.item() == c.item() == 6.0
    assert scaler.scale(plait.ones(1, dtype=plait.float16)).dtype == plait.float16


@pytest.mark.skipif(plait.cuda.is_available(), reason="there is a GPU")
def test_scalers_of_gpus_that_are_not_there():
    for make in (GradScaler, plait.cuda.amp.GradScaler, lambda: GradScaler("cuda:1")):
        with pytest.warns(UserWarning, match="there is no GPU, so the scaler is not enabled"):
            scaler = make()
        assert not scaler.is_enabled() and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    assert not GradScaler("cuda", enabled=False).is_enabled()  # without a warning
    assert GradScaler("cpu").is_enabled()


def test_scaler_keeps_its_optimisers_apart():
    p, q = nn.Parameter(plait.ones(1)), nn.Parameter(plait.ones(1))
    one, two = optim.SGD([p], lr=1.0), optim.SGD([q], lr=1.0)
    scaler = GradScaler("cpu", init_scale=2.0)
    p.grad, q.grad = plait.tensor([math.nan]), plait.tensor([2.0])
    scaler.step(one)
    scaler.step(two)
    scaler.update()
    assert (p.item(), q.item(), scaler.get_scale()) == (1.0, 0.0, 1.0)


def test_scaler_says_what_is_out_of_order():
    p = nn.Parameter(plait.ones(1))
    optimizer = optim.SGD([p], lr=1.0)
    scaler = GradScaler("cpu")
    with pytest.raises(RuntimeError, match="no gradients were looked at"):
        scaler.update()
    with pytest.raises(RuntimeError, match="no parameter of this optimiser has a gradient"):
        scaler.step(optimizer)
    scaler = GradScaler("cpu")
    p.grad = plait.ones(1)
    with pytest.raises(RuntimeError, match="closures"):
        scaler.step(optimizer, lambda: 0.0)
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="called twice"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="called twice"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"after step\(\)"):
        scaler.unscale_(optimizer)
    with pytest.raises(ValueError, match="growth_factor"):
        GradScaler(growth_factor=1.0)
    with pytest.raises(RuntimeError, match="empty"):
        scaler.load_state_dict({})
    half = nn.Parameter(plait.ones(1, dtype=plait.float16))
    half.grad = plait.ones(1, dtype=plait.float16)
    with pytest.raises(ValueError, match="float16"):
        scaler.unscale_(optim.SGD([half], lr=1.0))


def test_scaler_that_is_not_enabled_does_nothing():
    p = nn.Parameter(plait.ones(1))
    scaler = GradScaler(enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss
    p.grad = plait.ones(1)
    optimizer = optim.SGD([p], lr=1.0)
    scaler.unscale_(optimizer)
    assert scaler.step(optimizer, lambda: plait.tensor(5.0)).item() == 5.0
    scaler.update()
    assert (p.item(), scaler.get_scale(), scaler.state_dict()) == (0.0, 1.0, {})


def test_checkpoints_compute_again_in_the_same_dtypes():
    from plait.utils.checkpoint import checkpoint

    layer, seen = nn.Linear(4, 4), []

    def run(x):
        y = layer(x)
        seen.append(y.dtype)
        return y.float().exp()

    x = plait.ones(2, 4, requires_grad=True)
    with autocast("cpu"):
        y = checkpoint(run, x, use_reentrant=False)
    y.sum().backward()
    assert seen == [plait.bfloat16, plait.bfloat16]


def test_devices_that_are_not_there():
    for kind, dtype in (("mps", plait.float16), ("xpu", plait.float16), ("hpu", plait.bfloat16)):
        assert not plait.is_autocast_enabled(kind) and plait.get_autocast_dtype(kind) is dtype
        with autocast(kind, enabled=False), autocast("cpu"):
            assert (plait.ones(2, 2) @ plait.ones(2, 2)).dtype is plait.bfloat16
        with pytest.warns(UserWarning, match="stays off"), autocast(kind):
            assert (plait.ones(2, 2) @ plait.ones(2, 2)).dtype is plait.float32
        plait.set_autocast_enabled(kind, False)
        for change in (
            lambda k=kind: plait.set_autocast_enabled(k, True),
            lambda k=kind: plait.set_autocast_dtype(k, plait.float16),
        ):
            with pytest.raises(RuntimeError, match="unsupported device_type"):
                change()

        class Twice(plait.autograd.Function):
            @staticmethod
            @custom_fwd(device_type=kind, cast_inputs=plait.float16)
            def forward(ctx, x):
                return x * 2

            @staticmethod
            @custom_bwd(device_type=kind)
            def backward(ctx, g):
                return g * 2

        x = plait.ones(2, requires_grad=True)
        Twice.apply(x).sum().backward()
        assert x.grad.tolist() == [2, 2] and Twice.apply(x).dtype is plait.float32
    with pytest.raises(RuntimeError, match="unsupported device_type"):
        plait.is_autocast_enabled("meta")
