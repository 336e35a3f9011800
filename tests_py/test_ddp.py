"""DistributedDataParallel trains as one device does on the joined batch."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.nn import functional as collectives
from plait.nn.parallel import DistributedDataParallel, asynchronous, bounded_staleness
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks
from replicas import N, assert_close, batch, model, one_device, part, values


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket_cap_mb": 0.0001},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"delay_all_reduce": True},
    ],
    ids=str,
)
def test_case14_ddp_parity(options):
    def fn(rank):
        m = DistributedDataParallel(model(), **options)
        x, y = part(rank)
        opt = plait.optim.Adam(m.parameters(), lr=0.05)
        for _ in range(4):
            opt.zero_grad()
            nn.functional.mse_loss(m(x), y).backward()
            opt.step()
        return values(m)

    results = on_ranks(N, fn)
    assert_close(results[0], one_device())
    for other in results[1:]:  # case 15: the same bits on every rank
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


def test_weighted_by_uneven_batches():
    cuts = [0, 1, 4, 12]

    def fn(rank):
        m = DistributedDataParallel(model(), weighted=True)
        x, y = part(rank, cuts=cuts)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            nn.functional.mse_loss(m(x), y).backward()
            opt.step()
        return values(m)

    assert_close(on_ranks(N, fn)[0], one_device(3, make=lambda p: plait.optim.SGD(p, lr=0.1)))


def test_weighted_by_another_dimension():
    cuts = [0, 1, 4, 12]

    class Across(nn.Sequential):
        def forward(self, x):
            return super().forward(x.T)

    def fn(rank):
        m = DistributedDataParallel(Across(*model()), dim=1, weighted=True)
        x, y = part(rank, cuts=cuts)
        nn.functional.mse_loss(m(x.T), y).backward()
        return [p.grad.numpy().copy() for p in m.parameters()]

    m, (x, y) = model(), batch()
    nn.functional.mse_loss(m(x), y).backward()
    assert_close(on_ranks(N, fn)[0], [p.grad.numpy() for p in m.parameters()])


def test_case16_sizes_of_buckets():
    def fn(rank):
        counts = []
        for size in (None, 1e-4, 1e-9):  # of 16 + 128 bytes, and 64 + 384
            m = DistributedDataParallel(model(), bucket_cap_mb=size)
            x, y = part(rank)
            nn.functional.mse_loss(m(x), y).backward()
            counts.append(m.statistics()["buckets"])
        return counts

    assert on_ranks(2, fn)[0] == [1, 2, 4]


def test_case22_buffers_and_sync_batch_norm():
    plait.manual_seed(0)
    x = plait.randn(9, 4, 3, dtype=plait.float64)
    cuts = [0, 2, 5, 9]

    def fn(rank):
        bn = nn.BatchNorm1d(4).to(plait.float64)
        m = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(bn)), weighted=True)
        assert isinstance(m.module[0], nn.SyncBatchNorm)
        mine = x[cuts[rank] : cuts[rank + 1]].to(f"cpu:{rank}")
        y = m(mine)
        (y**2 * (1 + plait.arange(3.0, dtype=plait.float64))).mean().backward()
        return y.detach().numpy().copy(), m.module[0].weight.grad.numpy().copy(), m.module[0].running_var.numpy().copy()

    bn = nn.BatchNorm1d(4).to(plait.float64)
    y = bn(x)
    (y**2 * (1 + plait.arange(3.0, dtype=plait.float64))).mean().backward()
    results = on_ranks(N, fn)
    np.testing.assert_allclose(np.concatenate([r[0] for r in results]), y.detach().numpy(), rtol=1e-9)
    for _, grad, var in results:
        np.testing.assert_allclose(grad, bn.weight.grad.numpy(), rtol=1e-9)
        np.testing.assert_allclose(var, bn.running_var.numpy(), rtol=1e-9)


def test_case25_models_that_differ():
    def fn(rank):
        return DistributedDataParallel(nn.Linear(3 + (rank == 1), 2))

    with pytest.raises(plait.DistributedError, match="weight"):
        on_ranks(N, fn)


def test_case27_state_dicts():
    def fn(rank):
        m = DistributedDataParallel(model())
        state = m.state_dict()
        assert all(k.startswith("module.") for k in state)
        inner = {k.removeprefix("module."): v * 0 + 1 for k, v in state.items()}
        m.load_state_dict(inner)
        assert all((p == 1).all().item() for p in m.parameters())
        m.load_state_dict(state)
        m.module.load_state_dict(inner)

    on_ranks(2, fn)


def test_case16_delayed_parameters():
    """Gradients that are averaged after all others are the same averages."""

    def fn(rank):
        m = model()
        last = m[0].weight  # backward comes to it at the end
        many = DistributedDataParallel(
            m,
            delay_all_reduce_named_params=[(n, p) for n, p in m.named_parameters() if p is not last],
            param_to_hook_all_reduce=last,
        )
        x, y = part(rank)
        nn.functional.mse_loss(many(x), y).backward()
        return [p.grad.numpy().copy() for p in m.parameters()]

    m, (x, y) = model(), batch()
    nn.functional.mse_loss(m(x), y).backward()
    for grads in on_ranks(N, fn):
        assert_close(grads, [p.grad.numpy() for p in m.parameters()])


def test_device_ids_move_inputs():
    def fn(rank):
        here = f"cpu:{rank}"
        many = DistributedDataParallel(model().to(here), device_ids=[here], output_device="cpu:2")
        x, y = batch()
        out = many(x)  # from cpu:0
        nn.functional.mse_loss(out, y.to("cpu:2")).backward()
        return str(out.device), [p.grad.numpy().copy() for p in many.parameters()]

    for where, grads in on_ranks(N, fn):
        assert where == "cpu:2"
        assert len(grads) == 4


def test_a_module_is_its_own_again():
    """When the wrapper goes, the module's gradients are no longer averaged."""

    def fn(rank):
        many = DistributedDataParallel(model())
        x, y = part(rank)
        nn.functional.mse_loss(many(x), y).backward()
        m = many.module
        del many
        m.zero_grad()
        if rank == 0:  # on no other rank
            nn.functional.mse_loss(m(x), y).backward()

    on_ranks(N, fn)


def test_ddp_arguments():
    def fn(rank):
        frozen = nn.Linear(2, 2).requires_grad_(False)
        with pytest.raises(RuntimeError, match="requires a gradient"):
            DistributedDataParallel(frozen)
        with pytest.raises(ValueError, match="one device"):
            DistributedDataParallel(model(), device_ids=[0, 1])
        with pytest.raises(RuntimeError, match="shape yet"):
            DistributedDataParallel(nn.LazyLinear(3))
        with pytest.raises(TypeError, match="mixed_precision"):
            DistributedDataParallel(model(), mixed_precision="bf16")
        with pytest.raises(ValueError, match="device_ids"):
            DistributedDataParallel(model().to(f"cpu:{rank}"), device_ids=["cpu:7"])
        with pytest.raises(ValueError, match="want one another"):
            DistributedDataParallel(model(), param_to_hook_all_reduce=nn.Parameter(plait.ones(1)))
        for wrong in (
            {"device_ids": "cpu:0"},
            {"bucket_cap_mb": "1"},
            {"delay_all_reduce_named_params": model().parameters()},
        ):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                DistributedDataParallel(model(), **wrong)
        with pytest.raises(TypeError, match="want a module"):
            DistributedDataParallel(3)
        with pytest.raises(ValueError, match="bucket_cap_mb"):
            DistributedDataParallel(model(), bucket_cap_mb=0)

    on_ranks(2, fn)
    with pytest.raises(ValueError, match="init_process_group"):
        DistributedDataParallel(model())


def test_sync_modes():
    def train(mode):
        def fn(rank):
            m = DistributedDataParallel(model())
            x, y = part(rank)
            opt = plait.optim.SGD(m.parameters(), lr=0.05)
            m.set_sync_mode(mode, opt)
            first = None
            for _ in range(8):
                opt.zero_grad()
                loss = nn.functional.mse_loss(m(x), y)
                first = loss.item() if first is None else first
                loss.backward()
                m.step()
            clocks, staleness = m.clocks(), m.staleness()
            m.set_sync_mode("synchronous", opt)
            return values(m), first, nn.functional.mse_loss(m(x), y).item(), clocks[rank], staleness

        return on_ranks(N, fn)

    want = one_device(8, make=lambda p: plait.optim.SGD(p, lr=0.05))
    for result, *_ in train(bounded_staleness(0)):
        assert_close(result, want)
    for mode in (bounded_staleness(2), asynchronous):
        for _, first, last, clock, staleness in train(mode):
            assert last < first
            assert clock == 8
            assert mode is asynchronous or staleness <= 2


class Normed(nn.Module):
    """Two norms, in a part that may be computed again in backward."""

    def __init__(self, again):
        super().__init__()
        plait.manual_seed(0)
        self.again = again
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=False) if self.again else self.body(x))


@pytest.mark.parametrize("rows", [(1, 5, 2), (4, 4, 4), (0, 3, 6)])
@pytest.mark.parametrize("again", [False, True])
def test_weighted_batches_of_synchronised_norms(rows, again):
    """Training on parts of any sizes, with norms over all of them, is training on the joined batch."""

    def train(m, first, last):
        opt = plait.optim.SGD(m.parameters(), lr=0.2, momentum=0.9)
        for step in range(4):
            x = np.random.default_rng(step).standard_normal((sum(rows), 4))[first:last]
            opt.zero_grad()
            loss = nn.functional.mse_loss(m(plait.tensor(x)), plait.tensor(np.sin(x[:, :2])), reduction="sum")
            (loss / max(2 * len(x), 1)).backward()  # the mean of no samples would be no number
            opt.step()
        return [p.detach().numpy().copy() for p in m.parameters()]

    def fn(rank):
        plait.set_default_dtype(plait.float64)
        m = nn.SyncBatchNorm.convert_sync_batchnorm(Normed(again))
        return train(DistributedDataParallel(m, weighted=True), sum(rows[:rank]), sum(rows[: rank + 1]))

    plait.set_default_dtype(plait.float64)
    want = train(Normed(False), 0, sum(rows))
    plait.set_default_dtype(plait.float32)
    for got in on_ranks(3, fn):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_gradients_of_gradients():
    """Those of inputs can be recorded; those of parameters, once averaged, cannot."""

    def penalty(m, x):
        (g,) = plait.autograd.grad(m(x).square().sum(), x, create_graph=True)
        return g.square().sum(1).mean() + m(x).mean()

    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        x.requires_grad = True
        penalty(m, x).backward()
        grads = [p.grad.numpy().copy() for p in m.parameters()]
        with pytest.raises(NotImplementedError, match="cannot be differentiated again"):
            nn.functional.mse_loss(m(x), y).backward(create_graph=True)
        return grads

    m, (x, _) = model(), batch()
    x.requires_grad = True
    penalty(m, x).backward()
    assert_close(on_ranks(N, fn)[0], [p.grad.numpy() for p in m.parameters()])


def test_a_rank_ends_with_the_error_of_its_last_step():
    """The step left the parameters as they were, because the averages did not come, and nobody has asked since."""
    kept = []

    def run(rank):
        dist.init_process_group()
        plait.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        kept.append(model)
        optimizer = plait.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            if rank == 0 and step == 1:
                continue
            optimizer.zero_grad()
            model(plait.ones(1, 2)).sum().backward()
            optimizer.step()

    with pytest.raises(plait.DistributedError, match="rank 0 is gone: it has returned"):
        dist.spawn(run, nprocs=2)


def test_a_gradient_that_one_rank_has_from_passes_without_synchronisation():
    """No rank uses the parameter in the pass that averages; yet all get the average of what has come before."""

    def run(rank):
        model = nn.ParameterList([plait.ones(2), plait.ones(2)])
        model.forward = lambda used: sum(model[i].sum() for i in used)
        ddp = DistributedDataParallel(model, find_unused_parameters=True)
        with ddp.no_sync():
            ddp([0, 1] if rank == 0 else [0]).backward()
        ddp([0]).backward()
        return model[1].grad.tolist()

    assert on_ranks(2, run) == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("what", ["norm", "checkpoint", "collective"])
def test_buckets_become_ready_between_a_graphs_collectives_as_they_do(what):
    """A rank that does not use a parameter has its bucket ready sooner: before the gradient of a norm."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.head, self.extra = (
                nn.Linear(2, 2),
                nn.SyncBatchNorm(2),
                nn.Linear(2, 1),
                nn.Linear(2, 1),
            )

        def forward(self, x):
            y = self.first(x)
            if what == "norm":
                y = self.norm(y)
            elif what == "checkpoint":
                y = checkpoint(self.norm, y, use_reentrant=False)
            else:
                y = collectives.all_reduce(y)
            return self.head(y) + self.extra(y) if dist.get_rank() == 0 else self.head(y)

    def run(rank):
        plait.manual_seed(0)
        model = Model()
        ddp = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=1e-6)
        for _ in range(2):
            ddp(plait.randn(3, 2) + rank).square().sum().backward()
        return [None if p.grad is None else p.grad.tolist() for p in model.parameters()]

    grads, others = on_ranks(2, run)
    assert grads == others
    assert any(g and any(plait.tensor(g).flatten().tolist()) for g in grads)
