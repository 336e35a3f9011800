"""FSDP and fully_shard: parity with one device and with DDP, memory, states, policies, and what they refuse."""

import functools
import gc

import numpy as np
import plait
import plait.distributed as dist
import pytest
from plait import nn
from plait.distributed import fsdp
from plait.distributed.fsdp import FSDP, MixedPrecision, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from plait.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
from ranks import on_ranks
from sharded import Block, alone, batch, blocks, close, full, local, model, spawn, train

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
            assert (a.full_tensor().detach().numpy() == b.detach().numpy()).all(), n

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
                sum(v.to_local().numel() for p in m.parameters() for k, v in opt.state[p].items() if k != "step")
                == 2 * elements
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
                np.testing.assert_allclose(p.grad.full_tensor().numpy(), q.grad.numpy(), rtol=1e-9, atol=1e-12)

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
                np.testing.assert_allclose(p.grad.full_tensor().numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-9)

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
        shapes = [tuple(p.to_local().shape) for p in m.embed.parameters()]
        handle = m.unshard(async_op=True)
        assert [tuple(p.to_local().shape) for p in m.embed.parameters()] == shapes
        handle.wait()
        assert (m.embed.weight.detach().numpy() == want["embed.weight"]).all()
        m.reshard()
        assert [tuple(p.to_local().shape) for p in m.embed.parameters()] == shapes
        x, _ = batch(0, range(2))
        with pytest.raises(RuntimeError, match="sharded over ranks and is not gathered now"):
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
                assert (p.full_tensor().detach().numpy() == whole[n].numpy()).all(), n
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
            assert part.to_local().shape[0] < 8
            assert (part.full_tensor().numpy() == whole["embed.weight"].numpy()).all()
        opt = train(f, rank, 3)
        state = FSDP.full_optim_state_dict(f, opt, rank0_only=False)
        again = plait.optim.AdamW(f.parameters(), lr=0.05)
        again.load_state_dict(FSDP.shard_full_optim_state_dict(state, f))
        for p in f.parameters():
            for k, v in opt.state[p].items():
                np.testing.assert_array_equal(local(v), local(again.state[p][k]))

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


@pytest.mark.parametrize(("shape", "rows"), [((1, 2), 4), ((2, 1), 8)])
def test_case33_axes_of_a_mesh(shape, rows):
    """The second axis of a mesh divides, the first has copies."""

    def fn(rank):
        m = fully_shard(nn.Linear(6, 8), mesh=dist.init_device_mesh("cpu", shape, mesh_dim_names=("copies", "shards")))
        assert m.weight.shape == (8, 6)
        return m.weight.to_local().shape[0]

    assert on_ranks(2, fn) == [rows, rows]
