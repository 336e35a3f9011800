"""Parameters of FSDP that are sharded along other dimensions than the first: `shard_placement_fn`."""

import numpy as np
import plait
import plait.distributed.checkpoint as dcp
import pytest
from plait import nn
from plait.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.fsdp import FSDP, CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from plait.distributed.tensor import DTensor, Replicate, Shard
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from plait.distributed.tensor.placement_types import _StridedShard
from plait.nn.utils import clip_grad_norm_
from ranks import on_ranks


class Net(nn.Module):
    """Parameters of zero to four dimensions, of sizes that two and three ranks do not divide evenly."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 5, 3, padding=1)
        self.up, self.down = nn.Linear(5, 7), nn.Linear(7, 5)
        self.gain = nn.Parameter(plait.tensor(1.25))

    def forward(self, x):
        y = self.conv(x).tanh().mean((2, 3))
        return y + self.down(self.up(y).tanh()) * self.gain


def net():
    plait.manual_seed(0)
    return Net().double()


def last(p):
    return Shard(-1) if p.dim() else None


def second(p):
    return Shard(1) if p.dim() > 1 else None


def divided(placement=last, m=None, mesh=None, **options):
    m = m or net()
    fully_shard(m.up, mesh=mesh, shard_placement_fn=placement, **options)
    return fully_shard(m, mesh=mesh, shard_placement_fn=placement, **options)


def batch(step):
    x = (plait.arange(6.0 * 2 * 3 * 3).double().reshape(6, 2, 3, 3) * 0.7 + step).sin()
    return x, (x.mean((1, 2, 3))[:, None] * plait.arange(5.0).double()).cos()


def train(m, steps=3, at=0, world=1, opt=None, decay=0.0, passes=1):
    opt = opt or plait.optim.AdamW(m.parameters(), lr=0.02)
    norms = []
    for s in range(steps):
        opt.zero_grad()
        for k in range(passes):
            if world > 1:
                m.set_requires_gradient_sync(k == passes - 1)
            x, y = (t.chunk(world)[at] for t in batch(s * passes + k))
            loss = (m(x).double() - y).square().mean() / passes
            if decay and k == passes - 1:
                loss = loss + decay * sum(p.square().sum() for p in m.parameters())
            loss.backward()
        norms.append(clip_grad_norm_(m.parameters(), 0.5).item())
        opt.step()
    return norms


def whole(t):
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach()


def same(m, want, tolerance=1e-10):
    for (name, p), q in zip(m.named_parameters(), want.parameters(), strict=True):
        for a, b in ((p, q), (p.grad, q.grad)):
            x, y = whole(a).numpy(), whole(b).numpy()
            assert np.allclose(x, y, rtol=tolerance, atol=tolerance), (name, abs(x - y).max())


OPTIONS = {
    "plain": {},
    "kept": {"reshard_after_forward": False},
    "partly": {"reshard_after_forward": 2},
    "offloaded": {"offload_policy": CPUOffloadPolicy()},
    "mixed": {"mp_policy": MixedPrecisionPolicy(param_dtype=plait.float32, reduce_dtype=plait.float64)},
}


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("placement", [last, second])
def test_training_equals_one_device(placement, ranks):
    alone = net()
    norms = train(alone, decay=0.01, passes=2)

    def run(rank):
        m = divided(placement)
        assert train(m, at=rank, world=ranks, decay=0.01, passes=2) == pytest.approx(norms, rel=1e-9)
        same(m, alone)

    on_ranks(ranks, run)


@pytest.mark.parametrize("how", OPTIONS)
def test_options(how):
    alone = net()
    train(alone)

    def run(rank):
        m = divided(**OPTIONS[how])
        train(m, at=rank % 2, world=2)
        same(m, alone, 1e-10 if how != "mixed" else 1e-4)

    on_ranks(2 if how != "partly" else 4, run)


def test_how_parameters_lie():
    def run(rank):
        m, want = divided(), net()
        for p, q in zip(m.parameters(), want.parameters(), strict=True):
            assert p.placements == ((Shard(p.dim() - 1),) if p.dim() else (Replicate(),))
            assert plait.equal(whole(p), q)
        rows = (slice(0, 3), slice(3, 5))[rank]
        assert plait.equal(m.up.weight.to_local(), want.up.weight[:, rows])
        assert m.up.weight.to_local().is_contiguous()
        opt = plait.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        train(m, 1, rank, 2, opt)
        for p in m.parameters():
            assert isinstance(p.grad, DTensor) and p.grad.placements == p.placements
            assert opt.state[p]["momentum_buffer"].placements == p.placements
        m.unshard()
        with plait.no_grad():
            m.conv.weight.mul_(2)
        m.reshard()
        state = {k: v.clone() for k, v in want.state_dict().items()}
        m.load_state_dict(state)
        f = FSDP.summon_full_params
        with f(m, with_grads=True):
            assert plait.equal(m.conv.weight, want.conv.weight) and m.conv.weight.grad.shape == (5, 2, 3, 3)
            with plait.no_grad():
                m.conv.weight.mul_(2)
        assert plait.equal(whole(m.conv.weight), want.conv.weight * 2)

    on_ranks(2, run)


def test_models_on_the_meta_device_get_the_same_values():
    def run(rank):
        plait.manual_seed(0)
        with plait.device("meta"):
            m = Net()
        divided(second, m)
        plait.manual_seed(0)
        for p, q in zip(m.parameters(), Net().parameters(), strict=True):
            assert plait.equal(whole(p), q)

    on_ranks(3, run)


def test_hybrid_sharding():
    alone = net()
    train(alone, opt=plait.optim.SGD(alone.parameters(), lr=0.1))

    def run(rank):
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("copies", "shards"))
        m = divided(mesh=mesh)
        assert m.up.weight.placements == (Replicate(), Shard(1))
        train(m, at=rank, world=6, opt=plait.optim.SGD(m.parameters(), lr=0.1))
        same(m, alone)

    on_ranks(6, run)


@pytest.mark.parametrize("placement", [last, second, lambda p: None])
@pytest.mark.parametrize("shape", [(2, 2), (1, 2), (2, 1)], ids=str)
def test_with_tensor_parallelism(shape, placement):
    alone = net()
    train(alone)

    def run(rank):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        m = parallelize_module(net(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        divided(placement, m, mesh["dp"])
        if placement is last:
            columns = _StridedShard(1, split_factor=2) if shape[1] == 2 else Shard(1)
            assert m.up.weight.placements == (Shard(1), Shard(0)) and m.down.weight.placements == (columns, Shard(1))
        train(m, at=mesh["dp"].get_local_rank(), world=shape[0])
        same(m, alone)

    on_ranks(shape[0] * shape[1], run)


def test_checkpoints_load_in_other_placements(tmp_path):
    alone = net()
    train(alone, 4)

    def save(rank):
        m = divided(last)
        opt = plait.optim.AdamW(m.parameters(), lr=0.02)
        train(m, 2, rank, 3, opt)
        dcp.save({"m": get_model_state_dict(m), "o": get_optimizer_state_dict(m, opt)}, checkpoint_id=tmp_path)

    def load(rank):
        m = divided(None)
        opt = plait.optim.AdamW(m.parameters(), lr=0.02)
        state = {"m": get_model_state_dict(m), "o": get_optimizer_state_dict(m, opt)}
        dcp.load(state, checkpoint_id=tmp_path)
        set_model_state_dict(m, state["m"])
        set_optimizer_state_dict(m, opt, state["o"])
        for s in (2, 3):
            opt.zero_grad()
            x, y = (t.chunk(2)[rank] for t in batch(s))
            (m(x) - y).square().mean().backward()
            clip_grad_norm_(m.parameters(), 0.5)
            opt.step()
        same(m, alone)

    on_ranks(3, save)
    on_ranks(2, load)


def test_hooks_of_communication():
    alone = net()
    train(alone, 1)

    def run(rank):
        m = divided()
        m.set_all_reduce_hook(lambda flat: flat.mul_(0.5))
        m.up.set_all_reduce_hook(lambda flat: flat.mul_(0.5))
        x, y = (t.chunk(2)[rank] for t in batch(0))
        ((m(x) - y).square().mean() * 2).backward()
        clip_grad_norm_(m.parameters(), 0.5)
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert np.allclose(whole(p.grad).numpy(), q.grad.numpy(), rtol=1e-10, atol=1e-12)

    on_ranks(2, run)


def test_what_is_refused():
    def run(rank):
        with pytest.raises(TypeError, match=r"must return a Shard or None, got Replicate\(\) for parameter weight"):
            fully_shard(nn.Linear(2, 3), shard_placement_fn=lambda p: Replicate())
        with pytest.raises(IndexError, match=r"parameter bias of shape \[3\] cannot be sharded along dimension 1"):
            fully_shard(nn.Linear(2, 3), shard_placement_fn=lambda p: Shard(1))
        with pytest.raises(RuntimeError, match=r"the ranks' models differ: parameter 0 .* sharded along dimension 1"):
            fully_shard(nn.Linear(2, 3, bias=False), shard_placement_fn=lambda p: Shard(rank))

    on_ranks(2, run)
