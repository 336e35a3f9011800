"""DataParallel and DistributedDataParallel train as one device does on the joined batch."""

import collections
import copy
import pickle

import numpy as np
import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, topk_hook
from plait.distributed.algorithms.join import Join
from plait.nn.parallel import (
    DataParallel,
    DistributedDataParallel,
    asynchronous,
    bounded_staleness,
    data_parallel,
    gather,
    parallel_apply,
    replicate,
    scatter,
    scatter_kwargs,
)
from plait.nn.parallel.distributed import _MixedPrecision
from plait.utils.checkpoint import checkpoint

N = 3


def model(dtype=plait.float64, **kwargs):
    plait.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2), **kwargs).to(dtype)


def batch(n=12):
    plait.manual_seed(1)
    return plait.randn(n, 6, dtype=plait.float64), plait.randn(n, 2, dtype=plait.float64)


def values(m):
    return [p.detach().numpy().copy() for p in m.parameters()]


def assert_close(got, want, rtol=1e-9):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def one_device(steps=4, n=12, make=lambda p: plait.optim.Adam(p, lr=0.05)):
    m = model()
    x, y = batch(n)
    opt = make(m.parameters())
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.mse_loss(m(x), y).backward()
        opt.step()
    return values(m)


def on_ranks(fn, n=N, **kwargs):
    results = [None] * n

    def run(rank):
        dist.init_process_group()
        results[rank] = fn(rank)

    dist.spawn(run, nprocs=n, timeout=60, **kwargs)
    return results


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

    results = on_ranks(fn)
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

    assert_close(on_ranks(fn)[0], one_device(3, make=lambda p: plait.optim.SGD(p, lr=0.1)))


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
    for before, grads in on_ranks(fn):
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

    results = on_ranks(fn)
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

    results = on_ranks(fn)
    for other in results[1:]:
        assert_close(results[0], other)


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
        on_ranks(fails, 2)

    def works(rank):
        m = DistributedDataParallel(Two(), find_unused_parameters=True)
        x = plait.ones(2, 6)
        m(x, rank == 0).sum().backward()
        return m.module.b.weight.grad.tolist()

    assert on_ranks(works, 2) == [[[1.0] * 6] * 2] * 2


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
    results = on_ranks(fn)
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

    results = on_ranks(fn)
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

    results = on_ranks(fn)
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

    results = on_ranks(fn)
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
        on_ranks(wrong, 2)

    def short(rank):
        m = DistributedDataParallel(model())
        m.register_comm_hook(None, lambda state, bucket: bucket.buffer()[:3])
        m(part(rank)[0]).sum().backward()

    with pytest.raises(RuntimeError, match="like the bucket's buffer"):
        on_ranks(short, 2)

    def raising(state, bucket):
        raise KeyError("on purpose")

    def raises(rank):
        m = DistributedDataParallel(model())
        m.register_comm_hook(None, raising if rank == 1 else own_allreduce_of(None))
        m(part(rank)[0]).sum().backward()
        m(part(rank)[0])

    with pytest.raises(KeyError, match="on purpose"):
        on_ranks(raises, 2)


def own_allreduce_of(state):
    return lambda _, bucket: default_hooks.allreduce_hook(state, bucket)


def test_case25_models_that_differ():
    def fn(rank):
        return DistributedDataParallel(nn.Linear(3 + (rank == 1), 2))

    with pytest.raises(plait.DistributedError, match="weight"):
        on_ranks(fn)


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

    on_ranks(fn, 2)


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
    for grads in on_ranks(fn):
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

    results = on_ranks(fn)
    assert set(seen) == {(plait.bfloat16, plait.bfloat16)}
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))
    want = one_device(3, make=lambda p: plait.optim.SGD(p, lr=0.1))
    assert_close(results[0], want, rtol=0.03)


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

    for plain, again in on_ranks(fn):
        assert all((a == b).all() for a, b in zip(plain, again, strict=True))


def test_device_ids_move_inputs():
    def fn(rank):
        here = f"cpu:{rank}"
        many = DistributedDataParallel(model().to(here), device_ids=[here], output_device="cpu:2")
        x, y = batch()
        out = many(x)  # from cpu:0
        nn.functional.mse_loss(out, y.to("cpu:2")).backward()
        return str(out.device), [p.grad.numpy().copy() for p in many.parameters()]

    for where, grads in on_ranks(fn):
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

    on_ranks(fn)


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

    on_ranks(fn, 2)
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

        return on_ranks(fn)

    want = one_device(8, make=lambda p: plait.optim.SGD(p, lr=0.05))
    for result, *_ in train(bounded_staleness(0)):
        assert_close(result, want)
    for mode in (bounded_staleness(2), asynchronous):
        for _, first, last, clock, staleness in train(mode):
            assert last < first
            assert clock == 8
            assert mode is asynchronous or staleness <= 2


# --- DataParallel ---

DEVICES = ["cpu:0", "cpu:1", "cpu:2"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 30])
def test_case08_data_parallel_parity(n):
    x, y = batch(n)
    single, many = model(), DataParallel(model(), DEVICES)
    opts = [plait.optim.Adam(m.parameters(), lr=0.05) for m in (single, many)]
    for _ in range(3):
        for m, opt in zip((single, many), opts, strict=True):
            opt.zero_grad()
            nn.functional.mse_loss(m(x), y).backward()
            opt.step()
    assert_close(values(many), values(single))
    np.testing.assert_allclose(many(x).detach().numpy(), single(x).detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("devices", [["cpu:0", "cpu:0"], ["cpu:1", "cpu:0", "cpu:1", "cpu:0"]], ids=str)
def test_case08_several_replicas_on_a_device(devices):
    for n in (1, 3, 5, 12):
        x, y = batch(n)
        single, many = model(), DataParallel(model().to(devices[0]), devices)
        nn.functional.mse_loss(single(x), y).backward()
        nn.functional.mse_loss(many(x), y.to(devices[0])).backward()
        assert_close([p.grad.cpu().numpy() for p in many.parameters()], [p.grad.numpy() for p in single.parameters()])


def test_case08_functions():
    """The parts of DataParallel under PyTorch's names."""
    devices, x = ["cpu:0", "cpu:1", "cpu:2"], plait.arange(8.0, requires_grad=True)
    parts = scatter({"x": x, "scale": plait.tensor(2.0), "name": "n"}, devices)
    assert [p["x"].tolist() for p in parts] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [str(p["scale"].device) for p in parts] == devices
    assert [p["name"] for p in parts] == ["n"] * 3
    first, none, last = scatter(x, devices, weights=[3, 0, 1])
    assert (first.tolist(), none, last.tolist()) == ([0, 1, 2, 3, 4, 5], None, [6, 7])
    joined = gather([p["x"] * p["scale"] for p in parts], "cpu:1")
    assert (joined.tolist(), str(joined.device)) == ([0, 2, 4, 6, 8, 10, 12, 14], "cpu:1")
    joined.sum().backward()
    assert x.grad.tolist() == [2] * 8
    args, kwargs = scatter_kwargs((x,), {"y": x}, devices[:2])
    assert [len(a) for a in args] == [1, 1]
    assert kwargs[1]["y"].tolist() == [4, 5, 6, 7]
    m = nn.Linear(4, 2)
    replicas = replicate(m, devices)
    batch = [plait.ones(2, 4, device=d) for d in devices]
    out = gather(parallel_apply(replicas, batch, devices=devices), "cpu:0")
    assert out.shape == (6, 2)
    out.sum().backward()
    assert m.bias.grad.tolist() == [6, 6]
    assert not replicate(m, devices, detach=True)[1].weight.requires_grad
    with pytest.raises(ValueError, match=r"4 and 1 samples.*same devices"):
        scatter((plait.ones(4, 2), plait.ones(1, 2)), devices[:2])
    with pytest.raises(ValueError, match="dimension"):
        scatter(plait.tensor(1.0), devices)


def test_case08_a_subclass_that_scatters_itself():
    class Uneven(DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            first = inputs[0][:1], inputs[0][1:]
            return [(part.to(d),) for part, d in zip(first, device_ids, strict=True)], [kwargs] * 2

    x, _ = batch(6)
    many = Uneven(model(), ["cpu:0", "cpu:1"])
    assert_close([many(x).detach().numpy()], [model()(x).detach().numpy()])


def test_copies_of_data_parallel():
    x, _ = batch(6)
    many = DataParallel(model(), ["cpu:0", "cpu:1"], weights=[2, 1])
    want = many(x)
    for other in (copy.deepcopy(many), pickle.loads(pickle.dumps(many))):
        assert_close([other(x).detach().numpy()], [want.detach().numpy()])
        other(x).sum().backward()
    assert all(p.grad is None for p in many.parameters())


def test_case08_nested_inputs_and_outputs():
    Out = collections.namedtuple("Out", ["double", "scalar"])

    class Nested(nn.Module):
        def forward(self, pair, *, options):
            return {"sum": pair[0] + pair[1], "out": Out(pair[0] * 2, options["bias"].sum()), "name": options["name"]}

    a, b = plait.arange(5.0), plait.ones(5)
    got = DataParallel(Nested(), ["cpu:0", "cpu:1"])((a, b), options={"bias": b, "name": "x"})
    assert got["sum"].tolist() == [1, 2, 3, 4, 5]
    assert got["out"].double.tolist() == [0, 2, 4, 6, 8]
    assert got["out"].scalar.tolist() == [3, 2]
    assert got["name"] == ["x", "x"]


def test_case10_buffers_are_those_of_the_first_device():
    bn = nn.BatchNorm1d(6).to(plait.float64)
    x, _ = batch(8)
    many = DataParallel(bn, ["cpu:0", "cpu:1"])
    many(x)
    alone = nn.BatchNorm1d(6).to(plait.float64)
    alone(x[:4])
    np.testing.assert_allclose(bn.running_mean.numpy(), alone.running_mean.numpy(), rtol=1e-12)
    assert bn.num_batches_tracked.item() == 1


def test_case11_wrong_device():
    m = nn.Linear(6, 2, device="cpu:1")
    with pytest.raises(RuntimeError, match=r"cpu:0.*cpu:1"):
        DataParallel(m, ["cpu:0", "cpu:2"])(plait.ones(4, 6))


def test_case12_exception_names_the_replica():
    class Fails(nn.Module):
        def forward(self, x):
            if x.device == plait.device("cpu:1"):
                raise KeyError("lost")
            return x

    with pytest.raises(KeyError) as caught:
        DataParallel(Fails(), ["cpu:0", "cpu:1"])(plait.ones(4, 1))
    assert caught.value.__notes__ == ["raised in replica 1 on cpu:1"]


def test_case13_weights():
    x, y = batch(12)
    m = DataParallel(model(), ["cpu:0", "cpu:1"], weights=[3, 1])
    assert m.sizes(12) == [9, 3]
    nn.functional.mse_loss(m(x), y).backward()
    single = model()
    nn.functional.mse_loss(single(x), y).backward()
    assert_close([p.grad.numpy() for p in m.parameters()], [p.grad.numpy() for p in single.parameters()])
    auto = DataParallel(model(), ["cpu:0", "cpu:1"], weights="auto")
    auto(x)
    assert abs(sum(auto.weights) - 1) < 1e-9
    with pytest.raises(ValueError, match="weight"):
        m.set_weights([1, -1])


def test_data_parallel_stale_gradients():
    x, y = batch(12)
    m = DataParallel(model(), ["cpu:0", "cpu:1"])
    m.set_sync_mode(bounded_staleness(1))
    opt = plait.optim.SGD(m.parameters(), lr=0.05)
    first = nn.functional.mse_loss(m(x), y).item()
    for _ in range(6):
        opt.zero_grad()
        nn.functional.mse_loss(m(x), y).backward()
        opt.step()
    m.flush()
    assert m.staleness() <= 1
    assert nn.functional.mse_loss(m(x), y).item() < first


def test_data_parallel_around_the_edges():
    x, _ = batch(4)
    assert DataParallel(model(), [])(x).shape == (4, 2)
    assert data_parallel(model(), x, ["cpu:0", "cpu:1"]).shape == (4, 2)
    assert nn.DataParallel is DataParallel
    m = DataParallel(nn.LSTM(6, 3, batch_first=True).to(plait.float64), ["cpu:0", "cpu:1"])
    out, _ = m(x.view(4, 1, 6))
    assert out.shape == (4, 1, 3)
    assert all(k.startswith("module.") for k in m.state_dict())
    m.load_state_dict(m.module.state_dict())
    for wrong in (3, [model()]):
        with pytest.raises(TypeError, match="want a module"):
            DataParallel(wrong, ["cpu:0"])
    with pytest.raises(TypeError, match="list of devices"):
        DataParallel(model(), "cpu:0")
