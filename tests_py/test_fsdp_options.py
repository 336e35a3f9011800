"""FSDP's communication hooks, scaled losses, ways of showing whole parameters, and states of optimisers."""

import numpy as np
import plait
import plait.distributed as dist
import pytest
from plait import nn
from plait.distributed import fsdp
from plait.distributed.algorithms._comm_hooks import default_hooks
from plait.distributed.fsdp import FSDP, ShardedGradScaler, ShardingStrategy, fully_shard


def model():
    plait.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 5), nn.Tanh()), nn.Linear(5, 2))


def batch(rank, rows=2):
    x = np.random.default_rng(rank).standard_normal((rows, 6))
    return plait.tensor(x, dtype=plait.get_default_dtype())


def train(m, rank, steps=3):
    opt = plait.optim.AdamW(m.parameters(), lr=0.05)
    for s in range(steps):
        opt.zero_grad()
        m(batch(rank + 10 * s)).square().mean().backward()
        opt.step()
    return opt


def full(m):
    return {n: p.full_tensor().numpy() for n, p in m.named_parameters()}


def spawn(fn, nprocs=3):
    def start(rank):
        dist.init_process_group(timeout=120)
        fn(rank)

    dist.spawn(start, nprocs=nprocs)


STRATEGIES = [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hooks(strategy):
    def run(rank):
        want = FSDP(model(), sharding_strategy=strategy, auto_wrap_policy={nn.Sequential})
        train(want, rank)
        whole = strategy is ShardingStrategy.NO_SHARD
        hook = default_hooks.allreduce_hook if whole else default_hooks.reduce_scatter_hook
        m = FSDP(model(), sharding_strategy=strategy, auto_wrap_policy={nn.Sequential})
        m.register_comm_hook(default_hooks.DefaultState(), hook)
        train(m, rank)
        for n, v in full(want).items():
            assert (full(m)[n] == v).all(), n
        for small in (default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
            m = FSDP(model(), sharding_strategy=strategy)
            m.register_comm_hook(default_hooks.DefaultState(), small)
            m(batch(rank)).square().mean().backward()
            w = FSDP(model(), sharding_strategy=strategy)
            w(batch(rank)).square().mean().backward()
            for p, q in zip(m.parameters(), w.parameters(), strict=True):
                np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=0.02, atol=1e-3)

    spawn(run)


def test_bad_hooks():
    def run(rank):
        m = FSDP(model())
        with pytest.raises(TypeError, match="want a function"):
            m.register_comm_hook(None, 3)

        def broken(state, grad, part):
            raise KeyError("of the hook")

        m.register_comm_hook(None, broken)
        with pytest.raises(RuntimeError, match="there can be only one"):
            m.register_comm_hook(None, broken)
        with pytest.raises(KeyError, match="of the hook"):
            m(batch(rank)).square().mean().backward()

    spawn(run)


def test_scaled_losses_are_left_out_together():
    def run(rank):
        m = FSDP(model())
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        scaler = ShardedGradScaler(init_scale=8.0, growth_interval=1)
        before = full(m)
        loss = m(batch(rank)).square().mean()
        scaler.scale(loss).backward()
        if rank == 1:
            with plait.no_grad():
                m[0].weight.grad[0, 0] = float("inf")
        assert scaler.step(opt) is None
        scaler.update()
        assert scaler.get_scale() == 4.0
        for n, v in full(m).items():
            assert (v == before[n]).all()
        opt.zero_grad()
        scaler.scale(m(batch(rank)).square().mean()).backward()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        assert scaler.get_scale() == 8.0
        want = FSDP(model())
        o = plait.optim.SGD(want.parameters(), lr=0.1)
        want(batch(rank)).square().mean().backward()
        o.step()
        for n, v in full(want).items():
            np.testing.assert_allclose(full(m)[n], v, rtol=1e-6)

    spawn(run)


def test_summon_full_params():
    want = {n: p.detach().numpy() for n, p in model().named_parameters()}

    def run(rank):
        m = FSDP(model(), auto_wrap_policy={nn.Sequential})
        m(batch(rank)).square().mean().backward()
        grads = {n: p.assemble(p.grad).numpy() for n, p in m.named_parameters()}
        with FSDP.summon_full_params(m, with_grads=True, offload_to_cpu=True):
            for n, p in m.named_parameters():
                assert (p.detach().numpy() == want[n]).all()
                assert (p.grad.numpy() == grads[n]).all()
                with plait.no_grad():
                    p.mul_(2)
                    p.grad.mul_(4)
        for n, p in m.named_parameters():
            assert (p.full_tensor().numpy() == 2 * want[n]).all()
            assert (p.assemble(p.grad).numpy() == 4 * grads[n]).all()
        with FSDP.summon_full_params(m, writeback=False, rank0_only=True):
            assert (m[0].weight.shape == (8, 6)) == (rank == 0)
            with plait.no_grad():
                m[0].weight.zero_()
        assert (m[0].weight.full_tensor().numpy() != 0).any() or rank != 0
        with FSDP.summon_full_params(m, recurse=False):
            assert m[0].weight.shape == (8, 6)
            assert m[2][0].weight.shape[0] < 5
        with pytest.raises(NotImplementedError), FSDP.summon_full_params(m, rank0_only=True):
            pass

    spawn(run)


def test_optimiser_states():
    def run(rank):
        m = FSDP(model())
        opt = train(m, rank)
        whole = FSDP.full_optim_state_dict(m, opt)
        assert bool(whole) == (rank == 0)
        states = (
            FSDP.scatter_full_optim_state_dict(whole if rank == 0 else None, m),
            FSDP.optim_state_dict_to_load(m, opt, FSDP.optim_state_dict(m, opt)),
            FSDP.optim_state_dict_to_load(m, opt, FSDP.sharded_optim_state_dict(m, opt)),
        )
        for state in states:
            again = plait.optim.AdamW(m.parameters(), lr=0.5)
            again.load_state_dict(state)
            assert again.param_groups[0]["lr"] == 0.05
            for p in m.parameters():
                for k, v in opt.state[p].items():
                    np.testing.assert_array_equal(np.asarray(v), np.asarray(again.state[p][k]))
        assert FSDP.get_state_dict_type(m).state_dict_type is fsdp.StateDictType.FULL_STATE_DICT
        with FSDP.state_dict_type(m, fsdp.StateDictType.SHARDED_STATE_DICT):
            assert FSDP.get_state_dict_type(m).state_dict_type is fsdp.StateDictType.SHARDED_STATE_DICT
            assert FSDP.optim_state_dict(m, opt)["state"]["0.weight"]["exp_avg"].shape[0] < 8
        n = fully_shard(model())
        n.set_post_optim_event(None)
        n.set_force_sum_reduction_for_comms(True)

    spawn(run)
