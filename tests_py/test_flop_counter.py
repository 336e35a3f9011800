"""`FlopCounterMode`. The expectations are what PyTorch counts."""

import plait
import pytest
from plait import nn
from plait.nn import functional as F
from plait.utils.flop_counter import FlopCounterMode

X = plait.arange(64.0).reshape(2, 4, 8).sin()
IMAGES = plait.arange(512.0).reshape(2, 4, 8, 8).sin()


def counted(function, *inputs, backward=True):
    inputs = [x.clone().requires_grad_() for x in inputs]
    with FlopCounterMode(display=False) as counter:
        out = function(*inputs)
        if backward:
            (out[0] if isinstance(out, tuple) else out).sum().backward()
    return counter


CONVOLUTION, ATTENTION = "aten.convolution", "aten._scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.parametrize(
    ("function", "inputs", "counts"),
    [
        (nn.Linear(8, 3), [X], {"aten.addmm": 384, "aten.mm": 768}),
        (nn.Linear(8, 3, bias=False), [X], {"aten.mm": 1152}),
        (nn.Linear(8, 3).requires_grad_(False), [X], {"aten.addmm": 384, "aten.mm": 384}),
        (nn.Conv1d(4, 2, 3), [X], {CONVOLUTION: 576, f"{CONVOLUTION}_backward": 1152}),
        (nn.Conv2d(4, 6, 3, 2, 1, groups=2), [IMAGES], {CONVOLUTION: 6912, f"{CONVOLUTION}_backward": 20736}),
        (nn.ConvTranspose2d(4, 2, 3, 2), [IMAGES], {CONVOLUTION: 18432, f"{CONVOLUTION}_backward": 36864}),
        (nn.MultiheadAttention(8, 2), [X, X, X], {"aten.addmm": 4096, "aten.bmm": 1536, "aten.mm": 8192}),
        (lambda x: x[0] @ x[0].T, [X], {"aten.mm": 768}),
        (lambda x: x @ x[0].T, [X], {"aten.mm": 1536}),
        (lambda x: plait.bmm(x, x.mT), [X], {"aten.bmm": 1536}),
        (lambda x: plait.einsum("bij,bkj->bik", x, x), [X], {"aten.bmm": 1536}),
        (lambda x: plait.addmm(x[0, :, :4], x[0], x[0].T), [X], {"aten.addmm": 256, "aten.mm": 512}),
        (lambda x: plait.baddbmm(plait.zeros(2, 4, 4), x, x.mT), [X], {"aten.baddbmm": 512, "aten.bmm": 1024}),
        (lambda x: plait.tensordot(x, x, dims=([2], [2])), [X], {"aten.mm": 3072}),
        (
            lambda x: F.scaled_dot_product_attention(x, x, x),
            [X[None]],
            {ATTENTION: 1024, f"{ATTENTION}_backward": 2560},
        ),
        (lambda x: x @ x[0, 0], [X], {}),
        (lambda x: plait.einsum("bij,bij->bij", x, x), [X], {}),
    ],
)
def test_counts(function, inputs, counts):
    assert counted(function, *inputs).get_flop_counts().get("Global", {}) == counts


def test_modules_and_table(capsys):
    net = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Sequential(nn.Linear(5, 3)))
    counter = counted(net, X)
    assert counter.get_total_flops() == 2640
    assert counter.get_flop_counts() == {
        "Global": {"aten.addmm": 880, "aten.mm": 1760}, "Sequential": {"aten.addmm": 880, "aten.mm": 1760},
        "Sequential.0": {"aten.addmm": 640, "aten.mm": 1280}, "Sequential.2": {"aten.addmm": 240, "aten.mm": 480},
        "Sequential.2.0": {"aten.addmm": 240, "aten.mm": 480},
    }  # fmt: skip
    assert capsys.readouterr().out == ""
    with plait.no_grad(), FlopCounterMode(depth=1) as counter:
        net(X)
    text = capsys.readouterr().out
    assert text.strip() == counter.get_table() and "880" in text and "Sequential.0" not in text
    assert "Sequential.2.0" in counter.get_table(3) and not net._forward_hooks and not counter._called
    with FlopCounterMode(display=False) as counter, pytest.raises(RuntimeError):
        net(X[..., :3])
    assert counter._called == [] and counter.get_total_flops() == 0


def test_costs_of_ones_own():
    def cost(x, *, out_val):
        return out_val.numel()

    with FlopCounterMode(display=False, custom_mapping={plait.sin: cost}) as counter:
        plait.sin(X)
    assert counter.get_flop_counts() == {"Global": {plait.sin: 64}}


@pytest.mark.parametrize(
    ("options", "forward", "backward"),
    [
        ({}, {"aten.addmm": 5400}, 7992),
        ({"num_layers": 2}, {"aten.addmm": 11880}, 20304),
        ({"bidirectional": True}, {"aten.addmm": 10800}, 15984),
        ({"bias": False}, {"aten.mm": 5400}, 7992),
    ],
)
def test_gated_layers(options, forward, backward):
    model, x = nn.GRU(4, 6, **options), plait.randn(5, 3, 4)
    with FlopCounterMode(display=False) as counter:
        out = model(x)[0]
        assert counter.get_flop_counts()["GRU"] == forward
        out.sum().backward()
    counts = counter.get_flop_counts()["GRU"]
    assert sum(counts.values()) == sum(forward.values()) + backward
    with FlopCounterMode(display=False) as counter:  # one call, which PyTorch does not count
        nn.LSTM(4, 6)(x)[0].sum().backward()
    assert counter.get_total_flops() == 0
