"""Sparse tensors: PyTorch's results, gradients, optimisers and programs; what is refused; files."""

import copy
import io
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import plait
import pytest
from gpus import run
from plait import nn

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))
from sparse_cases import CASES, facts, matrix, numbers, rows  # noqa: E402

SAVED = json.loads((GOLDEN / "sparse.json").read_text())


def compare(got, want, name):
    if isinstance(want, list) and (not want or not isinstance(want[0], int | float)):
        assert len(got) == len(want), name
        for g, w in zip(got, want, strict=True):
            compare(g, w, name)
    elif isinstance(want, dict):
        assert got.keys() == want.keys(), name
        for key, w in want.items():
            if key == "values":
                close = 2e-6 if want["dtype"] == "float32" else 1e-12
                np.testing.assert_allclose(np.array(got[key]), np.array(w), rtol=close, atol=close, err_msg=name)
            else:
                assert got[key] == w, (name, key)
    else:
        assert got == want, name


def test_every_case_is_saved():
    assert CASES.keys() == SAVED.keys()


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_pytorch(name):
    compare(facts(plait, CASES[name](plait)), SAVED[name], name)


REFUSED = {
    "exp": lambda s: s.exp(),
    "s + 1": lambda s: s + 1,
    "s == s": lambda s: s == s,
    "view": lambda s: s.view(16),
    "s[:2]": lambda s: s[:2],
    "s / dense": lambda s: s / plait.ones(4, 4, dtype=plait.float64),
    "mean": lambda s: s.mean(),
    "masked_grad": lambda s: s.to_dense(masked_grad=False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_by_name(name):
    with pytest.raises(NotImplementedError, match=r"dense|sparse"):
        REFUSED[name](matrix(plait))


def test_bad_indices():
    def coo(indices, values, size=None):
        return plait.sparse_coo_tensor(indices, values, size)

    def csr(crow, col, values, size=(2, 2)):
        return plait.sparse_csr_tensor(crow, col, values, size)

    for make, text in {
        lambda: coo(
            [[0, 2]], [1.0, 2.0], (2,)
        ): "size is inconsistent with indices: for dim 0, size is 2 but found index 2",
        lambda: coo([[0, -1]], [1.0, 2.0], (2,)): "found negative index -1 for dim 0",
        lambda: coo([[0, 1]], [1.0], (2,)): "indices and values must have same nnz",
        lambda: coo([[0, 1]], [1.0, 2.0], (2, 2)): r"'len\(size\) == sparse_dim \+ dense_dim' is not satisfied",
        lambda: coo([0, 1], [1.0, 2.0]): "indices must be a matrix",
        lambda: csr([0, 2, 1], [0], [1.0]): "row 1 is from 2 to 1",
        lambda: csr([0, 1, 3], [0, 1], [1.0, 2.0]): r"`crow_indices\[..., -1\] == nnz` is not satisfied",
        lambda: csr([1, 1, 2], [0, 1], [1.0, 2.0]): r"`crow_indices\[..., 0\] == 0` is not satisfied",
        lambda: csr([0, 1, 2], [0, 2], [1.0, 2.0]): "column 2 of 2",
        lambda: csr([0, 1, 2], [0, -1], [1.0, 2.0]): "negative index -1",
        lambda: csr([0, 1], [0], [1.0]): "number of rows",
        lambda: matrix(plait).indices(): "Cannot get indices on an uncoalesced tensor",
        lambda: matrix(plait).values(): "Cannot get values on an uncoalesced tensor",
        lambda: rows(plait).indices(): "expected sparse coordinate tensor layout",
        lambda: matrix(plait).crow_indices(): "expected sparse row compressed tensor layout",
        lambda: plait.ones(2).indices(): "expected sparse coordinate tensor layout but got Strided",
        lambda: plait.sparse.mm(matrix(plait), plait.ones(3, 2, dtype=plait.float64)): "inner dimensions differ",
        lambda: plait.sparse.mm(matrix(plait), plait.ones(4, 2)): "dtypes differ",
    }.items():
        with pytest.raises((RuntimeError, ValueError), match=text):
            make()
    with pytest.raises(TypeError, match="must be integers"):
        coo([[0.5]], [1.0])
    for read in (matrix(plait).numpy, matrix(plait).tolist):
        with pytest.raises(TypeError, match=r"to_dense\(\)"):
            read()


REFUSING = "Adam AdamW RMSprop Adadelta Adamax NAdam RAdam Rprop ASGD Adafactor".split()  # noqa: SIM905


@pytest.mark.parametrize("name", REFUSING)
def test_other_optimizers_refuse_sparse_gradients(name):
    e = nn.Embedding(4, 2, sparse=True)
    before = e.weight.detach().clone()
    e(plait.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        getattr(plait.optim, name)(e.parameters()).step()
    assert plait.equal(e.weight, before)


def test_what_optimizers_refuse():
    w = nn.Parameter(plait.ones(2))
    w.grad = plait.ones(2)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        plait.optim.SparseAdam([w]).step()
    with pytest.raises(ValueError, match="sparse tensor"):
        plait.optim.SparseAdam([matrix(plait).requires_grad_()])
    e = nn.Embedding(4, 2, sparse=True)
    e(plait.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible with sparse gradients"):
        plait.optim.Adagrad(e.parameters(), weight_decay=0.1).step()
    with pytest.raises(NotImplementedError, match="clamp_: not defined for sparse tensors"):
        nn.utils.clip_grad_value_(e.parameters(), 1.0)
    with pytest.raises(NotImplementedError, match="scale_grad_by_freq not supported"):
        nn.Embedding(4, 2, sparse=True, scale_grad_by_freq=True)(plait.tensor([1]))
    with pytest.raises(ValueError, match="max mode does not support sparse weights"):
        nn.EmbeddingBag(4, 2, sparse=True, mode="max")(plait.tensor([[1]]))


def test_gradients_meet_dense_ones():
    w = plait.ones(4, 2, requires_grad=True)
    look = nn.functional.embedding
    (look(plait.tensor([1]), w, sparse=True).sum() + w.sum()).backward()
    assert not w.grad.is_sparse and w.grad.tolist() == [[1, 1], [2, 2], [1, 1], [1, 1]]
    look(plait.tensor([0, 0]), w, sparse=True).sum().backward()
    assert w.grad.tolist() == [[3, 3], [2, 2], [1, 1], [1, 1]]
    w.grad = None
    look(plait.tensor([1, 3]), w, sparse=True).sum().backward()
    look(plait.tensor([1]), w, sparse=True).sum().backward()
    assert w.grad.is_sparse and w.grad._nnz() == 3 and w.grad.to_dense().tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]
    w.sum().backward()
    assert not w.grad.is_sparse and w.grad.tolist() == [[1, 1], [3, 3], [1, 1], [2, 2]]
    (grad,) = plait.autograd.grad(look(plait.tensor([1]), w * 2, sparse=True).sum(), w)
    assert grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]
    seen = []
    hook = w.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
    w.grad = None
    look(plait.tensor([1]), w, sparse=True).sum().backward()
    hook.remove()
    assert seen == [True] and w.grad.to_dense().tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]
    optimizer = plait.optim.SGD([w], 0.1)
    optimizer.zero_grad(set_to_none=False)
    assert w.grad.to_dense().tolist() == [[0, 0]] * 4
    w.grad = plait.sparse_coo_tensor([[2]], plait.ones(1, 2), (4, 2))
    optimizer.step()
    assert plait.allclose(w[2], plait.full((2,), 0.9)) and plait.equal(w[0], plait.ones(2))


def test_a_gradient_is_the_callers_own():
    weight = plait.ones(3, 2, requires_grad=True)
    out = nn.functional.embedding(plait.tensor([0, 2]), weight, sparse=True)
    given = plait.ones(2, 2)
    out.backward(given)
    nn.utils.clip_grad_norm_([weight], 0.5)
    assert given.tolist() == [[1, 1], [1, 1]]


def test_scaled_gradients():
    e = nn.Embedding(4, 2, sparse=True)
    optimizer, scaler = plait.optim.SparseAdam(e.parameters(), 0.1), plait.amp.GradScaler("cpu", init_scale=8.0)
    before = e.weight.detach().clone()
    scaler.scale(e(plait.tensor([1, 1])).sum()).backward()
    scaler.unscale_(optimizer)
    assert e.weight.grad.to_dense()[1].tolist() == [2, 2]
    scaler.step(optimizer)
    assert not plait.equal(e.weight[1], before[1]) and plait.equal(e.weight[0], before[0])


def test_optimizer_states():
    plait.manual_seed(0)
    e, other = nn.Embedding(4, 2, sparse=True), nn.Embedding(4, 2, sparse=True)
    other.load_state_dict(e.state_dict())
    first = plait.optim.SparseAdam(e.parameters(), 0.1)
    e(plait.tensor([1, 2])).sum().backward()
    first.step()
    other.load_state_dict(e.state_dict())
    second = plait.optim.SparseAdam(other.parameters(), 0.1)
    second.load_state_dict(first.state_dict())
    for module, optimizer in ((e, first), (other, second)):
        optimizer.zero_grad()
        module(plait.tensor([1])).sum().backward()
        optimizer.step()
    assert plait.equal(e.weight, other.weight)


@pytest.mark.parametrize("make", [matrix, rows, lambda T: matrix(T).coalesce()])
def test_files_and_copies(make):
    s = make(plait)
    file = io.BytesIO()
    plait.save({"s": s, "values": [s.to_dense()]}, file)
    file.seek(0)
    for other in (plait.load(file)["s"], pickle.loads(pickle.dumps(s)), copy.deepcopy(s), copy.copy(s)):
        assert repr(other) == repr(s) and other.layout is s.layout
        if s.is_sparse:
            assert other.is_coalesced() == s.is_coalesced()
    leaf = make(plait).requires_grad_()
    assert pickle.loads(pickle.dumps(leaf)).requires_grad and copy.deepcopy(leaf).requires_grad
    assert pickle.loads(pickle.dumps(s.layout)) is s.layout


def test_the_programs_memory_is_its_own():
    indices, values = plait.tensor([[0, 1]]), plait.tensor([1.0, 2.0])
    s = plait.sparse_coo_tensor(indices, values, (2,))
    indices[0, 0] = 1
    assert s.to_dense().tolist() == [1, 2]
    s.requires_grad_()
    assert not values.requires_grad


def test_layouts_and_classes():
    s = matrix(plait)
    assert (s.layout, rows(plait).layout, plait.ones(1).layout) == (plait.sparse_coo, plait.sparse_csr, plait.strided)
    assert isinstance(s, plait.Tensor) and isinstance(s, plait.sparse.DoubleTensor)
    assert not isinstance(s, plait.sparse.FloatTensor) and not isinstance(plait.ones(1), plait.sparse.FloatTensor)
    assert repr(plait.sparse_coo) == "plait.sparse_coo"
    assert len(s) == 4 and [x._nnz() for x in s] == [2, 3, 0, 1]


def test_forward_mode():
    values, x = plait.tensor([1.0, 2.0, 3.0], dtype=plait.float64), numbers(plait, 3, 2)

    def product(values, x):
        return plait.sparse.mm(plait.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values, (2, 3)), x)

    y, tangent = plait.func.jvp(product, (values, x), (values, x))
    assert plait.allclose(tangent, 2 * y)


def test_double_backward():
    values = plait.tensor([1.0, 2.0, 3.0], dtype=plait.float64, requires_grad=True)
    x = numbers(plait, 3, 2).requires_grad_()

    def product(values, x):
        s = plait.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values, (2, 3))
        return plait.sparse.mm(s, plait.sparse.mm(s.t(), plait.sparse.mm(s, x)))

    assert plait.autograd.gradcheck(product, (values, x))
    assert plait.autograd.gradgradcheck(product, (values, x))


def test_complex_values():
    """Sparse tensors of complex numbers are what dense ones are, and their gradients agree with differences."""
    values = plait.tensor([1 + 2j, -0.5 + 1j, 0.25 - 0.75j, 2j], dtype=plait.cdouble, requires_grad=True)
    x = plait.complex(numbers(plait, 3, 2), numbers(plait, 3, 2).flip(0)).requires_grad_()
    d = plait.complex(numbers(plait, 2, 3), numbers(plait, 2, 3).flip(1))

    def coo(v):
        return plait.sparse_coo_tensor([[0, 1, 1, 1], [2, 0, 2, 0]], v, (2, 3))

    def csr(v):
        return plait.sparse_csr_tensor([0, 1, 4], [2, 0, 1, 2], v, (2, 3))

    for make in (coo, csr):
        dense = make(values).to_dense().detach()
        for name, apply in {
            "itself": lambda s: s,
            "product": lambda s: s @ x,
            "scaled": lambda s: s * (1 - 2j),
            "quotient": lambda s: s / 2j,
            "conjugates": lambda s: s.conj(),
            "parts": lambda s: s.real,
            "negative": lambda s: -s,
            **(
                {}
                if make is csr
                else {
                    "sum": lambda s: s + s,
                    "factors": lambda s: s * d,
                    "transposed": lambda s: s.t(),
                    "sizes": lambda s: s.abs(),
                    "total": plait.sum,
                    "row": lambda s: s[1],
                }
            ),
        }.items():

            def applied(v, x, make=make, apply=apply):
                y = apply(make(v))
                return y.to_dense() if y.is_sparse or y.layout is plait.sparse_csr else y

            assert plait.allclose(applied(values, x), apply(dense)), name
            assert plait.autograd.gradcheck(applied, (values, x)), name
    merged = coo(values.detach()).coalesce()
    assert merged.values().tolist() == [1 + 2j, -0.5 + 3j, 0.25 - 0.75j]
    assert plait.equal(dense.to_sparse().to_dense(), dense) and plait.equal(dense.to_sparse_csr().to_dense(), dense)
    file = io.BytesIO()
    plait.save(merged, file)
    file.seek(0)
    assert plait.equal(plait.load(file).to_dense(), merged.to_dense())


def test_functions_take_sparse_inputs():
    class Product(plait.autograd.Function):
        @staticmethod
        def forward(ctx, s, x):
            ctx.save_for_backward(s)
            return s @ x

        @staticmethod
        def backward(ctx, grad):
            (s,) = ctx.saved_tensors
            return None, s.t() @ grad

    x = numbers(plait, 4, 2).requires_grad_()
    Product.apply(matrix(plait), x).sum().backward()
    assert plait.equal(x.grad, matrix(plait).to_dense().t() @ plait.ones(4, 2, dtype=plait.float64))
    with pytest.raises(NotImplementedError, match="pass its values"):
        Product.apply(matrix(plait).requires_grad_(), x)


def test_modules_have_sparse_buffers():
    class Layer(nn.Module):
        def __init__(self, s):
            super().__init__()
            self.register_buffer("s", s)

    first, second = Layer(matrix(plait)), Layer(plait.sparse_coo_tensor((4, 4), dtype=plait.float64))
    second.load_state_dict(first.state_dict())
    assert plait.equal(second.s.to_dense(), first.s.to_dense())
    assert first.float().s.dtype is plait.float32 and first.s.is_sparse
    with pytest.raises(NotImplementedError, match="make its values one"):
        nn.Parameter(matrix(plait))


def test_on_a_gpu():
    run("""
        from plait import nn

        def results(device):
            at = plait.tensor([[1, 0, 1, 1, 3, 0], [2, 0, 2, 0, 1, 3]], device=device)
            v = plait.tensor([2.0, -3.0, 4.0, 0.5, 1.0, 7.0], device=device)
            s, w = plait.sparse_coo_tensor(at, v, (4, 4)), v.clone().requires_grad_()
            x = plait.arange(12.0).reshape(4, 3).to(device).requires_grad_()
            (plait.sparse.mm(plait.sparse_coo_tensor(at, w, (4, 4)), x) ** 2).sum().backward()
            y = x.detach()
            out = [x.grad, w.grad, s.coalesce(), s.to_sparse_csr() @ y, y.t() @ s, s @ s.t(), s * s.t()]
            out += [plait.sparse.softmax(s, 1), plait.sparse.sum(s, 0), s + s.t(), plait.ones(4, 4, device=device) + s]
            out += [s[1], s.to_dense().to_sparse(), s.half() @ x.detach().half(), s.index_select(0, at[1, :3])]
            e = nn.Embedding(6, 3, sparse=True).to(device)
            nn.init.ones_(e.weight)
            for method in (plait.optim.SGD, plait.optim.SparseAdam, plait.optim.Adagrad):
                optimizer = method(e.parameters(), lr=0.1)
                optimizer.zero_grad()
                e(at[0, :4]).sum().backward()
                nn.utils.clip_grad_norm_(e.parameters(), 0.5)
                optimizer.step()
            return [*out, e.weight.detach()]

        for there, here in zip(results("gpu:0"), results("cpu"), strict=True):
            assert there.device.type == "cuda" or str(there.device) == "gpu:0", there.device
            assert plait.allclose(there.cpu().to_dense().float(), here.to_dense().float(), atol=1e-4), (there, here)
        s = plait.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,))
        assert str(s.to("gpu:0").to("cpu")) == str(s)
    """)


def test_dense_dimensions():
    x = plait.eye(3)
    s = x.to_sparse(dense_dim=1)
    assert s.sparse_dim() == 1 and s.values().shape == (3, 3) and plait.equal(s.to_dense(), x)
    for wrong, error, text in (
        ({"dense_dim": 2}, ValueError, "between 0 and 1, got 2"),
        ({"dense_dim": -1}, ValueError, "between 0 and 1, got -1"),
        ({"dense_dim": 1, "sparse_dim": 1}, ValueError, "got both"),
        ({"blocksize": (1, 1)}, NotImplementedError, "no blocks"),
    ):
        with pytest.raises(error, match=text):
            x.to_sparse(**wrong)


def test_products_that_are_sparse():
    s, x = matrix(plait), plait.randn(4, 2, dtype=plait.float64)
    out = plait.smm(s, x)
    assert out.layout is plait.sparse_coo and plait.allclose(out.to_dense(), s.to_dense() @ x)
    more = plait.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (4, 2), dtype=plait.float64)
    out = more.sspaddmm(s, x, beta=2, alpha=3)
    assert out.layout is plait.sparse_coo and plait.allclose(
        out.to_dense(), 2 * more.to_dense() + 3 * (s.to_dense() @ x)
    )
    for call in (lambda: plait.smm(x, x), lambda: plait.sspaddmm(x, s, x), lambda: s.to_sparse_csr().smm(x)):
        with pytest.raises(TypeError, match="must be a sparse tensor with an index for each entry"):
            call()


def test_solutions_of_sparse_equations():
    a = plait.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [0.0, 1.0, 4.0]])
    b = plait.tensor([1.0, 2.0, 3.0])
    assert plait.allclose(a @ plait.sparse.spsolve(a.to_sparse_csr(), b), b)
    with pytest.raises(TypeError, match="compressed rows"):
        plait.sparse.spsolve(a, b)
    with pytest.raises(RuntimeError, match=r"want \[n, n\] and \[n\]"):
        plait.sparse.spsolve(a.to_sparse_csr(), b[:2])
    made = plait.sparse_compressed_tensor([0, 1, 2], [1, 0], [5.0, 6.0], layout=plait.sparse_csr)
    assert made.to_dense().tolist() == [[0, 5], [6, 0]]
    with pytest.raises(NotImplementedError, match="layout must be"):
        plait.sparse_compressed_tensor([0, 1, 2], [1, 0], [5.0, 6.0])


def test_checks_of_gradients_take_sparse_tensors():
    check = plait.sparse.as_sparse_gradcheck(plait.autograd.gradcheck)
    s, x = (
        matrix(plait).detach().coalesce().requires_grad_(),
        plait.randn(4, 2, dtype=plait.float64, requires_grad=True),
    )
    assert check(plait.sparse.mm, [s, x]) and check(plait.sparse.mm, (s, x), masked=True)
    assert check(lambda s: (s.to_sparse_csr(), s * 2), s)
    assert check(lambda s: s.to_dense().square(), s.detach().to_sparse_csr().requires_grad_())
    hybrid = plait.sparse_coo_tensor([[0, 2]], plait.randn(2, 3, dtype=plait.float64), (4, 3)).requires_grad_()
    assert check(lambda h: h * 3, hybrid) and check(lambda h: h * 3, hybrid, masked=True)
    with pytest.raises(plait.autograd.GradcheckError):
        check(lambda s: s.detach() * 2 + s * 0, s)
    assert not check(lambda s: s.detach() * 2 + s * 0, s, raise_exception=False)


def test_rows_are_reduced():
    dense = plait.tensor([[1.0, 2, 0], [0, 0, 0], [0, 3, 4]])
    x = plait.tensor([[1.0, -2], [3, 4], [-5, 6]])
    for reduce, want in {
        "sum": [[7, 6], [0, 0], [-11, 36]],
        "mean": [[3.5, 3], [0, 0], [-5.5, 18]],
        "amax": [[6, 8], [0, 0], [9, 24]],
        "amin": [[1, -2], [0, 0], [-20, 12]],
    }.items():
        assert plait.sparse.mm(dense.to_sparse_csr(), x, reduce).tolist() == want, reduce
    s, leaf = dense.to_sparse_csr().requires_grad_(), x.clone().requires_grad_()
    plait.sparse.mm(s, leaf, "amax").sum().backward()
    assert leaf.grad.tolist() == [[0, 0], [2 + 3, 2], [0, 4]]
    assert s.grad.to_dense().tolist() == [[0, 3 + 4, 0], [0, 0, 0], [0, 3, 6]]
    with pytest.raises(NotImplementedError, match="compressed rows"):
        plait.sparse.mm(dense.to_sparse(), x, "mean")
    with pytest.raises(RuntimeError, match="got prod"):
        plait.sparse.mm(s, x, "prod")


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_whole_dimensions_are_indices(layout):
    dense = plait.tensor([[1.0, 2, 0], [0, 0, 0], [0, 3, 4]])
    s = getattr(dense, layout)()
    for index in [(slice(None), 1), (slice(None), -1), (0, slice(None)), (..., 1), (2, ...), (..., 2, slice(None))]:
        assert s[index].to_dense().tolist() == dense[index].tolist(), index
    assert s[2, 1] == 3
    for index in [None, slice(None), slice(0, 2), (slice(0, 1), 1)]:
        with pytest.raises(NotImplementedError, match="numbers and whole dimensions"):
            s[index]
