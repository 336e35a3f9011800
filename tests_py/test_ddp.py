"""DistributedDataParallel trains as one device does on the joined batch."""

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, topk_hook
from plait.distributed.algorithms.join import Join
from plait.nn.parallel import DistributedDataParallel, asynchronous, bounded_staleness
from plait.nn.parallel.distributed import _MixedPrecision
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks
from replicas import assert_close, batch, model, one_device, values

N = 3


def part(rank, n=12, cuts=None):
    x, y = batch(n)
    cuts = cuts or [n * r // N for r in range(N + 1)]
    here = f"cpu:{rank}"
    return x[cuts[rank] : cuts[rank + 1]].to(here), y[cuts[rank] : cuts[rank + 1]].to(here)


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


def test_case18_no_sync_in_another():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        with m.no_sync():
            with m.no_sync():
                assert not m.require_backward_grad_sync
            assert not m.require_backward_grad_sync
            nn.functional.mse_loss(m(x), y).backward()
            assert m.statistics()["bytes"] == 0
        assert m.require_backward_grad_sync
        nn.functional.mse_loss(m(x), y).backward()
        assert m.statistics()["bytes"] > 0

    on_ranks(2, fn)


def test_case18_no_sync():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        for i in range(2):
            with m.no_sync():
                (nn.functional.mse_loss(m(x[:2]), y[:2]) / 2).backward()
            if i == 0:
                before = m.statistics()["bytes"]
            (nn.functional.mse_loss(m(x[2:]), y[2:]) / 2).backward()
            if i == 0:
                for p in m.parameters():
                    p.grad = None
        return before, [p.grad.numpy().copy() for p in m.parameters()]

    m, (x, y) = model(), batch()
    nn.functional.mse_loss(m(x), y).backward()
    for before, grads in on_ranks(N, fn):
        assert before == 0
        assert_close(grads, [p.grad.numpy() for p in m.parameters()])


def test_case19_join_under_its_other_name():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        with Join([m], divide_by_initial_world_size=False):
            for _ in range(rank + 1):
                opt.zero_grad()
                nn.functional.mse_loss(m(x), y).backward()
                opt.step()
        with pytest.raises(ValueError, match="one DistributedDataParallel, got Linear"):
            Join([nn.Linear(2, 2)])
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


def test_case19_join():
    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(rank)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        with m.join():
            for _ in range(rank + 1):
                opt.zero_grad()
                nn.functional.mse_loss(m(x), y).backward()
                opt.step()
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert_close(results[0], other)


@pytest.mark.parametrize("by_all", [True, False])
def test_case19_join_divisors(by_all):
    """Rank 0 has no batch: the sum is divided by both ranks, or by the one that has."""

    def fn(rank):
        m = DistributedDataParallel(model())
        x, y = part(1)
        with m.join(divide_by_initial_world_size=by_all):
            if rank == 1:
                nn.functional.mse_loss(m(x), y).backward()
        return [p.grad.numpy().copy() for p in m.parameters()] if rank == 1 else None

    m, (x, y) = model(), part(1)
    nn.functional.mse_loss(m.to(x.device)(x), y).backward()
    want = [p.grad.numpy() / (2 if by_all else 1) for p in m.parameters()]
    assert_close(on_ranks(2, fn, devices=["cpu:1"])[1], want)


def test_case19_a_join_that_an_error_ends():
    def fn(rank):
        m = DistributedDataParallel(model())
        with pytest.raises(KeyError), m.join():
            raise KeyError("lost")
        with m.join():
            pass

    on_ranks(1, fn)


def test_case20_unused_parameters():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x, use):
            return self.a(x) + self.b(x) if use else self.a(x)

    def fails(rank):
        m = DistributedDataParallel(Two())
        x = plait.ones(2, 6)
        for _ in range(2):
            m(x, False).sum().backward()

    with pytest.raises(RuntimeError, match=r"b\.weight"):
        on_ranks(2, fails)

    def works(rank):
        m = DistributedDataParallel(Two(), find_unused_parameters=True)
        x = plait.ones(2, 6)
        m(x, rank == 0).sum().backward()
        return m.module.b.weight.grad.tolist()

    assert on_ranks(2, works) == [[[1.0] * 6] * 2] * 2


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


@pytest.mark.parametrize(
    ("state", "hook", "tolerance"),
    [
        (None, default_hooks.allreduce_hook, 1e-9),
        (None, default_hooks.fp16_compress_hook, 1e-2),
        (None, default_hooks.bf16_compress_hook, 3e-2),
        (powerSGD_hook.PowerSGDState(start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook, None),
        (topk_hook.TopKState(ratio=0.5), default_hooks.bf16_compress_wrapper(topk_hook.topk_hook), None),
    ],
    ids=["allreduce", "fp16", "bf16", "powersgd", "bf16 topk"],
)
def test_case23_hooks(state, hook, tolerance):
    def fn(rank):
        m = DistributedDataParallel(model())
        m.register_comm_hook(state, hook)
        with pytest.raises(RuntimeError):
            m.register_comm_hook(state, hook)
        x, y = part(rank)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        losses = []
        for _ in range(12):
            opt.zero_grad()
            loss = nn.functional.mse_loss(m(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))
    if tolerance is not None:
        assert_close(results[0], one_device(12, make=lambda p: plait.optim.SGD(p, lr=0.1)), tolerance)


def own_allreduce(state, bucket):
    state.append((bucket.index(), bucket.is_last(), [tuple(p.shape) for p in bucket.parameters()]))
    assert not plait.is_grad_enabled()
    assert sum(g.numel() for g in bucket.gradients()) <= bucket.buffer().numel()
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0].div_(dist.get_world_size()))


def own_compressed(state, bucket):
    state.append(bucket.index())
    return default_hooks.bf16_compress_wrapper(lambda _, b: default_hooks.allreduce_hook(None, b))(None, bucket)


def own_sum_of_parts(state, bucket):
    """Waits, and answers with another tensor."""
    state.append(bucket.index())
    parts = [plait.empty_like(bucket.buffer()) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, bucket.buffer())
    return sum(parts) / len(parts)


@pytest.mark.parametrize("bucket_view", [False, True])
@pytest.mark.parametrize(
    ("hook", "tolerance"), [(own_allreduce, 1e-9), (own_compressed, 5e-2), (own_sum_of_parts, 1e-9)]
)
def test_case23_hooks_in_python(hook, tolerance, bucket_view):
    def fn(rank):
        seen = []
        m = DistributedDataParallel(model(), bucket_cap_mb=1e-4, gradient_as_bucket_view=bucket_view)
        m.register_comm_hook(seen, hook)
        with pytest.raises(RuntimeError, match="only one"):
            m.register_comm_hook(seen, hook)
        x, y = part(rank)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(5):
            opt.zero_grad()
            nn.functional.mse_loss(m(x), y).backward()
            opt.step()
        assert len(seen) == m.statistics()["buckets"] > 5
        if hook is own_allreduce:
            assert [last for _, last, _ in seen].count(True) == 5
            assert {shape for _, _, shapes in seen for shape in shapes} == {tuple(p.shape) for p in m.parameters()}
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))
    assert_close(results[0], one_device(5, make=lambda p: plait.optim.SGD(p, lr=0.1)), tolerance)


def test_case19_hooks_in_python_of_ranks_without_batches():
    def fn(rank):
        m = DistributedDataParallel(model())
        seen = []
        m.register_comm_hook(seen, own_allreduce)
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        x, y = part(rank)
        with m.join():
            for _ in range(2 + rank):
                opt.zero_grad()
                nn.functional.mse_loss(m(x), y).backward()
                opt.step()
        assert len(seen) == 2 + N - 1
        return values(m)

    results = on_ranks(N, fn)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


def test_wrong_hooks():
    def wrong(rank):
        m = DistributedDataParallel(model())
        with pytest.raises(TypeError, match="function"):
            m.register_comm_hook(None, 3)
        m.register_comm_hook(None, lambda state, bucket: "no")
        m(part(rank)[0]).sum().backward()

    with pytest.raises(TypeError, match="must return a future of a tensor, got str"):
        on_ranks(2, wrong)

    def short(rank):
        m = DistributedDataParallel(model())
        m.register_comm_hook(None, lambda state, bucket: bucket.buffer()[:3])
        m(part(rank)[0]).sum().backward()

    with pytest.raises(RuntimeError, match="like the bucket's buffer"):
        on_ranks(2, short)

    def raising(state, bucket):
        raise KeyError("on purpose")

    def raises(rank):
        m = DistributedDataParallel(model())
        m.register_comm_hook(None, raising if rank == 1 else own_allreduce_of(None))
        m(part(rank)[0]).sum().backward()
        m(part(rank)[0])

    with pytest.raises(KeyError, match="on purpose"):
        on_ranks(2, raises)


def own_allreduce_of(state):
    return lambda _, bucket: default_hooks.allreduce_hook(state, bucket)


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


def test_case14_mixed_precision():
    seen = []

    class Watched(nn.Sequential):
        def forward(self, x):
            seen.append((x.dtype, self[0].weight.dtype))
            return super().forward(x)

    def fn(rank):
        plait.manual_seed(5)
        m = Watched(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        lowered = _MixedPrecision(param_dtype=plait.bfloat16, reduce_dtype=plait.float16, buffer_dtype=plait.bfloat16)
        many = DistributedDataParallel(m, mixed_precision=lowered)
        x, y = (t.float() for t in part(rank))
        opt = plait.optim.SGD(many.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            out = many(x)
            assert out.dtype == plait.bfloat16
            nn.functional.mse_loss(out.float(), y).backward()
            opt.step()
        assert all(p.dtype == p.grad.dtype == plait.float32 for p in many.parameters())
        assert all(v.dtype == plait.float32 for v in many.state_dict().values())
        return values(many)

    results = on_ranks(N, fn)
    assert set(seen) == {(plait.bfloat16, plait.bfloat16)}
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))
    want = one_device(3, make=lambda p: plait.optim.SGD(p, lr=0.1))
    assert_close(results[0], want, rtol=0.03)


def test_case14_mixed_precision_of_inputs_that_stay():
    seen = []

    class Watched(nn.Linear):
        def forward(self, x):
            seen.append((x.dtype, self.weight.dtype))
            return super().forward(x.to(self.weight.dtype))

    def fn(rank):
        lowered = _MixedPrecision(param_dtype=plait.bfloat16, cast_forward_inputs=False)
        DistributedDataParallel(Watched(6, 2), mixed_precision=lowered)(plait.ones(3, 6))

    on_ranks(1, fn)
    assert seen == [(plait.float32, plait.bfloat16)]


def test_case26_mixed_precision_of_checkpointed_blocks():
    """A block that is run again in backward has the parameters that it had in forward."""

    class Blocks(nn.Module):
        def __init__(self, again):
            super().__init__()
            self.first, self.last, self.again = nn.Linear(6, 8), nn.Linear(8, 2), again

        def block(self, x):
            return plait.tanh(self.first(x))

        def forward(self, x):
            x = checkpoint(self.block, x, use_reentrant=False) if self.again else self.block(x)
            return self.last(x)

    def fn(rank):
        grads = []
        for again in (False, True):
            plait.manual_seed(5)
            many = DistributedDataParallel(Blocks(again), mixed_precision=_MixedPrecision(param_dtype=plait.bfloat16))
            x, _ = part(rank)
            many(x.float()).sum().backward()
            grads.append([p.grad.numpy().copy() for p in many.parameters()])
        return grads

    for plain, again in on_ranks(N, fn):
        assert all((a == b).all() for a, b in zip(plain, again, strict=True))


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
