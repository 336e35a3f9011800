"""Results at the edges of functions, as PyTorch 2.15 computes them."""

import plait
import pytest
from plait.nn import functional as F


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
