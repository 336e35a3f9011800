"""Communication hooks of DistributedDataParallel: the library's, and functions in Python."""

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, topk_hook
from plait.nn.parallel import DistributedDataParallel
from ranks import on_ranks
from replicas import N, assert_close, model, one_device, part, values


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
