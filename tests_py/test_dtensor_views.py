"""Views of distributed tensors that join and split sharded dimensions."""

import plait
import pytest
from plait import distributed as dist
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, gathered_bytes
from plait.distributed.tensor.placement_types import _StridedShard
from plait.nn import functional as F
from ranks import on_one_device as on_ranks


@pytest.mark.parametrize(
    ("mesh", "shape", "placed", "view", "want"),
    [
        ((2,), (4, 6), [Shard(1)], lambda x: x.flatten(), [_StridedShard(0, split_factor=4)]),
        ((3,), (5, 7, 2), [Shard(1)], lambda x: x.flatten(0, 1), [_StridedShard(0, split_factor=5)]),
        ((3,), (2, 2, 3), [Shard(1)], lambda x: x.view(4, 3), [_StridedShard(0, split_factor=2)]),  # one has nothing
        ((2, 2), (4, 6), [Shard(0), Shard(1)], lambda x: x.ravel(), [Shard(0), _StridedShard(0, split_factor=2)]),
        ((2, 2), (4, 6), [Shard(1), Shard(0)], lambda x: x.reshape(-1), [_StridedShard(0, split_factor=4), Shard(0)]),
        ((2, 2), (4, 6), [Shard(0), Shard(1)], lambda x: x.flatten().unflatten(0, (4, 6)) * 1, [Shard(0), Shard(1)]),
        ((2, 2), (3, 8), [Partial(), Shard(1)], lambda x: x.flatten(), [Partial(), _StridedShard(0, split_factor=3)]),
        ((2,), (5, 6), [Shard(0)], lambda x: x.flatten(), [_StridedShard(0, split_factor=5)]),  # rows become columns
        ((2,), (4, 6), [Replicate()], lambda x: x.flatten(), [Replicate()]),
    ],
)
def test_views_gather_nothing(mesh, shape, placed, view, want):
    whole = plait.arange(float(plait.Size(shape).numel())).reshape(shape)

    def fn(rank):
        before = gathered_bytes()
        x = distribute_tensor(whole, init_device_mesh("cpu", mesh), placed).requires_grad_()
        y = view(x)
        assert list(y.placements) == want
        weights = plait.arange(1.0, 1.0 + y.numel()).reshape(y.shape)
        (y * distribute_tensor(weights, x.device_mesh)).sum().backward()
        assert plait.equal(y.full_tensor(), view(whole))
        assert plait.equal(x.grad.full_tensor(), weights.reshape(shape))
        assert gathered_bytes() == before

    on_ranks(mesh[0] * (mesh[1] if len(mesh) > 1 else 1), fn)


@pytest.mark.parametrize("length", [6, 7])
def test_a_loss_of_a_divided_sequence(length):
    plait.manual_seed(0)
    scores, target = plait.randn(3, length, 5), plait.randint(0, 5, (3, length))
    alone = scores.clone().requires_grad_()
    want = F.cross_entropy(alone.flatten(0, 1), target.flatten())
    want.backward()

    def fn(rank):
        mesh = init_device_mesh("cpu", (2,))
        before = gathered_bytes()
        x = distribute_tensor(scores, mesh, [Shard(1)]).requires_grad_()
        loss = F.cross_entropy(x.flatten(0, 1), distribute_tensor(target, mesh, [Shard(1)]).flatten())
        loss.backward()
        assert loss.item() == pytest.approx(want.item())
        assert x.grad.placements == (Shard(1),)
        assert plait.allclose(x.grad.full_tensor(), alone.grad, atol=1e-7)
        assert gathered_bytes() == before

    on_ranks(2, fn)


def test_a_view_that_fits_no_shard_is_gathered():
    def fn(rank):
        before = gathered_bytes()
        x = distribute_tensor(plait.arange(24.0).view(4, 6), init_device_mesh("cpu", (3,)), [Shard(1)])
        y = x.view(8, 3)
        assert plait.equal(y.full_tensor(), plait.arange(24.0).view(8, 3))
        dist.barrier()
        assert gathered_bytes() - before > 0

    on_ranks(3, fn)
