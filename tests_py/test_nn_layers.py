"""Containers, lazy modules, dropout, masks, and what layers say about wrong arguments."""

import copy
import pickle

import numpy as np
import plait
import pytest
from plait import nn
from plait.nn import functional as F


def close(a, b, tol=1e-5):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tol, atol=tol)


def test_sequential():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3
    assert isinstance(net[-1], nn.Linear)
    assert list(net[1:].state_dict()) == ["2.weight", "2.bias"]
    net.append(nn.Tanh()).insert(0, nn.Identity())
    assert [type(m).__name__ for m in net] == ["Identity", "Linear", "ReLU", "Linear", "Tanh"]
    del net[0]
    net[0] = nn.Linear(2, 3, bias=False)
    assert isinstance(net.pop(-1), nn.Tanh)
    assert list(net.state_dict()) == ["0.weight", "2.weight", "2.bias"]
    assert len(net + net) == 6
    assert len(net * 2) == 6
    named = nn.Sequential({"a": nn.Linear(1, 1), "b": nn.ReLU()})
    assert list(named.state_dict()) == ["a.weight", "a.bias"]
    assert isinstance(named.b, nn.ReLU)
    with pytest.raises(IndexError, match="3 entries"):
        net[5]
    with pytest.raises(TypeError, match="Module"):
        net.append(3)


def test_module_list_and_dict():
    layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    layers += [nn.ReLU()]
    layers.insert(-1, nn.Tanh())
    assert [type(m).__name__ for m in layers][-2:] == ["Tanh", "ReLU"]
    assert isinstance(layers[1:3], nn.ModuleList)
    assert len(layers + nn.ModuleList([nn.ReLU()])) == 6
    del layers[0:3]
    assert list(layers._modules) == ["0", "1"]
    table = nn.ModuleDict({"a": nn.Linear(1, 1)})
    table["b"] = nn.ReLU()
    table.update([("c", nn.Tanh())])
    assert list(table) == ["a", "b", "c"]
    assert "b" in table
    assert isinstance(table.pop("b"), nn.ReLU)
    assert [k for k, _ in table.items()] == ["a", "c"]
    with pytest.raises(TypeError, match="Module"):
        table["d"] = 1
    with pytest.raises(KeyError):
        table["missing"]


def test_parameter_list_and_dict():
    ps = nn.ParameterList([plait.ones(2), nn.Parameter(plait.zeros(1))])
    ps.append(plait.ones(3))
    assert [n for n, _ in ps.named_parameters()] == ["0", "1", "2"]
    assert len(ps) == 3
    assert ps[-1].shape == (3,)
    assert isinstance(ps[0], nn.Parameter)
    assert ps.pop(0).shape == (2,)
    assert [p.shape[0] for p in ps] == [1, 3]
    assert "Parameter containing: [plait.float32 of size 1]" in repr(ps)
    table = nn.ParameterDict({"a": plait.ones(2)})
    table["b"] = plait.ones(1)
    assert list(table) == ["a", "b"]
    assert sorted(n for n, _ in table.named_parameters()) == ["a", "b"]
    assert (table | {"c": plait.ones(1)}).keys() == {"a", "b", "c"}
    assert table.get("z") is None
    copied = pickle.loads(pickle.dumps(table))
    assert list(copied) == ["a", "b"]
    del table["a"]
    assert "a" not in table


def test_lazy_modules():
    net = nn.Sequential(
        nn.LazyConv2d(4, 3, 1, 1), nn.LazyBatchNorm2d(), nn.LazyInstanceNorm2d(), nn.Flatten(), nn.LazyLinear(2)
    )
    assert repr(net[0].weight) == "<UninitializedParameter>"
    with pytest.raises(RuntimeError, match="first forward"):
        net[0].weight.shape
    other = copy.deepcopy(net)
    weight = net[4].weight
    assert net(plait.randn(2, 3, 5, 5)).shape == (2, 2)
    assert type(net[0]) is nn.Conv2d
    assert type(net[1]) is nn.BatchNorm2d
    assert repr(net[4]) == "Linear(in_features=100, out_features=2, bias=True)"
    assert net[4].weight is weight
    assert type(weight) is nn.Parameter
    assert other(plait.randn(2, 6, 5, 5)).shape == (2, 2)
    assert other[0].weight.shape == (4, 6, 3, 3)
    loaded = nn.LazyLinear(2)
    loaded.load_state_dict(nn.Linear(3, 2).state_dict())
    assert loaded(plait.ones(1, 3)).shape == (1, 2)
    assert nn.LazyConvTranspose1d(4, 3, 2, bias=False)(plait.randn(1, 2, 5)).shape == (1, 4, 11)
    assert nn.LazyLinear(2).double()(plait.ones(1, 3, dtype=plait.float64)).dtype is plait.float64


@pytest.mark.parametrize(("layer", "shape"), [
    (nn.Dropout, (50, 40)), (nn.Dropout1d, (20, 50, 2)), (nn.Dropout2d, (20, 50, 2, 2)),
    (nn.Dropout3d, (20, 50, 1, 2, 2)),
])  # fmt: skip
def test_dropout_keeps_the_mean(layer, shape):
    x = plait.ones(*shape).requires_grad_()
    net = layer(0.25)
    out = net(x)
    a = out.detach().numpy()
    assert set(np.unique(a.round(5))) == {0.0, np.float32(1.33333)}
    assert abs((a == 0).mean() - 0.25) < 0.06
    if len(shape) > 2:
        flat = a.reshape(shape[0], shape[1], -1)
        assert (flat == flat[:, :, :1]).all()
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), a)
    assert net.eval()(x) is x or (net(x).detach().numpy() == 1).all()


def test_dropout_in_place_and_errors():
    x = plait.ones(100)
    assert F.dropout(x, 0.5, inplace=True) is x
    assert 0 in x.tolist()
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        nn.Dropout(1.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(x, -0.1)


def test_in_place_activations():
    for layer in (nn.ReLU, nn.ELU, nn.SiLU, nn.Hardtanh, nn.LeakyReLU):
        x = plait.randn(6)
        wanted = layer()(x).clone()
        assert layer(inplace=True)(x) is x
        close(x, wanted)


@pytest.mark.parametrize("batch_first", [False, True])
def test_masks_of_encoder_and_attention(batch_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first)
    net = nn.TransformerEncoder(layer, 2).eval()
    x = plait.randn(2, 5, 8)
    give = x if batch_first else x.transpose(0, 1)
    padding = plait.tensor([[False] * 5, [False, False, False, True, True]])
    out = net(give, src_key_padding_mask=padding)
    out = out if batch_first else out.transpose(0, 1)
    short = x[1:2, :3]
    alone = net(short if batch_first else short.transpose(0, 1))
    close(out[1:2, :3], alone if batch_first else alone.transpose(0, 1))
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    full = net(give, mask=causal, is_causal=True)
    part = net(give[:, :2] if batch_first else give[:2], mask=causal[:2, :2])
    close(full[:, :2] if batch_first else full[:2], part)
    as_bool = plait.isinf(causal)
    close(net(give, mask=as_bool), full)


def test_attention_weights_and_errors():
    net = nn.MultiheadAttention(8, 2, batch_first=True)
    q, k = plait.randn(2, 3, 8), plait.randn(2, 4, 8)
    out, weights = net(q, k, k)
    assert weights.shape == (2, 3, 4)
    np.testing.assert_allclose(weights.detach().numpy().sum(-1), 1, rtol=1e-5)
    fast, none = net(q, k, k, need_weights=False)
    assert none is None
    close(out, fast)
    assert net(q, k, k, average_attn_weights=False)[1].shape == (2, 2, 3, 4)
    per_head = plait.zeros(4, 3, 4)
    close(net(q, k, k, attn_mask=per_head)[0], out)
    with pytest.raises(RuntimeError, match=r"attn_mask must have shape \[3, 4\]"):
        net(q, k, k, attn_mask=plait.zeros(2, 2))
    with pytest.raises(RuntimeError, match="key_padding_mask"):
        net(q, k, k, key_padding_mask=plait.zeros(4, 2))
    with pytest.raises(ValueError, match="8 features"):
        net(plait.zeros(1, 3, 7), k, k)
    with pytest.raises(RuntimeError, match="is_causal"):
        net(q, k, k, is_causal=True)
    with pytest.raises(ValueError, match="divide"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(ValueError, match="either"):
        F.scaled_dot_product_attention(q, k, k, plait.zeros(3, 4), is_causal=True)


def test_recurrent_layers_agree_with_their_cells():
    for layer, cell in (
        (nn.RNN(3, 4), nn.RNNCell(3, 4)),
        (nn.GRU(3, 4), nn.GRUCell(3, 4)),
        (nn.LSTM(3, 4), nn.LSTMCell(3, 4)),
    ):
        cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
        x = plait.randn(5, 2, 3)
        out, _ = layer(x)
        state = None
        for t in range(5):
            state = cell(x[t], state)
            close(out[t], state[0] if isinstance(state, tuple) else state)


def test_recurrent_errors():
    net = nn.LSTM(3, 4)
    with pytest.raises(RuntimeError, match="input_size 3"):
        net(plait.zeros(5, 2, 4))
    with pytest.raises(RuntimeError, match=r"hx must have shape \[1, 2, 4\], got \[1, 3, 4\]"):
        net(plait.zeros(5, 2, 3), (plait.zeros(1, 3, 4), plait.zeros(1, 3, 4)))
    with pytest.raises(TypeError, match="pair"):
        net(plait.zeros(5, 2, 3), plait.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="2 or 3 dimensions"):
        net(plait.zeros(3))
    with pytest.raises(ValueError, match="nonlinearity"):
        nn.RNN(1, 1, nonlinearity="step")
    with pytest.raises(TypeError, match="proj_size"):
        nn.GRU(3, 4, proj_size=2)
    with pytest.warns(UserWarning, match="single layer"):
        nn.LSTM(3, 4, dropout=0.5)


def test_dropout_between_recurrent_layers():
    net = nn.GRU(3, 16, 2, dropout=0.5)
    x = plait.randn(4, 2, 3)
    a, b = net(x)[0], net(x)[0]
    assert (a.detach().numpy() != b.detach().numpy()).any()
    net.eval()
    close(net(x)[0], net(x)[0])


@pytest.mark.parametrize(("made", "error", "match"), [
    (lambda: nn.Linear(3, 2)(plait.zeros(2, 4)), RuntimeError, r"linear: .*\[2 4\]"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "groups must divide"),
    (lambda: nn.Conv2d(3, 4, 3, padding="same", stride=2), ValueError, "stride 1"),
    (lambda: nn.Conv2d(3, 4, 3, padding="some"), ValueError, "'same' or 'valid'"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="odd"), ValueError, "padding_mode"),
    (lambda: nn.Conv2d(3, 4, 3)(plait.zeros(1, 2, 5, 5)), RuntimeError, "conv2d"),
    (lambda: nn.ConvTranspose1d(1, 1, 3, 2)(plait.zeros(1, 1, 3), output_size=(20,)), ValueError, "output_size"),
    (lambda: nn.BatchNorm2d(3)(plait.zeros(1, 3)), ValueError, "want 4 dimensions"),
    (lambda: nn.BatchNorm1d(3)(plait.zeros(1, 3)), ValueError, "more than one value"),
    (lambda: nn.InstanceNorm1d(3)(plait.zeros(2, 3, 1)), ValueError, "more than one value"),
    (lambda: nn.InstanceNorm2d(3, affine=True)(plait.zeros(2, 4, 2, 2)), ValueError, "want 3 channels"),
    (lambda: nn.GroupNorm(2, 3), ValueError, "3 channels"),
    (lambda: nn.Embedding(3, 2, padding_idx=3), ValueError, "padding_idx"),
    (lambda: nn.Hardtanh(1, 0), ValueError, "max_val"),
    (lambda: F.interpolate(plait.zeros(1, 1, 2), size=3, scale_factor=2), ValueError, "either"),
    (lambda: F.interpolate(plait.zeros(1, 1, 2), size=3, align_corners=True), ValueError, "align_corners"),
    (lambda: F.pad(plait.zeros(2, 2), (1, 1), "constant", "x"), ValueError, "could not convert"),
    (lambda: F.pad(plait.zeros(2), (1, 1), "reflect"), NotImplementedError, "reflect"),
    (lambda: F.binary_cross_entropy(plait.zeros(2), plait.zeros(3)), ValueError, "differ"),
    (lambda: F.binary_cross_entropy(plait.tensor([1.5]), plait.ones(1)).item(), ValueError, "input should be between"),
    (lambda: F.binary_cross_entropy(plait.ones(1), plait.tensor([-1.0])).item(), RuntimeError, "target should be"),
    (lambda: F.mse_loss(plait.zeros(2), plait.zeros(2), reduction="average"), ValueError, "average"),
    (lambda: F.cross_entropy(plait.zeros(2, 3), plait.zeros(3, dtype=plait.int64)), RuntimeError, "cross_entropy"),
    (lambda: nn.TripletMarginLoss(margin=-1), ValueError, "margin"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [5, 3]), ValueError, "cutoffs"),
    (lambda: F.relu("x"), TypeError, "relu: input must be Tensor"),
    (lambda: nn.Parameter([1.0]), TypeError, "Parameter: want a tensor"),
    (lambda: nn.Unflatten("a", (1,)), TypeError, "dim"),
])  # fmt: skip
def test_wrong_arguments(made, error, match):
    with pytest.raises(error, match=match):
        made()


def test_older_reduction_arguments_and_broadcast_warn():
    x, y = plait.ones(3), plait.zeros(3)
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.L1Loss(size_average=False)(x, y).item() == 3.0
    with pytest.warns(UserWarning, match="broadcast"):
        F.mse_loss(x, plait.zeros(1))


def test_gumbel_softmax():
    logits = plait.tensor(np.log([[0.2, 0.3, 0.5]] * 4000)).float() if hasattr(plait.Tensor, "float") else None
    logits = plait.log(plait.tensor([[0.2, 0.3, 0.5]] * 4000)) if logits is None else logits
    logits.requires_grad = True
    hard = F.gumbel_softmax(logits, hard=True)
    a = hard.detach().numpy()
    np.testing.assert_allclose(a.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(a.mean(0), [0.2, 0.3, 0.5], atol=0.03)
    (hard * plait.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad.abs().sum().item() > 0
    np.testing.assert_allclose(F.gumbel_softmax(logits, tau=0.5).detach().numpy().sum(1), 1, rtol=1e-5)


def test_adaptive_softmax_predicts():
    net = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0)
    x = plait.randn(5, 8)
    logs = net.log_prob(x)
    np.testing.assert_allclose(np.exp(logs.detach().numpy()).sum(1), 1, rtol=1e-5)
    assert net.predict(x).tolist() == logs.detach().numpy().argmax(1).tolist()
    target = plait.tensor([0, 4, 11, 3, 6])
    out, loss = net(x, target)
    close(out, logs.gather(1, target.unsqueeze(1)).squeeze(1))
    assert abs(loss.item() + out.detach().numpy().mean()) < 1e-5
    assert abs(net(x[0], target[0]).output.item() - out[0].item()) < 1e-5


def test_embedding_from_pretrained_and_max_norm():
    e = nn.Embedding.from_pretrained(plait.ones(3, 4))
    assert not e.weight.requires_grad
    e = nn.Embedding(3, 4, max_norm=1.0)
    with plait.no_grad():
        e.weight.mul_(100.0)
    e(plait.tensor([0, 2]))
    norms = np.linalg.norm(e.weight.detach().numpy(), axis=1)
    assert (norms[[0, 2]] <= 1.00001).all()
    assert norms[1] > 1


def test_eval_of_batch_norm_uses_running_statistics():
    net = nn.BatchNorm1d(2, momentum=1.0)
    x = plait.randn(50, 2) * 3 + 1
    net(x)
    out = net.eval()(x).detach().numpy()
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(out.std(0, ddof=1), 1, rtol=1e-4)
    assert net.num_batches_tracked.item() == 1
    old = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
    nn.BatchNorm1d(2).load_state_dict(old)


def test_fractional_max_pool():
    # The positions are PyTorch's for the same samples.
    rng = np.random.default_rng(0)
    x, u = plait.tensor(rng.standard_normal((2, 3, 9, 7))), plait.tensor(rng.random((2, 3, 2)))
    out, where = F.fractional_max_pool2d(x, (2, 3), (4, 3), None, True, u)
    assert where[0, 0].tolist() == [[7, 2, 6], [21, 24, 19], [35, 39, 41], [49, 53, 62]]
    assert abs(out.sum().item() - 95.28701795195778) < 1e-9
    close(out.flatten(2), x.flatten(2).gather(2, where.flatten(2)))
    x, u = plait.tensor(rng.standard_normal((2, 2, 6, 9, 7))), plait.tensor(rng.random((2, 2, 3)))
    out, where = F.fractional_max_pool3d(x, (2, 3, 2), (3, 4, 3), None, True, u)
    assert where[0, 0, 0].tolist() == [[15, 17, 13], [91, 31, 34], [91, 31, 34], [42, 114, 47]]
    assert abs(out.sum().item() - 225.65985691326242) < 1e-9
    assert nn.FractionalMaxPool2d(2, output_ratio=0.5)(plait.randn(3, 8, 6)).shape == (3, 4, 3)
    with pytest.raises(ValueError, match="either"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(ValueError, match="no output"):
        F.fractional_max_pool2d(plait.zeros(1, 4, 4), 3, 3)
