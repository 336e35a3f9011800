"""Sparse matrices in compressed columns, as PyTorch 2.15 has them."""

import copy
import io
import pickle

import plait
import pytest

DENSE = [[0.0, 2.0, 4.0], [1.0, 3.0, 0.0]]
PARTS = [0, 1, 3, 4], [1, 0, 1, 0], [1.0, 2.0, 3.0, 4.0]


def made(requires_grad=False, **options):
    ccol, row, values = (plait.tensor(p) for p in PARTS)
    values.requires_grad = requires_grad
    return plait.sparse_csc_tensor(ccol, row, values, (2, 3), **options), values


def parts(t):
    return t.ccol_indices().tolist(), t.row_indices().tolist(), t.values().tolist()


def test_what_it_is_made_of():
    a, _ = made()
    assert a.layout is plait.sparse_csc and a.shape == (2, 3) and a._nnz() == 4
    assert not a.is_sparse and not a.is_sparse_csr and parts(a) == PARTS and a.to_dense().tolist() == DENSE
    assert plait.sparse_csc_tensor(*PARTS).shape == (2, 3)
    assert repr(a) == (
        "tensor(ccol_indices=tensor([0, 1, 3, 4]),\n       row_indices=tensor([1, 0, 1, 0]),\n"
        "       values=tensor([1., 2., 3., 4.]), size=(2, 3), nnz=4,\n       layout=plait.sparse_csc)"
    )
    with pytest.raises(RuntimeError, match="expected sparse row compressed tensor layout but got SparseCsc"):
        a.crow_indices()
    with pytest.raises(RuntimeError, match="expected sparse column compressed tensor layout but got Strided"):
        plait.ones(2, 2).ccol_indices()
    with pytest.raises(RuntimeError, match="column compressed"):
        a.to_sparse_csr().row_indices()
    with pytest.raises(RuntimeError):
        plait.sparse_csc_tensor([0, 1, 3], *PARTS[1:], (2, 3))
    with pytest.raises(RuntimeError):
        plait.sparse_csc_tensor(PARTS[0], [5, 0, 1, 0], PARTS[2], (2, 3))


def test_layouts_become_others():
    a, dense = made()[0], plait.tensor(DENSE)
    for other in (dense, dense.to_sparse(), dense.to_sparse_csr(), a):
        assert parts(other.to_sparse_csc()) == PARTS
    assert parts(dense.to_sparse(layout=plait.sparse_csc)) == PARTS
    assert parts(plait.sparse_compressed_tensor(*PARTS, (2, 3), layout=plait.sparse_csc)) == PARTS
    rows = a.to_sparse_csr()
    assert rows.is_sparse_csr and rows.crow_indices().tolist() == [0, 2, 4]
    assert rows.values().tolist() == [2.0, 4.0, 1.0, 3.0] and a.to_sparse().layout is plait.sparse_coo
    for turned in (a.t(), a.transpose(0, 1)):
        assert turned.is_sparse_csr and turned.shape == (3, 2)
        assert (turned.crow_indices().tolist(), turned.col_indices().tolist(), turned.values().tolist()) == PARTS
    back = rows.t()
    assert back.layout is plait.sparse_csc and back.ccol_indices().tolist() == [0, 2, 4]
    assert back.row_indices().tolist() == [1, 2, 0, 1] and back.t().is_sparse_csr


def test_operations():
    a, dense = made()[0], plait.tensor(DENSE)
    x = plait.arange(6.0).reshape(3, 2)
    assert (a @ x).tolist() == plait.sparse.mm(a, x).tolist() == (dense @ x).tolist()
    assert (plait.ones(4, 2) @ a).tolist() == (plait.ones(4, 2) @ dense).tolist()
    for other in (dense.t().contiguous().to_sparse_csr(), dense.t().contiguous().to_sparse_csc()):
        product = a @ other
        assert product.is_sparse_csr and product.to_dense().tolist() == (dense @ dense.t()).tolist()
    for got, want in (
        (a * 2, dense * 2), (-a, -dense), (a + a, dense + dense), (a.relu(), dense.relu()), (a.clone(), dense),
        (a.detach(), dense), (a.abs(), dense), (copy.deepcopy(a), dense), (pickle.loads(pickle.dumps(a)), dense),
    ):  # fmt: skip
        assert got.layout is plait.sparse_csc and got.to_dense().tolist() == want.tolist()
    assert (
        a.double().values().dtype is plait.float64 and a.sum().item() == 10.0 and a[0].to_dense().tolist() == DENSE[0]
    )
    file = io.BytesIO()
    plait.save(a, file)
    file.seek(0)
    assert parts(plait.load(file)) == PARTS


def test_gradients():
    a, values = made(requires_grad=True)
    (a.to_dense() * plait.arange(6.0).reshape(2, 3)).sum().backward()
    assert values.grad.tolist() == [3.0, 1.0, 4.0, 2.0]
    a, values = made(requires_grad=True)
    x = plait.arange(6.0).reshape(3, 2).requires_grad_()
    (a @ x).sum().backward()
    assert values.grad.tolist() == [1.0, 5.0, 5.0, 9.0] and x.grad.tolist() == [[1.0] * 2, [5.0] * 2, [4.0] * 2]
    leaf = made()[0]
    leaf.requires_grad = True
    leaf.to_dense().sum().backward()
    assert leaf.grad.layout is plait.sparse_csc and leaf.grad.values().tolist() == [1.0] * 4
