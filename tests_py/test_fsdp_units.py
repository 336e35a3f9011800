"""What a unit of FSDP holds, how units are chosen, and what is refused."""

import plait
import plait.distributed.checkpoint as dcp
import pytest
from plait import nn
from plait.distributed import fsdp
from plait.distributed.fsdp import FSDP, ShardingStrategy, fully_shard
from plait.distributed.tensor import DTensor, Replicate, Shard
from ranks import on_ranks
from sharded import WIDTH, batch, blocks, close, full, model, spawn, train


def test_placements():
    def run(rank):
        m = blocks(model())
        p = m.head.weight
        assert isinstance(p, DTensor) and isinstance(p, nn.Parameter)
        assert p.shape == (2, 8) and p.placements == (Shard(0),)
        assert p.to_local().shape == ([1, 1, 0][rank], 8)
        assert p.device_mesh.size() == 3 and p.device_mesh.mesh.tolist() == [0, 1, 2]
        assert m.blocks[1].gain.placements == (Replicate(),)  # without a dimension each rank has it
        m.blocks[1].unshard()
        assert m.blocks[1].down.bias.placements == (Replicate(),)
        assert m.blocks[1].down.bias.to_local().shape == (8,) == m.blocks[1].down.bias.full_tensor().shape

    spawn(run)


def test_bad_input():
    def run(rank):
        m = blocks(model())
        m.late = nn.Linear(2, 2)
        x, y = batch(0, range(2))
        with pytest.raises(RuntimeError, match=r"parameter late\.weight was created after its module was sharded"):
            m(x)
        m = model()
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        blocks(m)
        (m(x) - y).square().mean().backward()
        with pytest.raises(RuntimeError, match="make the optimiser after the model is fully sharded"):
            opt.step()
        with pytest.raises(RuntimeError, match="was given to fully_shard before"):
            fully_shard(m)
        with pytest.raises(plait.DistributedError, match="the ranks' models differ"):
            fully_shard(nn.Linear(4, 4 + rank))
        for wrong in (3, [], [nn.Linear(2, 2), 3]):
            with pytest.raises(TypeError, match="want a module or a list of modules, got"):
                fully_shard(wrong)
        with pytest.raises(ValueError, match="a ModuleList has no forward in which to gather parameters"):
            fully_shard(nn.ModuleList([nn.Linear(2, 2)]))
        with pytest.raises(TypeError, match="want a DeviceMesh or a process group, got str"):
            fully_shard(nn.Linear(2, 2), mesh="ranks")
        with pytest.raises(ValueError, match="must divide the 3 ranks"):
            fully_shard(model(), reshard_after_forward=2)
        with pytest.raises(TypeError, match="cannot be copied"):
            import copy

            copy.deepcopy(m)
        with pytest.raises(ValueError, match="hybrid sharding wants"):
            FSDP(model(), sharding_strategy=ShardingStrategy.HYBRID_SHARD)

    spawn(run)


def test_print_shows_what_a_rank_has():
    def run(rank):
        layer = nn.Linear(2, 3, bias=False)
        with plait.no_grad():
            layer.weight.fill_(1)
        module = fully_shard(nn.Sequential(layer))
        rows = ["tensor([[1., 1.],\n        [1., 1.]])", "tensor([[1., 1.]])"][rank]
        want = f"DTensor(local_tensor={rows}, device_mesh={layer.weight.device_mesh!r}, placements=(Shard(dim=0)))"
        assert repr(layer.weight) == repr(module.state_dict()["0.weight"]) == want
        module.unshard()
        assert "tensor([[1., 1.],\n        [1., 1.],\n        [1., 1.]], requires_grad=True)" in repr(layer.weight)
        module.reshard()
        assert (
            repr(module)
            == """FSDPSequential(
  (0): Linear(in_features=2, out_features=3, bias=False)
)"""
        )
        plain = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
        assert (
            repr(plain)
            == """DistributedDataParallel(
  (module): Linear(in_features=1, out_features=1, bias=True)
)"""
        )

    on_ranks(2, run)


def test_one_unit_of_modules_with_parameters_of_one_name(tmp_path):
    """`fully_shard([norm, output])`: each parameter is itself in full tensors, states and checkpoints."""

    def make():
        plait.manual_seed(0)
        return nn.Sequential(nn.Linear(WIDTH, 5), nn.LayerNorm(5), nn.Linear(5, 4), nn.Linear(4, 2))

    def run(rank):
        m = make()
        want = {n: p.detach().numpy().copy() for n, p in m.named_parameters()}
        fully_shard([m[1], m[2]])
        fully_shard([m[0], m[3]])
        fully_shard(m)
        close(full(m), want, 0)
        close({n: v.full_tensor().numpy() for n, v in m.state_dict().items()}, want, 0)
        assert {n: p.shape for n, p in m.named_parameters()} == {n: v.shape for n, v in want.items()}
        opt = train(m, rank, steps=1)
        trained = full(m)
        dcp.save({"model": m, "optim": opt}, checkpoint_id=tmp_path)
        other = make()
        fully_shard([other[0], other[1], other[2]])
        fully_shard(other)
        o = train(other, rank, steps=1, lr=0.5)
        dcp.load({"model": other, "optim": o}, checkpoint_id=tmp_path)
        close(full(other), trained, 0)
        for p, q in zip(m.parameters(), other.parameters(), strict=True):
            got, saved = (s.state[x]["exp_avg"].full_tensor().numpy() for x, s in ((q, o), (p, opt)))
            assert (got == saved).all()

    spawn(run)


def test_shared_parameters_keep_apart_from_those_of_their_new_unit():
    def run(rank):
        plait.manual_seed(0)
        m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        m[2].weight = m[0].weight
        want = {n: p.detach().numpy().copy() for n, p in m.named_parameters()}
        fully_shard(m[0])
        fully_shard([m[1], m[2]])  # which gets what m[0] has called weight
        fully_shard(m)
        close(full(m), want, 0)

    spawn(run, 2)


def test_policies_leave_shared_parameters_to_one_unit():
    """A parameter whose only module is a unit, but which another module uses too, is averaged and gathered above."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(WIDTH, 5, bias=False), nn.Linear(WIDTH, 5)
            self.second.weight = self.first.weight
            self.last = nn.Linear(5, 2)

        def forward(self, x):
            return self.last(self.first(x).tanh() * self.second(x))

    def make():
        plait.manual_seed(1)
        return nn.Sequential(Tied(), nn.Tanh(), nn.Linear(2, 2))

    plait.set_default_dtype(plait.float64)
    m = make()
    train(m, each=6)
    want = {n: p.detach().numpy().copy() for n, p in m.named_parameters()}
    plait.set_default_dtype(plait.float32)

    def run(rank):
        for policy in ({nn.Linear}, {nn.Linear, Tied}):
            m = FSDP(make(), auto_wrap_policy=policy)
            assert all(isinstance(p, fsdp.ShardedParameter) for p in m.parameters())
            train(m, rank)
            close(full(m), want)

    spawn(run)
