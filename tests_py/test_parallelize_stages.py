"""Pipelines and divided layers of `plait.parallelize`: what layers share, hand over and refuse."""

import copy
import math

import plait
import pytest
from laid import on_ranks, raises, whole
from plait import distributed as dist
from plait import nn
from plait.distributed.tensor import Shard, distribute_tensor
from plait.distributed.tensor.experimental import implicit_replication
from plait.nn import functional as F
from plait.nn.utils import clip_grad_norm_


class Twice(nn.Module):
    """A layer of a Sequential that takes and returns a pair."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, pair):
        x, y = pair
        return self.a(x).tanh(), self.b(y) + x


class Joined(nn.Module):
    def forward(self, pair):
        return pair[0] + pair[1]


class Pair(nn.Module):
    def forward(self, x):
        return x, x.sin()


def test_layers_of_a_sequential_hand_over_pairs():
    plait.manual_seed(1)
    alone = nn.Sequential(Pair(), Twice(), Twice(), Twice(), Joined()).double()
    start = copy.deepcopy(alone)
    x = plait.arange(24.0).double().reshape(6, 4).cos()
    F.mse_loss(alone(x), x).backward()

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("pp",))
        m = plait.parallelize(copy.deepcopy(start), mesh, pp={"sizes": [2, 3], "micro_batches": 3}, loss_fn=F.mse_loss)
        m.step(x, target=x)
        want = dict(alone.named_parameters())
        for name, p in m.named_parameters():
            assert plait.allclose(p.grad, want[name].grad, rtol=1e-10, atol=1e-12), name
        assert plait.allclose(m(x), alone(x))

    on_ranks(2, fn)


def layer():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh())


class Chain(nn.Module):
    """Layers in a row, which `change` may tie."""

    def __init__(self, depth, change=lambda layers: None):
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(depth))
        change(self.layers)

    def forward(self, x):
        for each in self.layers:
            x = each(x)
        return x


def tie(*pairs):
    def change(layers):
        for a, b in pairs:
            layers[b][0].weight = layers[a][0].weight

    return lambda: Chain(5, change)


def one_layer_thrice():
    def change(layers):
        layers[2] = layers[4] = layers[0]

    return Chain(5, change)


def one_activation():
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8), act)


@pytest.mark.parametrize(
    "sizes", [{"pp": 2}, {"pp": 3}, {"fsdp": 2}, {"pp": 2, "fsdp": 2}, {"pp": 2, "dp": 2}], ids=str
)
@pytest.mark.parametrize("build", [tie((0, 4), (1, 3)), tie((0, 2), (0, 4), (1, 3)), one_layer_thrice, one_activation])
def test_what_layers_share(build, sizes):
    """Weights tied in another order than that of the layers, between units and stages, and layers in several places."""
    plait.manual_seed(0)
    start = build().double()
    alone = copy.deepcopy(start)
    x = plait.arange(16 * 8.0).double().reshape(16, 8).sin()
    y = x.cos()
    for step in range(2):
        F.mse_loss(alone(x + step), y).backward()
    want = dict(alone.named_parameters(remove_duplicate=False))

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        options = {"pp": {"layers": ["layers.*"]}} if "pp" in sizes and isinstance(start, Chain) else {}
        m = plait.parallelize(copy.deepcopy(start), mesh, loss_fn=F.mse_loss, **options)
        for sync in (False, True):
            m.set_requires_gradient_sync(sync)
            n, at = m.data_parallel_size, m.data_parallel_rank
            m.step((x + sync).chunk(n)[at], target=y.chunk(n)[at])
        for name, p in m.named_parameters():
            assert plait.allclose(whole(p.grad), want[name].grad, rtol=1e-9, atol=1e-12), name

    on_ranks(math.prod(sizes.values()), fn)


def laid_chain(sizes, body, build=lambda: Chain(2), **options):
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        plait.manual_seed(0)
        return body(plait.parallelize(build(), mesh, **{"loss_fn": F.mse_loss, **options}), rank)

    return on_ranks(math.prod(sizes.values()), fn)


def test_stages_skip_a_step_together():
    """A gradient that is not finite is on one stage alone."""

    def body(m, rank):
        optimizer = plait.optim.SGD(m.parameters(), lr=1.0)
        scaler = plait.amp.GradScaler("cpu", init_scale=4.0)
        x = plait.ones(4, 8)
        for bad in (True, False):
            before = [p.detach().clone() for p in m.parameters()]
            optimizer.zero_grad()
            m.step(x, target=x, scaler=scaler)
            if bad and rank == 0:
                m.layers[0][0].bias.grad[0] = math.inf
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0
            assert bad == all(plait.equal(a, b) for a, b in zip(before, m.parameters(), strict=True))

    laid_chain({"pp": 2}, body, pp={"layers": ["layers.*"]})


def test_outputs_of_any_form_come_to_all_stages():
    class Last(nn.Module):
        def forward(self, x):
            return {"x": x, "none": None, "pair": [x * 2, (x.sum(1).long(),)]}

    def build():
        m = Chain(1)
        m.layers.append(Last())
        return m

    def body(m, rank):
        x = plait.arange(40.0).reshape(5, 8)
        out = m(x)
        assert list(out) == ["x", "none", "pair"] and out["none"] is None
        assert plait.equal(out["pair"][0], out["x"] * 2) and out["pair"][1][0].dtype == plait.int64
        return out["x"]

    first, second = laid_chain({"pp": 2}, body, build, pp={"layers": ["layers.*"]})
    assert plait.equal(first, second) and first.shape == (5, 8)


def test_what_a_pipeline_refuses():
    x = plait.ones(8, 8)

    def body(m, rank):
        with pytest.raises(ValueError, match="got 8 samples and targets of 5"):
            m.step(x, target=x[:5])
        with pytest.raises(ValueError, match="without samples"):
            m(x[:0])
        part = x[: 6 + rank]
        with pytest.raises(plait.DistributedError, match="rank 0 6 samples, rank 1 7; all want the same part"):
            m.step(part, target=part)
        m.register_forward_hook(lambda *_: None)
        with pytest.raises(RuntimeError, match="hooks of ParallelChain itself do not run in a pipeline"):
            m.step(x, target=x)

    # A loss that is a sum over features, so that micro-batches of other sizes meet without an error of their own.
    laid_chain({"pp": 2}, body, pp={"layers": ["layers.*"]}, loss_fn=lambda a, b: (a.sum() - b.sum()).square())

    class Residual(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    def residual():
        return Residual(nn.Linear(8, 8), nn.Linear(8, 8))

    raises(TypeError, "Residual is a Sequential with a forward of its own", names=("pp",), model=residual)
    for names in (("pp",), ("dp",), ("fsdp",)):
        raises(
            ValueError,
            "want a loss_fn that is a mean",
            names=names,
            model=residual,
            loss_fn=nn.MSELoss(reduction="sum"),
        )

    def one_block():
        m = Chain(1)
        m.layers.append(m.layers[0])
        return m

    options = {"pp": {"layers": ["layers.*.*"]}}
    raises(ValueError, "are one layer of a module .* in several places", names=("pp",), model=one_block, **options)


@pytest.mark.parametrize("order", [2.0, math.inf, -math.inf])
def test_norms_of_stages_without_gradients_and_of_other_dtypes(order):
    def build():
        m = Chain(2)
        m.layers[1].requires_grad_(False)
        return m

    plait.manual_seed(0)
    alone = build()
    x = plait.ones(4, 8)
    F.mse_loss(alone(x), x).backward()
    want = clip_grad_norm_(alone.parameters(), 1e-3, order).item()
    grads = {n: p.grad for n, p in alone.named_parameters()}

    def body(m, rank):
        m.step(x, target=x)
        assert m.clip_grad_norm_(1e-3, order).item() == pytest.approx(want, rel=1e-5)
        for name, p in m.named_parameters():
            assert p.grad is None if rank else plait.allclose(p.grad, grads[name], rtol=1e-4)

    laid_chain({"pp": 2}, body, build, pp={"layers": ["layers.*"]})

    class Cast(nn.Module):
        def forward(self, x):
            return x.bfloat16()

    def mixed():
        m = Chain(2)
        m.layers[1] = nn.Sequential(Cast(), layer().bfloat16())
        return m

    def norms(m, rank):
        m.step(x, target=x.bfloat16())
        return m.clip_grad_norm_(1.0, order).item()

    a, b = laid_chain({"pp": 2}, norms, mixed, pp={"layers": ["layers.*"]})
    assert a == b


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, lambda n: nn.InstanceNorm1d(n, track_running_stats=True)])
def test_running_statistics_of_divided_channels(norm):
    x = plait.arange(4 * 6 * 5.0).double().reshape(4, 6, 5).sin()
    alone = norm(6).double()
    want = alone(x)

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,))
        for dim in range(3):
            m = norm(6).double()
            with implicit_replication():
                out = m(distribute_tensor(x, mesh, [Shard(dim)]))
            assert plait.allclose(whole(out), want)
            for name, value in m.state_dict().items():
                assert plait.allclose(value, alone.state_dict()[name]), (dim, name)

    on_ranks(2, fn)


@pytest.mark.parametrize("sequence", [False, True])
def test_second_derivatives_and_hooks_of_divided_layers(sequence):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)

        def forward(self, x):
            return x + self.down(self.up(input=self.norm(x)).tanh())

    plait.manual_seed(0)
    start = nn.Sequential(Block(), Block()).double()
    x = plait.arange(4 * 6 * 8.0).double().reshape(4, 6, 8).sin()

    def run(m):
        def double(module, inputs, named):
            named["input"].register_hook(lambda g: 2 * g)

        for each in m:
            each.up.register_forward_pre_hook(double, with_kwargs=True)
        a = x.clone().requires_grad_()
        y = m(a)
        (g,) = plait.autograd.grad(y.sin().sum(), a, create_graph=True)
        (g.square().sum() + y.sum()).backward()
        return g, a.grad, {n: whole(p.grad) for n, p in m.named_parameters()}

    first, second, grads = run(copy.deepcopy(start))

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        m = plait.parallelize(copy.deepcopy(start), mesh, tp={"sequence": sequence})
        a, b, c = run(m)
        assert plait.allclose(a, first, rtol=1e-9) and plait.allclose(b, second, rtol=1e-9)
        for name, g in c.items():
            assert plait.allclose(g, grads[name], rtol=1e-9, atol=1e-12), name

    on_ranks(2, fn)
