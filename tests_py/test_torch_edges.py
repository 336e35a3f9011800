"""Results at the edges of functions, as PyTorch 2.15 computes them."""

import functools

import numpy as np
import plait
import pytest
from plait.nn import functional as F

nan = float("nan")


def gradient(function, *values):
    tensors = [plait.tensor(v, dtype=plait.float64, requires_grad=True) for v in values]
    function(*tensors).sum().backward()
    return [t.grad.tolist() for t in tensors]


def test_clamp_passes_no_gradient_at_a_bound_that_is_a_number():
    assert gradient(lambda x: x.clamp(1, 3), [1.0, 2.0, 3.0, 4.0]) == [[0, 1, 0, 0]]
    assert gradient(lambda x: x.clamp(min=1), [1.0, 2.0]) == [[0, 1]]
    assert gradient(lambda x: x.clamp(max=1), [1.0, 0.0]) == [[0, 1]]


def test_clamp_shares_the_gradient_with_a_bound_that_is_a_tensor():
    x, low, high = [1.0, 2, 3, 4, 0, 2, 2, 2, 1], [1.0, 1, 1, 1, 1, 2, 3, 5, 1], [3.0, 3, 3, 3, 3, 2, 3, 4, 0]
    assert gradient(plait.clamp, x, low, high) == [
        [0.5, 1, 0.5, 0, 0, 1, 0, 0, 0],
        [0.5, 0, 0, 0, 1, 0, 1, 0, 0],
        [0, 0, 0.5, 1, 0, 0, 0, 1, 1],
    ]
    assert gradient(lambda x, low: x.clamp(min=low), [1.0, 2, 0], [1.0, 1, 1]) == [[0.5, 1, 0], [0.5, 0, 1]]
    assert gradient(lambda x, high: x.clamp(max=high), [1.0, 2, 0], [1.0, 1, 1]) == [[0.5, 0, 1], [0.5, 1, 0]]


def test_gradients_where_a_function_has_a_kink():
    assert gradient(F.hardswish, [-4.0, -3, -1.5, 3, 4]) == [[0, 0, 0, 1, 1]]
    nan = float("nan")
    x, y = [1.0, 1, 2, nan, 1, nan], [1.0, 2, 1, 1, nan, nan]
    assert gradient(plait.fmax, x, y) == [[0.5, 0, 1, 0, 1, 1], [0.5, 1, 0, 1, 0, 0]]
    assert gradient(plait.fmin, x, y) == [[0.5, 1, 0, 0, 1, 1], [0.5, 0, 1, 1, 0, 0]]
    assert gradient(plait.atan2, [0.0, -0.0, 2, 0], [0.0, 0, 0, 2]) == [[0, 0, 0, 0.5], [0, 0, -0.5, 0]]
    ones = plait.ones(3, dtype=plait.float64)
    ranking = functools.partial(F.margin_ranking_loss, target=ones, margin=0.5, reduction="none")
    assert gradient(ranking, [0.5, 0.0, 1.0], [0.0, 0.0, 0.0]) == [[0, -1, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (lambda x: x.clamp(0, 1), [0, 0, 0, 1]),
        (lambda x: x.clamp(min=0), [0, 0, 0, 1]),
        (lambda x: x.clamp(max=1), [0, 1, 1, 1]),
        (lambda x: F.hardtanh(x, 0, 1), [1, 0, 0, 1]),
        (F.relu6, [1, 0, 0, 1]),
    ],
)
def test_gradients_of_limits_at_nan(f, want):
    x = plait.tensor([float("nan"), -1, 0, 0.5], requires_grad=True)
    f(x).sum().backward()
    assert x.grad.tolist() == want


@pytest.mark.parametrize("values", [[0, 1, "nan"], [0, 0, "nan"], ["nan", 2, 3]])
def test_the_gradient_of_a_product_with_nan_is_nan(values):
    x = plait.tensor([float(v) for v in values], requires_grad=True)
    x.prod().backward()
    assert x.grad.isnan().all()


@pytest.mark.parametrize(
    "drop", [F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout]
)
def test_dropout_that_drops_nothing_leaves_its_input_alone(drop):
    x = plait.ones(2, 3, 4, 4, 4)[:, :, :, 0, 0] if drop is F.dropout1d else plait.ones(2, 3, 4, 4, 4)
    state = plait.get_rng_state()
    for inplace in (False, True):
        assert drop(x, 0.5, training=False, inplace=inplace) is x
        assert drop(x, 0.0, training=True, inplace=inplace) is x
    assert x._version == 0 and plait.equal(plait.get_rng_state(), state)
    z = plait.ones(2, 4, requires_grad=True)
    F.dropout(z.softmax(-1), 0.5, training=False, inplace=True).sum().backward()  # softmax has kept what it returned
    assert z.grad.tolist() == [[0.0] * 4] * 2


def test_index_fill_counts_a_place_once():
    index = plait.tensor([0, 2, 0, 0])
    assert gradient(lambda v: plait.zeros(2, 3).double().index_fill(1, index, v), 5.0) == [4]
    assert gradient(lambda v: plait.zeros(2, 3).double().clone().index_fill_(1, index, v), 5.0) == [4]


def test_gradient_by_coordinates():
    x = plait.tensor([0.0, 1.5, 2.0, 4.0], dtype=plait.float64)
    (slope,) = plait.gradient(x**2, spacing=(x,))
    assert slope.tolist() == pytest.approx([1.5, 3, 4, 6])  # exact for a parabola but at the ends
    (slope,) = plait.gradient(x**2, spacing=(x,), edge_order=2)
    assert slope.tolist() == pytest.approx([0, 3, 4, 8])
    (slope,) = plait.gradient(plait.tensor([0.0, 1.0, 4.0, 9.0]), spacing=2.0, edge_order=2)
    assert slope.tolist() == pytest.approx([0, 1, 2, 3])
    grid = (x[:, None] ** 2 + 10 * x).reshape(4, 4)
    rows, columns = plait.gradient(grid, spacing=(x, x))
    assert rows[1].tolist() == pytest.approx([3] * 4)
    assert columns[:, 1].tolist() == pytest.approx([10] * 4)
    with pytest.raises(ValueError, match="2 spacings for 1 dim"):
        plait.gradient(x, spacing=(x, x))
    with pytest.raises(ValueError, match=r"\[3\] coordinates for 4 elements"):
        plait.gradient(x, spacing=(x[:3],))


@pytest.mark.parametrize("upper", [False, True])
def test_symmetric_matrices_are_read_from_one_triangle(upper):
    plait.manual_seed(0)
    a = plait.rand(3, 3, dtype=plait.float64)
    a = a @ a.mT + 3 * plait.eye(3, dtype=plait.float64)
    read = plait.ones(3, 3, dtype=plait.bool)
    half = a.masked_fill(~(read.triu() if upper else read.tril()), float("nan"))
    assert plait.allclose(plait.linalg.cholesky(half, upper=upper), plait.linalg.cholesky(a, upper=upper))
    assert plait.allclose(plait.linalg.cholesky_ex(half, upper=upper).L, plait.linalg.cholesky(a, upper=upper))
    assert plait.allclose(plait.linalg.eigvalsh(half, "U" if upper else "L"), plait.linalg.eigvalsh(a))


def test_gradients_of_symmetric_matrices_are_symmetric():
    a = plait.tensor([[2.0, 0.5], [0.5, 3.0]], dtype=plait.float64, requires_grad=True)
    for function in (lambda t: plait.linalg.eigvalsh(t) * plait.tensor([1.0, 2.0]), plait.linalg.cholesky):
        (g,) = plait.autograd.grad(function(a).sum(), a)
        assert g[0, 1].item() == pytest.approx(g[1, 0].item())
        assert g[0, 1].item() != 0


def test_polynomials_cut_off_fractions_of_degrees():
    n = plait.tensor([-1.5, -1.0, -0.5, 0.5, 1.5])
    for name in ("legendre_polynomial_p", "chebyshev_polynomial_t", "hermite_polynomial_h", "laguerre_polynomial_l"):
        values = getattr(plait.special, name)(plait.tensor(0.25), n).tolist()
        assert values[:4] == [0, 0, 1, 1], name


def test_logit_with_a_large_eps():
    x = plait.tensor([0.1, 0.5, 0.7, 0.9])
    assert plait.logit(x, 0.6).tolist() == pytest.approx([0.405465, 0.405465, -0.405465, -0.405465], rel=1e-5)


def test_circular_padding_repeats_what_is_left():
    x = plait.arange(4.0)[None]
    assert F.pad(x, [-1, 1], "circular").tolist() == [[1, 2, 3, 1]]
    assert F.pad(x, [-1, 3], "circular").tolist() == [[1, 2, 3, 1, 2, 3]]
    assert F.pad(x, [2, -1], "circular").tolist() == [[1, 2, 0, 1, 2]]
    assert F.pad(x, [-2, -1], "circular").tolist() == [[2]]
    assert gradient(lambda t: F.pad(t, [-1, 1], "circular"), [[0.0, 1, 2, 3]]) == [[[0, 2, 1, 1]]]


def test_ranges_of_integers_begin_and_end_at_integers():
    assert plait.linspace(0.9, 8.9, 5, dtype=plait.int32).tolist() == [0, 2, 4, 6, 8]
    assert plait.logspace(0.3, 3.7, 5, 2.0, dtype=plait.int32).tolist() == [1, 1, 2, 4, 8]


def test_dtypes_of_integer_inputs():
    assert plait.ldexp(plait.ones(2, dtype=plait.bfloat16), plait.ones(2, dtype=plait.int32)).dtype == plait.bfloat16
    assert plait.unravel_index(plait.tensor([5], dtype=plait.int32), (2, 3))[0].dtype == plait.int64
    assert plait.linalg.vander(plait.tensor([1, 2], dtype=plait.int32)).dtype == plait.int64
    assert plait.linalg.vander(plait.tensor(2.0)).shape == (1, 1)


def test_triangular_solve_returns_a_copy_of_the_matrix():
    a = plait.eye(2)
    copy = plait.triangular_solve(plait.ones(2, 1), a)[1]
    copy[0, 0] = 9
    assert a[0, 0].item() == 1


def test_hermitian_functions_read_the_lower_triangle():
    plait.manual_seed(0)
    a = plait.rand(2, 4, 4, dtype=plait.float64)
    lower = a.tril() + a.tril(-1).mT
    assert plait.allclose(plait.linalg.pinv(a, hermitian=True), plait.linalg.pinv(lower))
    ones = plait.ones(3, 3).triu()  # its symmetric part has rank 3, what is below the diagonal says the same of 3 ones
    assert plait.linalg.matrix_rank(ones, hermitian=True).item() == 3
    assert plait.linalg.matrix_rank(ones.mT, hermitian=True).item() == 1


def test_sums_of_integers_in_einsum_are_int64():
    ones = plait.ones(3, 3, dtype=plait.int32)
    for equation, dtype in {
        "ij->ji": plait.int32,
        "ii->i": plait.int32,
        "i...->...": plait.int64,
        "ij->": plait.int64,
    }.items():
        assert plait.einsum(equation, ones).dtype == dtype
    assert plait.einsum("ij,jk->ik", ones, ones).dtype == plait.int32
    assert plait.einsum("ij,kl->jl", ones, ones).tolist() == [[9] * 3] * 3
    assert plait.einsum("ij,kl->jl", ones, ones).dtype == plait.int64
    assert plait.einsum("ij->i", ones.bool()).tolist() == [3, 3, 3]
    assert plait.tensordot(ones, ones, 1).dtype == plait.int32


def test_cov_has_the_dtype_of_its_weights():
    x, w = plait.tensor([1.0, 2.0, 4.0]), plait.tensor([1.0, 2.0, 0.5])
    assert plait.cov(x.half(), aweights=w).dtype == plait.float32
    assert plait.cov(x, aweights=w.double()).dtype == plait.float64
    assert plait.cov(x.half(), fweights=plait.tensor([1, 2, 1])).dtype == plait.float16
    with pytest.raises(TypeError, match="want integers"):
        plait.cov(x, fweights=w)
    with pytest.raises(TypeError, match="floating point"):
        plait.cov(x, aweights=plait.tensor([1, 2, 1]))
    with pytest.raises(ValueError, match="aweights must not be negative"):
        plait.cov(x, aweights=-w)


def test_constants_follow_from_what_they_are_functions_of():
    x = plait.tensor([[1.0, float("nan")], [0.0, 2.0]], requires_grad=True)
    y = plait.linalg.matrix_power(x, 0)
    assert y.tolist() == [[1, 0], [0, 1]]
    z = plait.linalg.householder_product(x, plait.empty(0))
    (g,) = plait.autograd.grad((y + z).sum(), x)
    assert g.tolist() == [[0, 0], [0, 0]]


def test_lstsq_has_residuals_for_drivers_that_compute_them():
    a, b = plait.tensor([[1.0, 0], [0, 1], [1, 1]]), plait.ones(3, 2)
    assert plait.linalg.lstsq(a, b).residuals.shape == plait.linalg.lstsq(a, b, driver="gelsy").residuals.shape == (0,)
    for driver in ("gels", "gelsd", "gelss"):
        assert plait.linalg.lstsq(a, b, driver=driver).residuals.tolist() == pytest.approx([1 / 3] * 2)


def test_random_booleans():
    for x in (plait.randint(2, (64,), dtype=plait.bool), plait.randint_like(plait.ones(64, dtype=plait.bool), 2)):
        assert x.dtype == plait.bool
        assert 0 < x.sum() < 64
    with pytest.raises(ValueError, match=r"bool holds the integers from 0 to 1, got \[0, 3\)"):
        plait.randint(3, (5,), dtype=plait.bool)
    with pytest.raises(TypeError, match="floating-point or complex dtype, got bool"):
        plait.rand(3, dtype=plait.bool)


def test_differences_of_order_0_are_the_input():
    assert plait.diff(plait.tensor([1, 3]), n=0, prepend=plait.tensor([0]), append=plait.tensor([5])).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("view", "offset", "want", "slopes"),
    [
        (lambda x: x, 1, [[0, 9, 9], [3, 9, 9], [6, 7, 8]], [[1, 0, 0], [4, 0, 0], [7, 8, 9]]),
        (lambda x: x[1:], None, [[9, 9, 5], [9, 9, 8]], [[0, 0, 0], [0, 0, 3], [0, 0, 6]]),
        (lambda x: x[1:], 1, [[3, 9, 9], [6, 7, 8]], [[0, 0, 0], [1, 0, 0], [4, 5, 6]]),
        (lambda x: x.t(), 1, [[0, 3, 6], [9, 9, 7], [9, 9, 8]], [[1, 0, 0], [2, 0, 0], [3, 6, 9]]),
        (lambda x: x[:, ::2], 1, [[0, 9], [3, 9], [6, 8]], [[1, 0, 0], [3, 0, 0], [5, 0, 6]]),
    ],
)
def test_as_strided_scatter_writes_where_as_strided_reads(view, offset, want, slopes):
    x = plait.arange(9.0).reshape(3, 3).clone().requires_grad_()
    src = plait.full((2, 2), 9.0, requires_grad=True)
    y = plait.as_strided_scatter(view(x), src, (2, 2), (3, 1), offset)
    assert y.tolist() == want
    seed = plait.arange(1.0, y.numel() + 1).reshape(y.shape)
    by_x, by_src = plait.autograd.grad(y, [x, src], seed)
    assert by_x.tolist() == slopes
    assert by_x.sum() + by_src.sum() == seed.sum()
    with pytest.raises(ValueError, match=r"src has shape \[3\], want \[2, 2\]"):
        plait.as_strided_scatter(x, src[0, :1].expand(3), (2, 2), (3, 1))


def test_results_have_memory_of_their_own():
    x = plait.tensor(3.0)
    assert x.sum_to_size(()).data_ptr() != x.data_ptr()
    assert plait.tensor(3, dtype=plait.int32).sum_to_size(()).dtype == plait.int64
    bins = plait.tensor([0.0, 1.0])
    assert plait.histogram(x, bins).bin_edges.data_ptr() != bins.data_ptr()


def test_histogram_of_nothing_goes_from_0_to_1():
    assert plait.histogram(plait.empty(0), 2).bin_edges.tolist() == [0, 0.5, 1]


def test_rms_norm_takes_any_eps():
    x = plait.tensor([3.0, 4.0], dtype=plait.float64)  # the mean square is 12.5
    assert F.rms_norm(x, [2], eps=-12.25).tolist() == [6, 8]
    assert plait.nn.RMSNorm(2, eps=-12.25, dtype=plait.float64)(x).tolist() == [6, 8]
    assert F.rms_norm(x, [2], eps=-13).isnan().all()
    assert F.rms_norm(plait.zeros(2), [2]).tolist() == [0, 0]


def test_places_of_a_grid_are_computed_in_single_precision():
    x = plait.arange(25.0).reshape(1, 1, 5, 5).half()
    grid = plait.tensor([[3.3, -2.7], [7.9, 5.1]]).half().reshape(1, 1, 2, 2)
    for mode in ("bilinear", "nearest", "bicubic"):
        got = F.grid_sample(x, grid, mode=mode, padding_mode="reflection", align_corners=False)
        want = F.grid_sample(x.float(), grid.float(), mode=mode, padding_mode="reflection", align_corners=False)
        assert got.tolist() == want.half().tolist()


def test_kl_div_of_a_target_that_is_no_probability_is_nan():
    x, target = [0.5, 0.5, 0.5], [-0.5, float("nan"), 0.0]
    assert plait.isnan(F.kl_div(plait.tensor(x), plait.tensor(target), reduction="none")).tolist() == [
        True,
        True,
        False,
    ]


def test_gradients_of_as_strided_are_those_of_places_in_memory():
    x = plait.ones(1, requires_grad=True)
    plait.as_strided(x.expand(3), (1,), (1,)).sum().backward()
    assert x.grad.tolist() == [1]
    x = plait.arange(2.0, requires_grad=True)
    plait.as_strided(x[:, None].expand(2, 3), (2, 2), (0, 1)).sum().backward()
    assert x.grad.tolist() == [2, 2]
    x = plait.arange(6.0, requires_grad=True)
    y = plait.as_strided(x[2:5], (4,), (1,), 1)  # two elements of which are not the part's
    y.sum().backward()
    assert y.tolist() == [1, 2, 3, 4]
    assert x.grad.tolist() == [0, 0, 1, 1, 1, 0]


def test_matrix_exp_of_short_dtypes_is_computed_in_single_precision():
    x = plait.tensor([[5.0, 3.0], [2.0, 4.0]])
    for dtype in (plait.float16, plait.bfloat16):
        assert plait.matrix_exp(x.to(dtype)).tolist() == plait.matrix_exp(x).to(dtype).tolist()


def test_indices_of_take_along_dim_count_from_the_end():
    x = plait.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    y = plait.take_along_dim(x, plait.tensor([[-1, 0, -1]]), 1)
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([[3, 1, 3]], [[1, 0, 2]])
    with pytest.raises(IndexError):
        plait.take_along_dim(x, plait.tensor([[-4]]), 1).tolist()


def test_masked_scatter_broadcasts_the_tensor():
    mask = plait.tensor([[True, False], [False, True]])
    x = plait.zeros(2, requires_grad=True)
    y = plait.masked_scatter(x, mask, plait.tensor([1.0, 2.0]))
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([[1, 0], [0, 2]], [1, 1])


def test_losses_and_layers_take_what_needs_no_arithmetic():
    scores = plait.tensor([0.1, 0.7, 0.2])
    assert F.multi_margin_loss(scores, plait.tensor([1])).item() == F.multi_margin_loss(scores, plait.tensor(1)).item()
    distance = F.pairwise_distance(plait.tensor([[2.0, 2.0]]), plait.zeros(1, 2), p=-1, eps=0)
    assert distance.tolist() == [1]
    whole = plait.arange(3)
    assert F.dropout(whole, training=False) is whole
    one = plait.rand(2, 1, 3)
    pool = plait.nn.FractionalMaxPool3d(2, output_size=2, _random_samples=one)
    assert pool(plait.rand(1, 5, 5, 5)).shape == (1, 2, 2, 2)


@pytest.mark.parametrize("dtype", [plait.float32, plait.float64])
def test_histc_counts_elements_at_the_edges_of_bins_as_pytorch(dtype):
    # (x - min) * bins / (max - min), rounded in the dtype at every step, is what PyTorch 2.15 counts by.
    low, high, bins = 0.0, 1e-5, 1000
    x = (np.arange(bins + 1) * (high / bins)).astype(str(dtype).split(".")[1])
    kind = x.dtype.type
    at = (np.minimum(x, kind(high)) - kind(low)) * kind(bins) / (kind(high) - kind(low))
    inside = x <= kind(high)
    want = np.bincount(np.minimum(at[inside].astype(np.int64), bins - 1), minlength=bins)
    assert plait.histc(plait.tensor(x), bins, low, high).tolist() == want.tolist()


def test_histogram_of_points():
    points = plait.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]])
    hist, edges = plait.histogramdd(points, bins=[3, 3], weight=plait.tensor([1.0, 2.0, 4.0, 8.0]))
    assert hist.tolist() == [[0, 1, 0], [2, 0, 0], [4, 0, 8]] and [e.numel() for e in edges] == [4, 4]
    dense = plait.histogramdd(
        plait.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), 2, range=[0.0, 1.0, 0.0, 1.0], density=True
    )
    assert dense.hist.tolist() == [[2, 0], [0, 2]]
    given = [plait.tensor([0.0, 1.0, 3.0]), plait.tensor([0.5, 2.0])]
    rng = np.random.default_rng(1)
    many = rng.uniform(-1, 4, size=(4, 50, 2))
    want = np.histogramdd(many.reshape(-1, 2), [g.numpy() for g in given], density=True)[0]
    assert np.allclose(
        plait.histogramdd(plait.tensor(many), [g.double() for g in given], density=True).hist.numpy(), want
    )
    assert plait.histogramdd(plait.empty(0, 2), 2).hist.tolist() == [[0, 0], [0, 0]]
    for call, message in (
        (lambda: plait.histogramdd(plait.ones(3), 2), "want points"),
        (lambda: plait.histogramdd(points, [2]), "bins for 1 dimensions, want 2"),
        (lambda: plait.histogramdd(points, 2, range=[0.0, 1.0]), "range of 2 numbers"),
        (lambda: plait.histogramdd(points, 2, weight=plait.ones(2)), "weights of shape"),
        (lambda: plait.histogramdd(points * float("nan"), 2), "finite range"),
        (lambda: plait.histogramdd(points, 2, range=[0.0, 1.0, 1.0, 0.0]), "ascending"),
        (lambda: plait.histogramdd(points, 0), "at least one bin"),
        (lambda: plait.histogramdd(points.long(), 2), "floating-point"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=message):
            call()


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [
        ("median", [1.0, 2, 2, 3], [0, 0.5, 0.5, 0]),
        ("nanmedian", [1.0, nan, 2, 2, 3], [0, 0, 0.5, 0.5, 0]),
        ("median", [[1.0, nan], [nan, 2]], [[0, 0.5], [0.5, 0]]),
        ("max", [[1.0, 2], [2, 0]], [[0, 0.5], [0.5, 0]]),
        ("max", [1.0, nan, nan], [0, 0.5, 0.5]),
        ("min", [1.0, nan, 2], [0, 1, 0]),
        ("amax", [1.0, nan, 2], [nan, nan, nan]),
        ("amin", [1.0, nan, 2], [nan, nan, nan]),
    ],
)
def test_equal_elements_share_the_gradient_of_a_whole_tensor(name, value, want):
    np.testing.assert_equal(gradient(lambda x: getattr(x, name)(), value)[0], want)
    stacked = plait.tensor([value, value], dtype=plait.float64, requires_grad=True)
    plait.vmap(lambda x: getattr(x, name)())(stacked).sum().backward()
    np.testing.assert_equal(stacked.grad.tolist(), [want, want])


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1.0, 2.0, 3.0])
@pytest.mark.parametrize("dtype", [plait.float64, plait.complex128])
def test_powers_can_be_changed_in_place(exponent, dtype):
    x = plait.tensor([0.5, 2.0], dtype=dtype, requires_grad=True)
    want = exponent * x.detach() ** (exponent - 1)
    for power in (lambda t: t.pow(exponent), lambda t: t.clone().pow_(exponent)):
        y = power(x)
        y.add_(1)  # their derivatives use the base, not the result
        (slope,) = plait.autograd.grad(y.sum(), x, plait.ones((), dtype=dtype), create_graph=True)
        assert plait.allclose(slope.detach().conj(), want)
        (second,) = plait.autograd.grad(slope.sum(), x, plait.ones((), dtype=dtype))
        assert plait.allclose(second.conj(), exponent * (exponent - 1) * x.detach() ** (exponent - 2))
        assert plait.allclose(plait.func.jvp(power, (x.detach(),), (plait.ones_like(want),))[1], want)
