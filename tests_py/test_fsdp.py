"""FSDP and fully_shard: parity with one device and with DDP, memory, states, policies, and what they refuse."""

import functools
import gc

import numpy as np
import plait
import plait.distributed as dist
import plait.distributed.checkpoint as dcp
import pytest
from plait import nn
from plait.distributed import fsdp
from plait.distributed.fsdp import FSDP, MixedPrecision, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from plait.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
from ranks import on_ranks

WIDTH = 6


class Block(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        self.up, self.down = nn.Linear(wide, narrow), nn.Linear(narrow, wide)
        self.gain = nn.Parameter(plait.tensor(1.25))

    def forward(self, x):
        return x + self.down(self.up(x).tanh()) * self.gain


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(WIDTH, 8)
        self.blocks = nn.ModuleList(Block(8, 5) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.embed(x)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))

    def encode(self, x):
        return self.blocks[0](self.embed(x))


def model():
    plait.manual_seed(3)
    return Model()


def batch(step, rows):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((64, WIDTH))[list(rows)]
    return plait.tensor(x, dtype=plait.get_default_dtype()), plait.tensor(
        np.sin(x[:, :2]), dtype=plait.get_default_dtype()
    )


def train(m, rank=0, world=1, each=2, steps=3, forward=None, lr=0.05):
    opt = plait.optim.AdamW(m.parameters(), lr=lr)
    for s in range(steps):
        x, y = batch(s, range(rank * each, (rank + 1) * each))
        opt.zero_grad()
        ((forward or m)(x).to(y.dtype) - y).square().mean().backward()
        opt.step()
    return opt


def alone(world, **options):
    plait.set_default_dtype(plait.float64)
    try:
        m = model()
        train(m, each=2 * world, **options)
        return {n: p.detach().numpy().copy() for n, p in m.named_parameters()}
    finally:
        plait.set_default_dtype(plait.float32)


def spawn(fn, nprocs=3):
    """Runs fn(rank) on ranks that compute in float64."""

    def run(rank):
        plait.set_default_dtype(plait.float64)
        fn(rank)

    on_ranks(nprocs, run)


def full(m):
    return {n: p.full_tensor().numpy() for n, p in m.named_parameters()}


def close(got, want, tol=1e-9):
    assert got.keys() == want.keys()
    for n in want:
        np.testing.assert_allclose(got[n], want[n], rtol=tol, atol=tol, err_msg=n)


def blocks(m, **options):
    for b in m.blocks:
        fully_shard(b, **options)
    return fully_shard(m, **options)


SPELLINGS = {
    "fully_shard": blocks,
    "kept": functools.partial(blocks, reshard_after_forward=False),
    "resharded": functools.partial(blocks, reshard_after_forward=True),
    "one unit": fully_shard,
    "FSDP": FSDP,
    "classes": lambda m: FSDP(m, auto_wrap_policy=ModuleWrapPolicy({Block})),
    "sizes": lambda m: FSDP(m, auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=50)),
    "SHARD_GRAD_OP": lambda m: FSDP(m, auto_wrap_policy={Block}, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP),
    "NO_SHARD": lambda m: FSDP(m, auto_wrap_policy={Block}, sharding_strategy=ShardingStrategy.NO_SHARD),
    "no prefetch": lambda m: FSDP(m, auto_wrap_policy={Block}, forward_prefetch=False, backward_prefetch=None),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_case_28_parity(spelling):
    want = alone(3)

    def run(rank):
        m = SPELLINGS[spelling](model())
        assert [n for n, _ in m.named_parameters()] == list(want)
        train(m, rank, 3)
        close(full(m), want)

    spawn(run)


def test_bits_of_ddp():
    def run(rank):
        d = nn.parallel.DistributedDataParallel(model())
        train(d, rank, 2)
        m = blocks(model())
        train(m, rank, 2)
        for (n, a), (_, b) in zip(m.named_parameters(), d.module.named_parameters(), strict=True):
            assert (a.full_tensor().numpy() == b.detach().numpy()).all(), n

    spawn(run, 2)


def test_int_reshard():
    want = alone(4)

    def run(rank):
        m = blocks(model(), reshard_after_forward=2)
        train(m, rank, 4)
        close(full(m), want)

    spawn(run, 4)


@pytest.mark.parametrize("dtype", [plait.bfloat16, plait.float32])
def test_mixed_precision(dtype):
    want = alone(2)

    def mixed(m):
        for b in m.blocks:
            fully_shard(b, mp_policy=MixedPrecisionPolicy(dtype, plait.float32))
        return fully_shard(m, mp_policy=MixedPrecisionPolicy(dtype, plait.float32, plait.float64))

    def run(rank):
        for m in (
            mixed(model()),
            FSDP(model(), auto_wrap_policy={Block}, mixed_precision=MixedPrecision(dtype, plait.float32)),
        ):
            seen = []
            m.head.register_forward_hook(lambda _m, x, _y, seen=seen: seen.append((x[0].dtype, _m.weight.dtype)))
            train(m, rank, 2)
            assert seen[0][1] == dtype
            assert all(p.dtype == plait.float64 and p.grad.dtype == plait.float64 for p in m.parameters())
            close(full(m), want, 0.2 if dtype == plait.bfloat16 else 0.02)

    spawn(run, 2)


def test_memory_comes_back_and_state_is_divided():
    def run(rank):
        def used():
            return plait.memory_stats(rank=rank)["current"]

        before = used()
        for make in (blocks, FSDP):
            m = make(model())
            opt = train(m, rank, 2)
            elements = sum(p.to_local().numel() for p in m.parameters())
            assert (
                sum(v.numel() for p in m.parameters() for k, v in opt.state[p].items() if k != "step") == 2 * elements
            )
            del m, opt
            gc.collect()  # an optimiser and its states refer to each other
            assert used() <= before  # earlier tests may have left something that is collected meanwhile

    spawn(run, 2)


def test_no_sync_and_accumulation():
    def run(rank):
        want = model()
        for s in range(3):
            x, y = batch(s, range(4))
            (want(x) - y).square().mean().backward()
        for m in (FSDP(model(), auto_wrap_policy={Block}), blocks(model())):
            for s in range(3):
                x, y = batch(s, range(rank * 2, rank * 2 + 2))
                if isinstance(m, FSDP) and s < 2:
                    with m.no_sync():
                        (m(x) - y).square().mean().backward()
                    continue
                if not isinstance(m, FSDP):
                    m.set_requires_gradient_sync(s == 2)
                (m(x) - y).square().mean().backward()
            for p, q in zip(m.parameters(), want.parameters(), strict=True):
                np.testing.assert_allclose(p.assemble(p.grad).numpy(), q.grad.numpy(), rtol=1e-9, atol=1e-12)

    spawn(run, 2)


@pytest.mark.parametrize("power", [1.0, 2.0, float("inf")])
def test_case_32_clip(power):
    def run(rank):
        want = model()
        x, y = batch(0, range(6))
        (want(x) - y).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(want.parameters(), 0.05, power).item()
        for clip in (
            lambda m: m.clip_grad_norm_(0.05, power),
            lambda m: nn.utils.clip_grad_norm_(m.parameters(), 0.05, power),
        ):
            m = FSDP(model(), auto_wrap_policy={Block})
            x, y = batch(0, range(rank * 2, rank * 2 + 2))
            (m(x) - y).square().mean().backward()
            assert clip(m).item() == pytest.approx(norm, rel=1e-6)
            for p, q in zip(m.parameters(), want.parameters(), strict=True):
                np.testing.assert_allclose(p.assemble(p.grad).numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-9)

    spawn(run)


def test_hybrid_sharding():
    want = alone(4)

    def run(rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        across = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        groups = (pairs[rank // 2], across[rank % 2])
        m = FSDP(model(), groups, ShardingStrategy.HYBRID_SHARD, auto_wrap_policy={Block})
        train(m, rank, 4)
        close(full(m), want)

    spawn(run, 4)


def test_offload():
    want = alone(2)

    def run(rank):
        m = blocks(model(), offload_policy=fsdp.CPUOffloadPolicy())
        assert {p.device for p in m.parameters()} == {plait.device("cpu")}
        train(m, rank, 2)
        close(full(m), want)

    spawn(run, 2)


def test_case_35_by_hand():
    want = {n: p.detach().numpy() for n, p in model().named_parameters()}

    def run(rank):
        plait.set_default_dtype(plait.float32)
        m = blocks(model())
        shapes = [tuple(p.shape) for p in m.embed.parameters()]
        handle = m.unshard(async_op=True)
        assert [tuple(p.shape) for p in m.embed.parameters()] == shapes
        handle.wait()
        assert (m.embed.weight.detach().numpy() == want["embed.weight"]).all()
        m.reshard()
        assert [tuple(p.shape) for p in m.embed.parameters()] == shapes
        x, _ = batch(0, range(2))
        with pytest.raises(RuntimeError, match="divided over ranks and is not gathered now"):
            m.encode(x)
        fsdp.register_fsdp_forward_method(m, "encode")
        assert m.encode(x).shape == (2, 8)
        f = FSDP(model())
        with FSDP.summon_full_params(f):
            for n, p in f.named_parameters():
                assert (p.detach().numpy() == want[n]).all()
                with plait.no_grad():
                    p.mul_(2)
        for n, v in f.state_dict().items():
            assert (v.numpy() == 2 * want[n]).all()

    spawn(run)


def test_state_dicts():
    def run(rank):
        source = model()
        whole = source.state_dict()
        for make in (blocks, FSDP):
            m = make(model())
            with plait.no_grad():
                for p in m.parameters():
                    p.zero_()
            m.load_state_dict(whole)
            for n, p in m.named_parameters():
                assert (p.full_tensor().numpy() == whole[n].numpy()).all(), n
            m.load_state_dict(m.state_dict())  # its own, of whichever kind
            with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "head.bias"'):
                m.load_state_dict({k: v for k, v in whole.items() if k != "head.bias"})
            with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "tail"'):
                m.load_state_dict({**whole, "tail": whole["head.bias"]})
            with pytest.raises(RuntimeError, match=r"size mismatch for head.bias.*\[3\].*\[2\]"):
                m.load_state_dict({**whole, "head.bias": plait.zeros(3)})
        f = FSDP(model())
        with FSDP.state_dict_type(
            f, fsdp.StateDictType.FULL_STATE_DICT, fsdp.FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        ):
            assert bool(f.state_dict()) == (rank == 0)
        with FSDP.state_dict_type(f, fsdp.StateDictType.SHARDED_STATE_DICT):
            part = f.state_dict()["embed.weight"]
            assert part.shape[0] < 8
            assert (part.full_tensor().numpy() == whole["embed.weight"].numpy()).all()
        opt = train(f, rank, 3)
        state = FSDP.full_optim_state_dict(f, opt, rank0_only=False)
        again = plait.optim.AdamW(f.parameters(), lr=0.05)
        again.load_state_dict(FSDP.shard_full_optim_state_dict(state, f))
        for p in f.parameters():
            for k, v in opt.state[p].items():
                np.testing.assert_array_equal(np.asarray(v), np.asarray(again.state[p][k]))

    spawn(run)


def test_layout():
    def run(rank):
        m = blocks(model())
        layout = {x.name: x for x in m.fsdp_layout()}
        assert layout.keys() == dict(m.named_parameters()).keys()
        head = layout["head.weight"]
        assert head.shape == (2, 8) and [r[1:] for r in head.rows] == [(0, 1), (1, 1), (2, 0)]
        assert head.place == rank and head.primary
        assert [r.length for r in layout["blocks.1.gain"].rows] == [1, 0, 0]

    spawn(run)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks(reentrant):
    from plait.utils.checkpoint import checkpoint

    want = alone(2)

    def run(rank):
        for make in (blocks, fully_shard):
            m = make(model())

            def forward(x, m=m):
                x = m.embed(x)
                for b in m.blocks:
                    x = checkpoint(b, x, use_reentrant=reentrant)
                return m.head(m.norm(x))

            m.__dict__["forward"] = forward
            train(m, rank, 2)
            close(full(m), want)

    spawn(run, 2)


def test_evaluation_between_passes():
    want = alone(2)

    def run(rank):
        m = blocks(model())

        def forward(x):
            out = m(x)
            with plait.no_grad():
                again = m(x)
            assert (out.detach().numpy() == again.numpy()).all()
            return out

        train(m, rank, 2, forward=forward)
        close(full(m), want)

    spawn(run, 2)


def test_bad_input():
    def run(rank):
        m = blocks(model())
        m.late = nn.Linear(2, 2)
        x, y = batch(0, range(2))
        with pytest.raises(RuntimeError, match=r"parameter late\.weight was created after its module was divided"):
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
        rows = ["tensor([[1., 1.],\n        [1., 1.]]", "tensor([[1., 1.]]"][rank]
        at = ["rows 0 to 2", "rows 2 to 3"][rank]
        assert repr(layer.weight) == f"0.weight, {at} of [3, 2]:\n{rows}, requires_grad=True)"
        assert repr(module.state_dict()["0.weight"]) == f"0.weight, {at} of [3, 2]:\n{rows})"
        module.unshard()
        assert repr(layer.weight).startswith(
            "0.weight, gathered:\ntensor([[1., 1.],\n        [1., 1.],\n        [1., 1.]]"
        )
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


@pytest.mark.parametrize(("shape", "rows"), [((1, 2), 4), ((2, 1), 8)])
def test_case33_axes_of_a_mesh(shape, rows):
    """The second axis of a mesh divides, the first has copies."""

    def fn(rank):
        m = fully_shard(nn.Linear(6, 8), mesh=dist.init_device_mesh("cpu", shape, mesh_dim_names=("copies", "shards")))
        return m.weight.shape[0]

    assert on_ranks(2, fn) == [rows, rows]


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
        assert {x.name: x.shape for x in m.fsdp_layout()} == {n: v.shape for n, v in want.items()}
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
            got, saved = (x.assemble(s.state[x]["exp_avg"]).numpy() for x, s in ((q, o), (p, opt)))
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
            assert {x.name for x in m.fsdp_layout()} == set(want)

    spawn(run)
