"""Values and kinds of results at the edges of operations: what PyTorch 2.15 returns is written down here."""

from __future__ import annotations

import math

import numpy as np
import plait
import plait.nn.functional as F
import pytest

inf, nan = math.inf, math.nan


def same(got, want, dtype=None):
    want = np.asarray(want)
    assert got.numpy().shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    if dtype is not None:
        assert got.dtype == dtype


# --- memory ---


@pytest.mark.parametrize(
    "copy",
    [
        lambda t: t.repeat_interleave(1),
        lambda t: t.repeat_interleave(1, dim=1),
        lambda t: t.diff(n=0),
        lambda t: F.pixel_shuffle(t, 1),
        lambda t: F.pixel_unshuffle(t, 1),
        lambda t: F.channel_shuffle(t, 1),
        lambda t: F.channel_shuffle(t, 4),
    ],
)
def test_what_has_nothing_to_do_copies(copy):
    t = plait.arange(16.0).reshape(1, 4, 2, 2)
    y = copy(t)
    y.fill_(99.0)
    assert t.flatten().tolist() == list(range(16))
    wide = plait.ones(1, 4, 1, 2).expand(1, 4, 2, 2)
    assert 0 not in copy(wide).stride()


@pytest.mark.parametrize("choose", ["sort", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin"])
def test_what_is_chosen_from_a_number_is_a_copy(choose):
    t = plait.tensor(3.0)
    arguments = (1,) if choose in ("topk", "kthvalue") else (0,)
    getattr(plait, choose)(t, *arguments)[0].fill_(7.0)
    assert t.item() == 3


def test_the_last_state_of_a_recurrent_layer_is_not_its_output():
    for layer in (plait.nn.LSTM(2, 3), plait.nn.GRU(2, 3), plait.nn.RNN(2, 3)):
        with plait.no_grad():
            y, h = layer(plait.ones(2, 1, 2))
            before = y.tolist()
            (h[0] if isinstance(h, tuple) else h).fill_(9.0)
            assert y.tolist() == before


def test_zero_dimensional_tensors_index_as_integers():
    t = plait.arange(24.0).reshape(2, 3, 4)
    one = plait.tensor(1)
    same(t[one, :, plait.tensor([0, 1])], t.numpy()[1].T[:2].T[:, :2].T.T)
    assert t[one, :, plait.tensor([0, 1])].shape == (3, 2)
    row = t[one]
    row.zero_()
    assert t.sum().item() == 66
    t[plait.tensor(-1, dtype=plait.int32), one] = 5.0
    assert t[1].tolist() == [[0] * 4, [5] * 4, [0] * 4]
    with pytest.raises(IndexError, match="index 2 out of range for dimension 0"):
        t[plait.tensor(2)]
    assert t[plait.tensor(True)].shape == (1, 2, 3, 4)
    x = plait.ones(3, requires_grad=True)
    x[one].backward()
    assert x.grad.tolist() == [0, 1, 0]


# --- dtypes ---


def test_integers_stay_integers():
    big = plait.tensor([16777217])
    same(plait.fmax(big, plait.tensor([0])), [16777217], plait.int64)
    same(plait.fmin(big, plait.tensor([1 << 40])), [16777217], plait.int64)
    same(plait.fmax(big, plait.tensor([0.5])), [16777216.0], plait.float32)
    same(plait.fmax(plait.tensor([True]), plait.tensor([False])), [True], plait.bool)


@pytest.mark.parametrize("name", ["sum", "mean", "nansum", "nanmean", "prod"])
def test_reductions_convert_first(name):
    x = plait.tensor([16777217, 1, 1])
    want = {"mean": 16777219 / 3, "nanmean": 16777219 / 3, "prod": 16777217}.get(name, 16777219)
    same(getattr(plait, name)(x, dtype=plait.float64), want, plait.float64)
    x = plait.tensor([16777216.0, 1, 1])
    want = {"mean": 5592406, "nanmean": 5592406, "prod": 16777216}.get(name, 16777218)
    assert getattr(plait, name)(x, dtype=plait.float64).item() == want
    x = plait.tensor([1.5, 1.5])
    if name not in ("mean", "nanmean"):
        assert getattr(plait, name)(x, dtype=plait.int64).item() == (1 if name == "prod" else 2)
    assert plait.tensor([1, -1]).sum(dtype=plait.bool).item() is True


@pytest.mark.parametrize(
    "f",
    [
        lambda x, d: x.cumsum(0, dtype=d)[-1],
        lambda x, d: x.cumsum(0, dtype=d)[-1] + x.cumprod(0, dtype=d)[-1] * 0,
        lambda x, d: plait.linalg.vector_norm(x, 1, dtype=d),
        lambda x, d: plait.norm(x, 1, dtype=d),
        lambda x, d: plait.linalg.norm(x, 1, dtype=d),
        lambda x, d: plait.linalg.matrix_norm(x[:, None], 1, dtype=d),
    ],
)
def test_scans_and_norms_convert_first(f):
    x = plait.tensor([16777216.0, 1, 1])
    assert f(x, plait.float64).item() == 16777218


def test_powers_of_bools_are_integers():
    t = plait.tensor([True, False])
    same(t**2, [1, 0], plait.int64)
    same(t**3, [1, 0], plait.int64)
    same(t.square(), [1, 0], plait.int64)
    same(t**0.5, [1, 0], plait.float32)


def test_cat_promotes_with_what_is_empty():
    half = plait.ones(2, dtype=plait.bfloat16)
    assert plait.cat([half, plait.ones(0)]).dtype == plait.float32
    assert plait.cat([plait.ones(0), half]).dtype == plait.float32
    assert plait.cat([plait.ones(0, dtype=plait.int64), half]).dtype == plait.bfloat16


def test_cat_gives_what_is_empty_an_empty_gradient():
    empty, full = plait.empty(0, requires_grad=True), plait.ones(2, 3, requires_grad=True)
    plait.cat([empty, full]).sum().backward()
    same(empty.grad, [], plait.float32)
    same(full.grad, [[1, 1, 1], [1, 1, 1]], plait.float32)


def test_lists_of_every_dtype_and_shape():
    for dtype in (plait.float64, plait.float32, plait.bfloat16, plait.float16, plait.int64, plait.uint8, plait.int8):
        for shape in ((), (3,), (2, 3), (2, 1, 3), (0,), (2, 0), (40, 50)):
            t = plait.arange(plait.empty(shape).numel()).remainder(100).reshape(shape).to(dtype)
            for x in (t, t.mT if t.dim() > 1 else t):
                listed = x.tolist()
                assert repr(listed) == repr(np.asarray(x.float() if dtype is plait.bfloat16 else x).tolist())
    assert plait.tensor([True, False]).tolist() == [True, False]


def test_truths_of_bytes_are_bytes():
    x = plait.tensor([[1, 0]], dtype=plait.uint8)
    same(x.any(), 1, plait.uint8)
    same(x.all(dim=0), [1, 0], plait.uint8)


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("dim", [(), []])
def test_truths_over_no_dimensions(name, dim):
    f = getattr(plait, name)
    same(f(plait.tensor([[2.0, 0]]), dim=dim), [[True, False]], plait.bool)
    same(f(plait.tensor([[2, 0]], dtype=plait.uint8), dim=dim, keepdim=True), [[1, 0]], plait.uint8)


# --- values ---


@pytest.mark.parametrize("sign", [1, -1])
def test_power_average_pooling_of_infinite_order(sign):
    x = plait.tensor([[[1.0, -5, 2, 3, -4, 0.5]]])
    want = [[[5, 4]]] if sign > 0 else [[[1, 0.5]]]
    same(F.lp_pool1d(x, sign * inf, 3), want)
    same(F.lp_pool2d(x[..., None], sign * inf, (3, 1)), np.array(want)[..., None])
    same(F.lp_pool3d(x[..., None, None], sign * inf, (3, 1, 1)), np.array(want)[..., None, None])


def test_interpolation_to_the_same_size_is_a_copy():
    x = plait.tensor([[[1.0, 2, 4]]])
    same(F.interpolate(x, scale_factor=1.3, mode="linear"), [[[1, 2, 4]]])
    y = plait.arange(4.0).reshape(1, 1, 2, 2)
    for mode in ("bilinear", "nearest"):
        same(F.interpolate(y, scale_factor=1.4, mode=mode), y.numpy())
    for mode in ("bilinear", "bicubic"):
        same(F.interpolate(y, scale_factor=1.4, mode=mode, antialias=True), y.numpy())
        same(F.interpolate(y.byte(), scale_factor=1.4, mode=mode), y.numpy())
    cubic = [[[[-0.23615247, 0.42274034], [1.08163285, 1.74052477]]]]
    np.testing.assert_allclose(F.interpolate(y, scale_factor=1.4, mode="bicubic").numpy(), cubic, rtol=1e-5)
    twice = F.interpolate(y, scale_factor=(2.4, 1.0), mode="nearest")
    same(twice, y.numpy().repeat(2, axis=2))


def test_one_variable_has_a_variance():
    x = plait.tensor([[1.0, 2, 4]])
    same(plait.cov(x), 7 / 3)
    same(plait.corrcoef(x), 1.0)
    assert plait.cov(plait.ones(2, 3)).shape == (2, 2)


@pytest.mark.parametrize("n", [2, 3, 100, 5000])
def test_an_infinite_mean(n):
    for values in ([inf], [-inf], [inf, inf], [inf, -inf], [nan, inf]):
        x = plait.tensor([float(i) for i in range(n)] + values)
        with np.errstate(invalid="ignore"):
            want = np.mean(x.numpy())
        for y in (x, plait.stack([x, x], 1)):
            for f in (plait.var_mean, plait.std_mean):
                spread, mean = f(y, dim=0)
                np.testing.assert_equal(mean.numpy(), np.full(mean.shape, want, np.float32))
                assert np.isnan(spread.numpy()).all()


def test_least_squares_of_a_lower_rank():
    a = plait.ones(3, 2, dtype=plait.float64)
    b = plait.tensor([[1.0], [2], [3]], dtype=plait.float64)
    r = plait.linalg.lstsq(a, b)
    same(r.solution, [[1], [1]])
    assert r.rank.item() == 1 and r.residuals.numel() == 0 and r.singular_values.numel() == 0
    same(plait.linalg.lstsq(a, b, driver="gelsd").singular_values.round(decimals=6), [2.44949, 0])
    with pytest.raises(plait.linalg.LinAlgError, match="full rank"):
        plait.linalg.lstsq(a, b, driver="gels")
    rng = np.random.default_rng(0)
    for m, n, rank in ((5, 4, 3), (4, 5, 2), (6, 3, 3), (3, 6, 3), (3, 3, 0)):
        a = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n))
        b = rng.normal(size=(m, 2))
        want = np.linalg.lstsq(a, b, rcond=None)
        got = plait.linalg.lstsq(plait.tensor(a), plait.tensor(b), driver="gelsd")
        np.testing.assert_allclose(got.solution.numpy(), want[0], atol=1e-12)
        assert got.rank.item() == rank
        np.testing.assert_allclose(got.residuals.numpy(), want[1], rtol=1e-10)
        vector = plait.linalg.lstsq(plait.tensor(a), plait.tensor(b[:, 0])).solution
        np.testing.assert_allclose(vector.numpy(), want[0][:, 0], atol=1e-12)


def test_the_gradient_of_least_squares_of_equal_singular_values():
    a = plait.eye(3, dtype=plait.float64, requires_grad=True)
    plait.linalg.lstsq(a, plait.ones(3, 1, dtype=plait.float64)).solution.sum().backward()
    same(a.grad, -np.ones((3, 3)))


def test_bicubic_sampling():
    x = plait.arange(16.0).reshape(1, 1, 4, 4)
    grid = plait.linspace(-1.2, 1.2, 18).reshape(1, 3, 3, 2)
    want = [
        [-0.0247, -0.20377392, 2.03097272],
        [5.25804377, 7.82609034, 11.36123562],
        [16.82080841, 10.26850986, 0.46870735],
    ]
    y = F.grid_sample(x, grid, mode="bicubic", align_corners=False)
    np.testing.assert_allclose(y[0, 0].numpy(), want, rtol=1e-5)
    corners = plait.tensor([[[[-1.0, -1], [1, 1], [-1 / 3, 1 / 3]]]])
    for padding in ("zeros", "border", "reflection"):
        y = F.grid_sample(x, corners, mode="bicubic", padding_mode=padding, align_corners=True)
        np.testing.assert_allclose(y.flatten().numpy(), [0, 15, 9], atol=1e-5)
    with pytest.raises(RuntimeError, match="bicubic wants an input"):
        F.grid_sample(plait.ones(1, 1, 2, 2, 2), plait.ones(1, 1, 1, 1, 3), mode="bicubic", align_corners=False)


# --- what an operation takes ---


def test_bytes_are_masks():
    t, mask = plait.arange(3.0), plait.tensor([1, 0, 1], dtype=plait.uint8)
    same(t[mask], [0, 2])
    same(plait.where(mask, plait.ones(3), plait.zeros(3)), [1, 0, 1])
    t[mask] = plait.tensor([5.0, 6])
    same(t, [5, 1, 6])
    assert t[plait.tensor(1, dtype=plait.uint8)].shape == (1, 3)


def test_bools_are_filled_with_numbers():
    t, mask = plait.tensor([False, True, True]), plait.tensor([True, True, False])
    for value, want in ((0, [False, False, True]), (0.5, [True, True, True]), (plait.tensor(2), [True, True, True])):
        same(t.masked_fill(mask, value), want, plait.bool)
        same(t.clone().masked_fill_(mask, value), want, plait.bool)


def test_expanded_tensors_in_place():
    assert plait.ones(0, 1).expand(0, 3).add_(1).shape == (0, 3)
    base = plait.ones(2, 1)
    base.expand(2, 3).fill_(4)
    same(base, [[4], [4]])
    base.expand(2, 3)[1].zero_()
    same(base, [[4], [0]])
    base.expand(2, 3)[:] = 7.0
    same(base, [[7], [7]])
    for change in (lambda t: t.add_(1), lambda t: t.copy_(plait.ones(2, 3)), lambda t: t.fill_(plait.tensor(1.0))):
        with pytest.raises(RuntimeError, match="share memory"):
            change(base.expand(2, 3))
    x = plait.ones(1, requires_grad=True)
    y = x * 2
    y.expand(3).zero_()
    y.sum().backward()
    assert x.grad.tolist() == [0]


def test_numbers_are_indexed_as_vectors():
    t, zero = plait.tensor(2.0), plait.tensor(0)
    for index in (zero, plait.tensor([0])):
        same(t.index_select(0, index), 2.0)
        same(t.index_fill(0, index, 5.0), 5.0)
        same(t.clone().index_fill_(0, index, 5.0), 5.0)
    same(t.index_reduce(0, zero, plait.tensor(3.0), "prod"), 6.0)
    same(t.topk(0).values, 2.0)
    x = plait.tensor(2.0, requires_grad=True)
    x.index_select(0, zero).backward()
    assert x.grad.item() == 1


def test_logsumexp_of_integers():
    same(plait.logsumexp(plait.tensor([1, 2]), 0), math.log(math.e + math.e**2), plait.float32)
    same(plait.logsumexp(plait.tensor([True, False]), 0), math.log(math.e + 1), plait.float32)


def test_empty_and_singular_matrices():
    la = plait.linalg
    same(la.matrix_rank(plait.ones(0, 0)), 0, plait.int64)
    same(la.matrix_rank(plait.ones(2, 0, 3)), [0, 0], plait.int64)
    for order in (2, inf, 1, "nuc", "fro"):
        same(la.matrix_norm(plait.ones(0, 3), order), 0.0)
        same(la.matrix_norm(plait.ones(0, 3), order, keepdim=True), [[0.0]])
    same(la.cond(plait.ones(0, 0)), 0.0)
    same(la.cond(plait.ones(2, 0, 0), "fro"), [0.0, 0.0])
    pair = plait.stack([plait.ones(2, 2), plait.eye(2)])
    for order, regular in (("fro", 2.0), ("nuc", 4.0), (1, 1.0), (-1, 1.0), (inf, 1.0), (-inf, 1.0)):
        same(la.cond(pair, order), [inf, regular])


@pytest.mark.parametrize(
    "f",
    [
        lambda t: t.sum(3),
        lambda t: plait.linalg.matrix_norm(t, dim=(0, 4)),
        lambda t: plait.slice_scatter(t, t, 4),
        lambda t: t.transpose(0, 2),
    ],
)
def test_a_wrong_dimension_is_an_index_error_too(f):
    with pytest.raises(IndexError) as error:
        f(plait.ones(2, 2))
    assert "dimension" in str(error.value)
