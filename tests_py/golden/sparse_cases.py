# ruff: noqa: E501, SIM905
"""Uses of sparse tensors: functions of the module, torch or plait, that return what is compared."""

import numpy as np

INDICES = [[1, 0, 1, 1, 3, 0], [2, 0, 2, 0, 1, 3]]  # in no order, and one of them twice
VALUES = [2.0, -3.0, 4.0, 0.5, 1.0, 7.0]


def numbers(T, *shape):
    """Returns a matrix of numbers that are easy to tell apart."""
    n = int(np.prod(shape))
    return T.tensor((np.arange(n) * 7 % 11 - 5.0) / 4).reshape(*shape)


def matrix(T, **options):
    """Returns a sparse matrix [4, 4] in float64, not coalesced."""
    return T.sparse_coo_tensor(T.tensor(INDICES), T.tensor(VALUES, dtype=T.float64), (4, 4), **options)


def rows(T):
    """Returns a sparse matrix in compressed rows."""
    return matrix(T).coalesce().to_sparse_csr()


def hybrid(T):
    """Returns a sparse tensor [4, 3, 2] with one dense dimension."""
    return T.sparse_coo_tensor(T.tensor([[0, 2, 0], [1, 0, 1]]), numbers(T, 3, 2), (4, 3, 2))


OPERATIONS = {
    "dense": lambda T: matrix(T).to_dense(),
    "coalesce": lambda T: matrix(T).coalesce(),
    "csr": rows,
    "csr to dense": lambda T: rows(T).to_dense(),
    "csr to coo": lambda T: rows(T).to_sparse_coo(),
    "csr sparse": lambda T: rows(T).to_sparse(),
    "from dense": lambda T: T.relu(numbers(T, 3, 4)).to_sparse(),
    "from dense, one dim": lambda T: T.relu(numbers(T, 3, 4)).to_sparse(1),
    "from dense, csr": lambda T: T.relu(numbers(T, 3, 4)).to_sparse_csr(),
    "hybrid": lambda T: hybrid(T).coalesce(),
    "hybrid to dense": lambda T: hybrid(T).to_dense(),
    "hybrid sum": lambda T: [T.sparse.sum(hybrid(T), d) for d in (0, 1, 2, [0, 1], [1, 2])],
    "mm": lambda T: T.sparse.mm(matrix(T), numbers(T, 4, 3)),
    "matmul": lambda T: matrix(T) @ numbers(T, 4, 3),
    "spmm": lambda T: T.spmm(matrix(T).coalesce(), numbers(T, 4, 3)),
    "csr mm": lambda T: rows(T) @ numbers(T, 4, 3),
    "dense @ sparse": lambda T: numbers(T, 3, 4) @ matrix(T),
    "dense @ csr": lambda T: numbers(T, 3, 4) @ rows(T),
    "sparse @ sparse": lambda T: T.sparse.mm(matrix(T), matrix(T).t()),
    "mv": lambda T: [matrix(T) @ numbers(T, 4), T.mv(matrix(T), numbers(T, 4)), rows(T) @ numbers(T, 4)],
    "addmm": lambda T: T.sparse.addmm(numbers(T, 4, 3), matrix(T), numbers(T, 4, 3), beta=2.0, alpha=3.0),
    "sampled_addmm": lambda T: T.sparse.sampled_addmm(rows(T), numbers(T, 4, 3), numbers(T, 3, 4), beta=0.5, alpha=2.0),
    "float32": lambda T: matrix(T).to(T.float32) @ numbers(T, 4, 3).to(T.float32),
    "t": lambda T: matrix(T).t().coalesce(),
    "transpose": lambda T: [matrix(T).transpose(0, 1).coalesce(), matrix(T).T.coalesce(), hybrid(T).transpose(0, 1).coalesce()],
    "t mm": lambda T: matrix(T).t() @ numbers(T, 4, 2),
    "neg": lambda T: (-matrix(T)).coalesce(),
    "unary": lambda T: [getattr(matrix(T), f)() for f in "abs sin tan asinh sinh tanh expm1 ceil floor round sign square".split()],
    "sqrt": lambda T: matrix(T).abs().sqrt(),
    "pow": lambda T: [matrix(T) ** 2, matrix(T).pow(3)],
    "relu": lambda T: T.relu(matrix(T)),
    "numbers": lambda T: [(matrix(T) * 2).coalesce(), (3 * matrix(T)).coalesce(), (matrix(T) / 4).coalesce(), rows(T) * 2],
    "times dense": lambda T: [(matrix(T) * numbers(T, 4, 4)).coalesce(), (numbers(T, 4, 4) * matrix(T)).coalesce()],
    "times a row": lambda T: (matrix(T).coalesce() * numbers(T, 4)).to_dense(),
    "times sparse": lambda T: (matrix(T) * matrix(T).t()).to_dense(),
    "sum of sparse": lambda T: [(matrix(T) + matrix(T).t()).coalesce(), (matrix(T) - matrix(T).t()).coalesce()],
    "sum with alpha": lambda T: T.add(matrix(T), matrix(T).t(), alpha=3).coalesce(),
    "sum of csr": lambda T: (rows(T) + rows(T)).to_dense(),
    "dense + sparse": lambda T: [numbers(T, 4, 4) + matrix(T), numbers(T, 4, 4) - matrix(T)],
    "sum": lambda T: [T.sparse.sum(matrix(T)), matrix(T).sum(), T.sparse.sum(matrix(T), 0), T.sparse.sum(matrix(T), 1)],
    "norm": lambda T: matrix(T).norm(),
    "softmax": lambda T: [T.sparse.softmax(matrix(T), d) for d in (0, 1)],
    "log_softmax": lambda T: [T.sparse.log_softmax(matrix(T), d) for d in (0, 1)],
    "hybrid softmax": lambda T: [T.sparse.softmax(hybrid(T), d) for d in (0, 1, 2)],
    "index_select": lambda T: [matrix(T).index_select(d, T.tensor([1, 0, 1])).coalesce() for d in (0, 1)],
    "select": lambda T: [matrix(T)[1].coalesce(), matrix(T)[-1].coalesce()],
    "cat": lambda T: [T.cat([matrix(T), matrix(T)], d).coalesce() for d in (0, 1)],
    "stack": lambda T: [T.stack([matrix(T), matrix(T).t()], d).coalesce() for d in (0, 2)],
    "unsqueeze": lambda T: [matrix(T).unsqueeze(d).coalesce() for d in (0, 1, -1)] + [hybrid(T).unsqueeze(3).coalesce()],
    "bmm": lambda T: T.bmm(T.stack([matrix(T), matrix(T).t()]).coalesce(), numbers(T, 2, 4, 3)),
    "sparse_mask": lambda T: numbers(T, 4, 4).sparse_mask(matrix(T).coalesce()),
    "zeros_like": lambda T: T.zeros_like(matrix(T)),
    "clone": lambda T: [matrix(T).clone(), matrix(T).detach()],
    "no entries": lambda T: T.sparse_coo_tensor((2, 3)).to_dense(),
    "no size": lambda T: T.sparse_coo_tensor([[0, 2], [1, 0]], [1.0, 2.0]),
    "csr, no size": lambda T: T.sparse_csr_tensor([0, 1, 2], [3, 0], [1.0, 2.0]),
    "old types": lambda T: [
        T.sparse.FloatTensor(T.tensor([[0, 1], [1, 0]]), T.tensor([1.0, 2.0]), T.Size([2, 2])),
        T.sparse.FloatTensor(2, 3),
        T.sparse.DoubleTensor(T.tensor([[0], [1]]), T.tensor([1.0], dtype=T.float64)),
    ],
    "spdiags": lambda T: T.sparse.spdiags(numbers(T, 2, 4), T.tensor([0, 1]), (4, 4)),
    "spdiags below": lambda T: T.sparse.spdiags(numbers(T, 2, 3), T.tensor([-1, 2]), (4, 5)),
    "numpy indices": lambda T: T.sparse_coo_tensor(np.array([[0, 1], [1, 0]], dtype=np.int32).T, T.ones(2), (2, 2), dtype=T.int64).to_dense(),
    "eye + counts": lambda T: T.eye(2) + T.sparse_coo_tensor(np.array([[0, 1], [0, 1]]), T.ones(2), (2, 2), dtype=T.int64),
    "facts": lambda T: [
        str([x.is_sparse, x.is_sparse_csr, x.sparse_dim(), x.dense_dim(), x._nnz(), list(x.shape), x.dim(), x.numel(), str(x.dtype)])
        for x in (matrix(T), rows(T), hybrid(T))
    ],
    "coalesced": lambda T: str([x.is_coalesced() for x in (matrix(T), matrix(T).coalesce(), matrix(T).t(), hybrid(T))]),
    "dense facts": lambda T: str([numbers(T, 2).is_sparse, numbers(T, 2).is_sparse_csr, numbers(T, 2).sparse_dim(), numbers(T, 2).dense_dim()]),
    "printed": lambda T: [
        repr(x)
        for x in (matrix(T), rows(T), hybrid(T), matrix(T).to(T.float32), matrix(T).requires_grad_(), T.sparse_coo_tensor((2, 3)),
                  T.sparse_coo_tensor([[0, 1]], [5, 6], (3,)), rows(T).to(T.float32))
    ],
}  # fmt: skip


def gradients(T, make, function, *others):
    """Returns the gradients of a weighted sum of what a function returns of a sparse leaf and other tensors."""
    s = make(T).requires_grad_()
    others = [numbers(T, *shape).requires_grad_() for shape in others]
    y = function(s, *others)
    if y.is_sparse or y.is_sparse_csr:
        y = y.to_dense()
    (y * numbers(T, *y.shape)).sum().backward()
    return [s.grad, *[x.grad for x in others]]


def coalesced(T):
    """Returns a sparse matrix with its entries in order."""
    return matrix(T).coalesce()


GRADIENTS = {
    "sparse.mm": lambda T: gradients(T, coalesced, T.sparse.mm, (4, 3)),
    "csr times dense, of dense": lambda T: gradients(T, rows, lambda s, x: s.detach() @ x + 0 * s.sum(), (4, 3))[1:],
    "to_dense": lambda T: gradients(T, coalesced, lambda s: s.to_dense()),
    "sum": lambda T: gradients(T, coalesced, lambda s: T.sparse.sum(s, 1).to_dense()),
    "softmax": lambda T: gradients(T, coalesced, lambda s: T.sparse.softmax(s, 1).to_dense()),
    "log_softmax": lambda T: gradients(T, coalesced, lambda s: T.sparse.log_softmax(s, 0).to_dense()),
    "times a number": lambda T: gradients(T, coalesced, lambda s: (s * 3).to_dense()),
    "dense + sparse": lambda T: gradients(T, coalesced, lambda s, x: x + s, (4, 4))[1:],
    "sparse @ sparse": lambda T: gradients(T, coalesced, lambda s: T.sparse.mm(s, s.detach()).to_dense()),
}


def of_values(T):
    """Returns the gradients of values that a sparse tensor was made of, and of the dense factor."""
    v, x = T.tensor(VALUES, dtype=T.float64, requires_grad=True), numbers(T, 4, 3).requires_grad_()
    s = T.sparse_coo_tensor(T.tensor(INDICES), v, (4, 4))
    (T.sparse.mm(s, x) * numbers(T, 4, 3)).sum().backward()
    return [str([s.is_leaf, s.requires_grad]), v.grad, x.grad]


def of_dense(T):
    """Returns the gradient of a dense tensor that was made sparse."""
    x = T.relu(numbers(T, 3, 4)).requires_grad_()
    (x.to_sparse().coalesce().values() * numbers(T, 5)).sum().backward()
    return x.grad


def twice(T):
    """Returns the gradient after two passes."""
    s = coalesced(T).requires_grad_()
    for _ in range(2):
        T.sparse.mm(s, numbers(T, 4, 3)).sum().backward()
    return s.grad


def special_product(T):
    """Returns gradients through a function of the program's own that makes a sparse tensor of edges."""

    class Product(T.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            a = T.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            ctx.n = shape[0]
            return T.matmul(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            values = b_grad = None
            if ctx.needs_input_grad[1]:
                at = a._indices()[0, :] * ctx.n + a._indices()[1, :]
                values = grad.matmul(b.t()).view(-1)[at]
            if ctx.needs_input_grad[3]:
                b_grad = a.t().matmul(grad)
            return None, values, None, b_grad

    v, x = T.tensor(VALUES, dtype=T.float64, requires_grad=True), numbers(T, 4, 3).requires_grad_()
    y = Product.apply(T.tensor(INDICES), v, T.Size([4, 4]), x)
    (y * numbers(T, 4, 3)).sum().backward()
    return [y, v.grad, x.grad]


GRADIENTS |= {"values": of_values, "from dense": of_dense, "two passes": twice, "a function of edges": special_product}


def embedding(T, cls="Embedding", steps=3, clip=None, **options):
    """Returns a function that trains a sparse embedding with an optimiser, and its weight after it."""

    def train(make):
        e = getattr(T.nn, cls)(6, 3, sparse=True, **options).double()
        with T.no_grad():
            e.weight.copy_(numbers(T, 6, 3))
        optimizer = make([e.weight])
        out = []
        for step in range(steps):
            optimizer.zero_grad()
            index = T.tensor([[1, 3, 1], [step, 4, 4]])
            (e(index) * numbers(T, *e(index).shape)).sum().backward()
            if step == 0:
                out += [e.weight.grad.coalesce(), str(e.weight.grad.is_coalesced())]
            if clip is not None:
                out.append(T.nn.utils.clip_grad_norm_([e.weight], clip))
            optimizer.step()
        return [*out, e.weight.detach()]

    return train


TRAINING = {
    "SGD": lambda T: embedding(T)(lambda p: T.optim.SGD(p, 0.1)),
    "SGD maximize": lambda T: embedding(T)(lambda p: T.optim.SGD(p, 0.1, maximize=True)),
    "SGD momentum": lambda T: embedding(T)(lambda p: T.optim.SGD(p, 0.1, momentum=0.9)),
    "Adagrad": lambda T: embedding(T)(lambda p: T.optim.Adagrad(p, 0.1, lr_decay=0.1, initial_accumulator_value=0.5)),
    "SparseAdam": lambda T: embedding(T)(lambda p: T.optim.SparseAdam(p, 0.1)),
    "SparseAdam maximize": lambda T: embedding(T)(lambda p: T.optim.SparseAdam(p, 0.1, eps=0.1, maximize=True)),
    "clipped": lambda T: embedding(T, clip=0.5)(lambda p: T.optim.SGD(p, 0.1)),
    "padding": lambda T: embedding(T, padding_idx=3)(lambda p: T.optim.SGD(p, 0.1)),
    "bag sum": lambda T: embedding(T, "EmbeddingBag", mode="sum")(lambda p: T.optim.SparseAdam(p, 0.1)),
    "bag mean": lambda T: embedding(T, "EmbeddingBag", mode="mean")(lambda p: T.optim.Adagrad(p, 0.1)),
}


def graph(T, nodes=12):
    """Returns features, the edges of a graph as an array [edges, 2], and labels."""
    edges = np.array([[i, (i * i + j) % nodes] for i in range(nodes) for j in (1, 4)], dtype=np.int32)
    features = np.abs(np.sin(np.arange(nodes * 5).reshape(nodes, 5)))
    return T.tensor(features), edges, T.tensor(np.arange(nodes) % 3)


def fill(T, module):
    """Gives the parameters of a module values that do not depend on a generator."""
    with T.no_grad():
        for p in module.parameters():
            p.copy_(numbers(T, *p.shape) / 3)
    return module


def trained(T, model, inputs, labels, steps=4):
    """Returns the losses of some steps, and the output after them."""
    optimizer = T.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    criterion, out = T.nn.NLLLoss(), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(*inputs), labels)
        loss.backward()
        optimizer.step()
        out.append(loss.detach())
    return [*out, model(*inputs).detach()]


def convolutions(T, product):
    """Returns a class of networks of two graph convolutions."""
    nn = T.nn

    class Layer(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.kernel = nn.Parameter(T.empty(inputs, outputs, dtype=T.float64))
            self.bias = nn.Parameter(T.empty(outputs, dtype=T.float64))

        def forward(self, x, adjacency):
            return product(adjacency, T.mm(x, self.kernel)) + self.bias

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(5, 8), Layer(8, 3)

        def forward(self, x, adjacency):
            x = nn.functional.relu(self.first(x, adjacency))
            return nn.functional.log_softmax(self.second(x, adjacency), dim=1)

    return fill(T, Network())


def gcn(T):
    """A graph convolution network, with features and a normalised adjacency that are sparse tensors."""
    features, edges, labels = graph(T)
    n = len(labels)
    scale = 1 / T.sum(features, dim=1)
    scale[scale == float("inf")] = 0
    features = T.diag(scale).to_sparse() @ features
    adjacency = T.sparse_coo_tensor(edges.T, T.ones(len(edges)), (n, n), dtype=T.int64)
    adjacency = T.eye(n, dtype=T.float64) + adjacency
    degree = T.sqrt(1 / T.sum(adjacency, dim=1))
    degree[degree == float("inf")] = 0
    degree = T.diag(degree).to_sparse()
    adjacency = degree @ adjacency @ degree
    return trained(T, convolutions(T, T.spmm), (features.to_sparse(), adjacency.to_sparse()), labels)


def old_gcn(T):
    """A graph convolution network with the names of older programs."""
    features, edges, labels = graph(T)
    n = len(labels)
    counts = np.zeros((n, n), np.float32)
    np.add.at(counts, tuple(edges.T), 1)
    counts = counts + np.eye(n)
    row, column = np.nonzero(counts)
    data = (counts / counts.sum(1, keepdims=True))[row, column].astype(np.float64)
    indices = T.from_numpy(np.vstack((row, column)).astype(np.int32)).long()
    adjacency = T.sparse.DoubleTensor(indices, T.from_numpy(data), T.Size((n, n)))
    return trained(T, convolutions(T, T.spmm), (features, adjacency), labels)


def gat(T):
    """A graph attention network, masked by the adjacency that a sparse tensor of edges becomes."""
    nn = T.nn

    class Layer(nn.Module):
        def __init__(self, inputs, outputs, heads):
            super().__init__()
            self.heads, self.hidden = heads, outputs
            self.W = nn.Parameter(T.empty(size=(inputs, outputs * heads), dtype=T.float64))
            self.a = nn.Parameter(T.empty(size=(heads, 2 * outputs, 1), dtype=T.float64))

        def forward(self, h, adjacency):
            n = h.shape[0]
            h = T.mm(h, self.W).view(n, self.heads, self.hidden).permute(1, 0, 2)
            e = T.matmul(h, self.a[:, : self.hidden, :]) + T.matmul(h, self.a[:, self.hidden :, :]).mT
            e = nn.functional.leaky_relu(e, 0.2)
            e = T.where(adjacency > 0, e, -9e16 * T.ones_like(e))
            return T.matmul(nn.functional.softmax(e, dim=-1), h).mean(dim=0)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(5, 6, 2), Layer(6, 3, 1)

        def forward(self, x, adjacency):
            x = nn.functional.elu(self.first(x, adjacency))
            return nn.functional.log_softmax(self.second(x, adjacency), dim=1)

    features, edges, labels = graph(T)
    n = len(labels)
    adjacency = T.eye(n) + T.sparse_coo_tensor(edges.T, T.ones(len(edges)), (n, n), dtype=T.int64)
    return trained(T, fill(T, Network()), (features, adjacency), labels)


def sparse_gat(T):
    """Attention over the edges alone: a softmax of scores that are the values of a sparse tensor."""
    features, edges, labels = graph(T)
    n = len(labels)
    indices = T.tensor(np.unique(np.concatenate([edges, np.stack([np.arange(n)] * 2, 1)]), axis=0).T.astype(np.int64))
    w, a = (numbers(T, 5, 3) / 3).requires_grad_(), (numbers(T, 6) / 3).requires_grad_()
    h = features @ w
    scores = T.nn.functional.leaky_relu(T.cat([h[indices[0]], h[indices[1]]], 1) @ a, 0.2)
    attention = T.sparse.softmax(T.sparse_coo_tensor(indices, scores, (n, n)), dim=1)
    out = T.nn.functional.log_softmax(T.sparse.mm(attention, h), dim=1)
    T.nn.functional.nll_loss(out, labels).backward()
    return [out.detach(), w.grad, a.grad]


SCRIPTS = {"gcn": gcn, "old gcn": old_gcn, "gat": gat, "sparse gat": sparse_gat}
CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "operation": OPERATIONS,
        "gradient": GRADIENTS,
        "training": TRAINING,
        "script": SCRIPTS,
    }.items()
    for name, case in cases.items()
}


def facts(T, value):
    """Returns a result as what JSON holds."""
    if isinstance(value, list | tuple):
        return [facts(T, v) for v in value]
    if isinstance(value, str):
        return value.replace("torch.", "plait.")
    d = value.detach()
    out = {"shape": list(d.shape), "dtype": str(d.dtype).rsplit(".", 1)[-1], "layout": str(d.layout).rsplit(".", 1)[-1]}
    if d.is_sparse_csr:
        out |= {"crow": d.crow_indices().tolist(), "col": d.col_indices().tolist(), "values": d.values().tolist()}
    elif d.is_sparse:
        out |= {"indices": d._indices().tolist(), "values": d._values().tolist()}
    else:
        out["values"] = d.tolist()
    return out
