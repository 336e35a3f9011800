"""Functions and hooks of programs that meet distributed tensors, and other ways in which layers are called."""

import copy

import plait
import pytest
from laid import LAYERS, batch, compare, loss_of, made, optimizer_of, train_alone
from plait import distributed as dist
from plait import nn
from plait.autograd.graph import saved_tensors_hooks
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from plait.nn import functional as F
from plait.utils.checkpoint import checkpoint
from ranks import on_one_device as on_ranks


class Cube(plait.autograd.Function):
    """Two outputs, of which one is saved, and an input that is no tensor."""

    @staticmethod
    def forward(ctx, x, factor):
        y = x * x * x
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return y * factor, y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        assert type(g) is type(h) is type(x)
        assert plait.allclose(x * x * x, y)
        return 3 * x * x * (g * ctx.factor + h), None


@pytest.mark.parametrize("placed", [[Shard(0)], [Shard(1)], [Replicate()]])
def test_custom_functions(placed):
    whole = plait.arange(15.0).double().reshape(5, 3) / 7
    alone = whole.clone().requires_grad_()
    a, b = Cube.apply(alone, 2.0)
    (a.sin() + 3 * b).sum().backward()
    alone2 = whole.clone().requires_grad_()
    Cube.apply(alone2, 2.0)[0].cos().sum().backward()  # the second output's gradient is zeros

    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        x = distribute_tensor(whole, mesh, placed).requires_grad_()
        a, b = Cube.apply(x, 2.0)
        assert a.placements == b.placements == x.placements and a.requires_grad
        (a.sin() + 3 * b).sum().backward()
        assert x.grad.placements == tuple(placed)
        assert plait.allclose(x.grad.full_tensor(), alone.grad)
        x.grad = None
        Cube.apply(x, 2.0)[0].cos().sum().backward()
        assert plait.allclose(x.grad.full_tensor(), alone2.grad)
        (g,) = plait.autograd.grad(Cube.apply(x, 2.0)[0].sum(), x, create_graph=True)
        (g2,) = plait.autograd.grad(g.sum(), x)
        assert plait.allclose(g2.full_tensor(), 12 * whole)

    on_ranks(3, fn)


@pytest.mark.parametrize("placed", [[Shard(0)], [Partial()], [Replicate()]])
def test_what_custom_functions_save_is_packed(placed):
    whole = plait.arange(15.0).double().reshape(5, 3) / 7
    alone = whole.clone().requires_grad_()
    sum(y.sin().sum() for y in Cube.apply(alone, 2.0)).backward(create_graph=True)
    (want,) = plait.autograd.grad(alone.grad.sum(), alone)

    def fn(rank):
        def loss(x):
            return sum(y.sin().sum() for y in Cube.apply(x, 2.0))

        mesh = init_device_mesh("cpu", (3,))
        x = distribute_tensor(whole, mesh, placed).requires_grad_()
        checkpoint(loss, x, use_reentrant=False).backward()
        assert plait.allclose(x.grad.full_tensor(), alone.grad)
        x.grad, kept = None, []
        with saved_tensors_hooks(lambda t: kept.append(t) or len(kept) - 1, lambda i: kept[i].clone()):
            made = loss(x)
        made.backward()
        assert any(isinstance(t, DTensor) for t in kept)
        assert plait.allclose(x.grad.full_tensor(), alone.grad)
        elsewhere = [Replicate()]
        moved = saved_tensors_hooks(
            lambda t: t, lambda t: t.redistribute(placements=elsewhere) if isinstance(t, DTensor) else t
        )
        with moved:
            made = loss(x)
        x.grad = None
        made.backward(create_graph=True)
        (second,) = plait.autograd.grad(x.grad.sum(), x)
        assert plait.allclose(second.full_tensor(), want)
        with saved_tensors_hooks(lambda t: t, lambda t: getattr(t, "to_local", lambda: t)()):
            made = loss(x)
        with pytest.raises(TypeError, match="unpack_hook returned"):
            made.backward()

    on_ranks(3, fn)


def test_what_custom_functions_return():
    class Wrong(plait.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return plait.ones(4)

    class InPlace(plait.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Moved(plait.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return (g * 2).redistribute(placements=[Replicate()])

    def fn(rank):
        x = distribute_tensor(plait.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)]).requires_grad_()
        with pytest.raises(TypeError, match="WrongBackward: want a distributed tensor or None, got Tensor"):
            Wrong.apply(x).sum().backward()
        with pytest.raises(NotImplementedError, match="InPlace: it changes a distributed tensor in place"):
            InPlace.apply(x * 1)
        Moved.apply(x).sum().backward()  # a gradient that lies otherwise is moved
        assert x.grad.placements == (Shard(0),)
        assert x.grad.full_tensor().tolist() == [2.0] * 4
        pending = DTensor.from_local(plait.ones(3, requires_grad=True), x.device_mesh, [Partial()])
        out, _ = Cube.apply(pending.redistribute(placements=[Replicate()]), 1.0)
        assert out.full_tensor().tolist() == [8.0] * 3

    on_ranks(2, fn)


def watched(m, change):
    """Registers hooks before and after the layers' backward; returns what they see."""
    seen = []

    def whole(g):
        return None if g is None else (g.full_tensor() if isinstance(g, DTensor) else g).clone()

    def before(module, grads):
        seen.append(("before", type(module).__name__, [whole(g) for g in grads]))
        return tuple(g * change for g in grads)

    def after(module, grads, outputs):
        seen.append(("after", type(module).__name__, [whole(g) for g in (*grads, *outputs)]))
        return tuple(None if g is None else g * change for g in grads)

    for layer in m:
        layer.register_full_backward_pre_hook(before)
        layer.register_full_backward_hook(after)
    return seen


@pytest.mark.parametrize("placed", [[Shard(0)], [Replicate()]])
def test_backward_hooks_of_modules(placed):
    plait.manual_seed(0)
    start = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    whole = plait.randn(5, 4).double()
    alone, x = copy.deepcopy(start), whole.clone().requires_grad_()
    want = watched(alone, 1.5)
    alone(x).square().sum().backward()

    def fn(rank):
        mesh = init_device_mesh("cpu", (3,))
        m = distribute_module(copy.deepcopy(start), mesh)
        seen = watched(m, 1.5)
        d = distribute_tensor(whole, mesh, placed).requires_grad_()
        m(d).square().sum().backward()
        assert len(seen) == len(want) == 6
        for (when, name, grads), (w_when, w_name, w_grads) in zip(seen, want, strict=True):
            assert (when, name) == (w_when, w_name)
            assert all(plait.allclose(g, w) for g, w in zip(grads, w_grads, strict=True))
        assert plait.allclose(d.grad.full_tensor(), x.grad)
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert plait.allclose(p.grad.full_tensor(), q.grad)

    on_ranks(3, fn)


def test_backward_hooks_of_divided_layers():
    """The gradient of an output that is a rank's part is its part of the gradient, as in PyTorch."""
    plait.manual_seed(0)
    start = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    whole = plait.randn(5, 4).double()
    alone = copy.deepcopy(start)
    want = []
    alone[0].register_full_backward_hook(lambda _m, _i, out: want.append(out[0]))
    alone(whole.clone().requires_grad_()).square().sum().backward()

    def fn(rank):
        m = copy.deepcopy(start)
        parallelize_module(m, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        seen = []
        m[0].register_full_backward_hook(lambda _m, _i, out: seen.append(out[0]))
        m(whole.clone().requires_grad_()).square().sum().backward()
        assert plait.allclose(seen[0], want[0].chunk(2, 1)[rank])
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert plait.allclose(p.grad.full_tensor(), q.grad)

    on_ranks(2, fn)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_of_a_divided_sequence(reentrant):
    plait.manual_seed(0)
    start = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 8), nn.Dropout(0.0), nn.Tanh(), nn.Linear(8, 4)).double()
    whole = plait.randn(2, 5, 4).double()
    alone, x = copy.deepcopy(start), whole.clone().requires_grad_()
    alone(x).square().sum().backward()
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "4": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        m = parallelize_module(copy.deepcopy(start), mesh, plan)
        d = distribute_tensor(whole, mesh, [Shard(1)]).requires_grad_()
        out = checkpoint(m, d, use_reentrant=reentrant)
        assert out.placements == (Shard(1),)
        out.square().sum().backward()
        assert d.grad.placements == (Shard(1),)
        assert plait.allclose(d.grad.full_tensor(), x.grad)
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert plait.allclose(p.grad.full_tensor(), q.grad)

    on_ranks(2, fn)


@pytest.mark.parametrize("sizes", [{"tp": 2}, {"fsdp": 2, "tp": 2}])
def test_reentrant_checkpoints_of_a_laid_model(sizes):
    def checkpointed(m):
        for block in m.blocks:
            inner = block.forward
            block.forward = lambda x, inner=inner: checkpoint(inner, x, use_reentrant=True)
        return m

    alone = made()
    optimizer = optimizer_of(alone)
    start = copy.deepcopy(alone)
    train_alone(alone, optimizer, range(2))

    def fn(rank):
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        options = {"tp": {"sequence": True}}
        m = plait.parallelize(checkpointed(copy.deepcopy(start)), mesh, loss_fn=loss_of, **options)
        own = optimizer_of(m)
        for step in range(2):
            x, y = (t.chunk(m.data_parallel_size)[m.data_parallel_rank] for t in batch(step))
            own.zero_grad()
            m.step(x, target=y)
            m.clip_grad_norm_(0.5)
            own.step()
        compare(m, alone)

    on_ranks(2 * len(sizes), fn)


@pytest.mark.parametrize("style", [ColwiseParallel, RowwiseParallel])
@pytest.mark.parametrize(("ranks", "norm"), [(2, 2.0), (3, 1.0), (2, float("inf"))])
def test_embeddings_with_a_largest_norm(style, ranks, norm):
    plait.manual_seed(0)
    start = nn.Embedding(7, 5, max_norm=1.0, norm_type=norm).double()
    codes = plait.tensor([[1, 2, 5], [6, 2, 0]])
    alone = copy.deepcopy(start)
    want = alone(codes)
    want.square().sum().backward()

    def fn(rank):
        e = copy.deepcopy(start)
        parallelize_module(e, init_device_mesh("cpu", (ranks,)), style(output_layouts=Replicate()))
        out = e(codes)
        assert plait.allclose(out, want, rtol=1e-6)
        assert plait.allclose(e.weight.full_tensor(), alone.weight, rtol=1e-6)  # rows that are not used stay
        out.square().sum().backward()
        assert plait.allclose(e.weight.grad.full_tensor(), alone.weight.grad, rtol=1e-6)

    on_ranks(ranks, fn)


@pytest.mark.parametrize("names", [("pp",), ("fsdp",), ("tp",)])
def test_a_loss_that_is_a_tuple_is_refused(names):
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=names)
        m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        options = {"tp": {"plan": {"0": ColwiseParallel(), "1": RowwiseParallel()}}} if names == ("tp",) else {}
        m = plait.parallelize(m, mesh, loss_fn=lambda out, y: (F.mse_loss(out, y), out.sum()), **options)
        with pytest.raises((TypeError, plait.DistributedError), match="want a loss_fn that returns a tensor, the loss"):
            m.step(plait.ones(4, 4), target=plait.ones(4, 4))

    on_ranks(2, fn)


@pytest.mark.parametrize("sizes", [{"fsdp": 3}, {"fsdp": 2, "tp": 2}, {"pp": 2, "fsdp": 2}, {"dp": 2, "fsdp": 2}])
def test_where_parallelize_shards(sizes):
    alone = made()
    optimizer = optimizer_of(alone)
    start = copy.deepcopy(alone)
    train_alone(alone, optimizer, range(2))

    def fn(rank):
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        options = {"pp": {"layers": LAYERS, "micro_batches": 2}} if "pp" in sizes else {}
        sharding = {"shard_placement_fn": lambda p: Shard(1) if p.dim() > 1 else None}
        m = plait.parallelize(copy.deepcopy(start), mesh, fsdp=sharding, loss_fn=loss_of, **options)
        matrices = [p for p in m.parameters() if p.dim() > 1]
        assert matrices
        at = mesh.mesh_dim_names.index("fsdp") - ("pp" in sizes)
        assert all(p.placements[at].dim == 1 for p in matrices)
        own = optimizer_of(m)
        n, rows = m.data_parallel_size, m.data_parallel_rank
        for step in range(2):
            x, y = batch(step)
            # Three parts of eight rows average otherwise: every rank has the whole.
            part = (x, y) if n == 3 else (x.chunk(n)[rows], y.chunk(n)[rows])
            own.zero_grad()
            m.step(part[0], target=part[1])
            m.clip_grad_norm_(0.5)
            own.step()
        compare(m, alone)
        dist.barrier()

    on_ranks(2 ** len(sizes) if sizes != {"fsdp": 3} else 3, fn)


class Conv1D(nn.Module):
    """A Linear whose weight is the transpose, as in transformers' GPT-2."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(plait.randn(nx, nf)), nn.Parameter(plait.randn(nf))

    def forward(self, x):
        return plait.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view((*x.size()[:-1], self.nf))


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_layers_in_pieces_by_keyword(pieces):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_fc, self.c_proj, self.last = Conv1D(8, 4), Conv1D(4, 8), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(input=self.c_proj(x=self.c_fc(x=x).relu()))

    plait.manual_seed(0)
    start = Block().double()
    alone, x = copy.deepcopy(start), plait.randn(4, 3, 4).double()
    want = alone(x)
    want.square().sum().backward()

    def fn(rank):
        m = copy.deepcopy(start)
        plan = {
            "c_fc": ColwiseParallel(pieces=pieces),
            "c_proj": RowwiseParallel(pieces=pieces),
            "last": ColwiseParallel(output_layouts=Replicate(), pieces=pieces),
        }
        parallelize_module(m, init_device_mesh("cpu", (2,)), plan)
        out = m(x)
        assert plait.allclose(out, want)
        out.square().sum().backward()
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert plait.allclose(p.grad.full_tensor(), q.grad)
        if pieces > 1:
            with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
                m.c_fc(y=x)
            with pytest.raises(TypeError, match="positional argument"):
                m.c_fc(x, x)

    on_ranks(2, fn)


@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Replicate()])
def test_embeddings_that_count_how_often_rows_are_used(placement):
    """The ranks have different indices, and each row's gradient is divided by how many of all name it."""

    def rank(_):
        mesh = init_device_mesh("cpu", (2,))
        weight = distribute_tensor(plait.ones(2, 2), mesh, [placement]).requires_grad_()
        index = distribute_tensor(plait.tensor([0, 1, 1, 1]), mesh, [Shard(0)])
        F.embedding(index, weight, scale_grad_by_freq=True).sum().backward()
        assert weight.grad.full_tensor().tolist() == [[1.0, 1.0], [1.0, 1.0]]

    dist.spawn(rank, nprocs=2)


@pytest.mark.parametrize("distributed", [False, True])
def test_layers_see_what_an_input_has_become(distributed):
    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        layer = parallelize_module(
            nn.Sequential(nn.Linear(3, 4)), mesh, {"0": ColwiseParallel(output_layouts=Replicate())}
        )
        weight, bias = (p.full_tensor().detach() for p in layer.parameters())
        x = distribute_tensor(plait.ones(2, 3), mesh, [Replicate()]) if distributed else plait.ones(2, 3)
        layer(x)
        x.data = x * 2
        assert plait.allclose(layer(x), F.linear(plait.full((2, 3), 2.0), weight, bias))
        (x.to_local() if distributed else x).numpy()[:] = 5
        assert plait.allclose(layer(x), F.linear(plait.full((2, 3), 5.0), weight, bias))

    on_ranks(2, fn)
