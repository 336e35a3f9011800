"""FSDP's communication hooks, scaled losses, ways of showing whole parameters, and states of optimisers."""

import numpy as np
import plait
import pytest
from plait import nn
from plait.distributed import fsdp
from plait.distributed.algorithms._comm_hooks import default_hooks
from plait.distributed.fsdp import FSDP, ShardedGradScaler, ShardingStrategy, fully_shard
from plait.distributed.tensor import DTensor
from ranks import on_ranks
from sharded import local


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
    return {n: p.full_tensor().detach().numpy() for n, p in m.named_parameters()}


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
                np.testing.assert_allclose(local(p.grad), local(q.grad), rtol=0.02, atol=1e-3)

    on_ranks(3, run)


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

    on_ranks(3, run)


@pytest.mark.parametrize("make", [ShardedGradScaler, plait.amp.GradScaler])
def test_scaled_losses_are_left_out_together(make):
    def run(rank):
        m = FSDP(model())
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        scaler = make("cpu", init_scale=8.0, growth_interval=1)
        before = full(m)
        loss = m(batch(rank)).square().mean()
        scaler.scale(loss).backward()
        if rank == 1:
            with plait.no_grad():
                m[0].weight.grad.to_local()[0, 0] = float("inf")
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

    on_ranks(3, run)


def test_scaled_losses_by_a_plain_scaler():
    def run(rank):
        plait.manual_seed(0)
        m = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 1, bias=False)})
        fully_shard(m["a"])
        fully_shard(m["b"])  # of which rank 0 has everything
        a, b = (plait.optim.SGD(m[k].parameters(), lr=0.1) for k in "ab")
        scaler = plait.amp.GradScaler("cpu", init_scale=8.0)
        before = [p.full_tensor().detach().numpy() for p in m.parameters()]
        w = plait.ones(4)
        w[0] = float("inf")  # a row that rank 0 has
        loss = (m["a"](plait.ones(2, 4)) * w).sum() + m["b"](plait.ones(2, 4)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(b)
        with pytest.raises(RuntimeError, match="called twice"):
            scaler.unscale_(b)
        scaler.step(a)
        scaler.step(b)
        with pytest.raises(RuntimeError, match="called twice"):
            scaler.step(a)
        scaler.update()
        assert scaler.get_scale() == 4.0
        after = [p.full_tensor().detach().numpy() for p in m.parameters()]
        assert [bool((x == y).all()) for x, y in zip(before, after, strict=True)] == [True, True, False]

    on_ranks(3, run)


def test_full_params_of_mixed_precision_are_whole_in_precision_too():
    want = [p.detach().numpy() for p in model().parameters()]
    half = fsdp.MixedPrecision(param_dtype=plait.bfloat16)

    def run(rank):
        m = FSDP(model(), auto_wrap_policy={nn.Sequential}, mixed_precision=half)
        for _ in range(2):
            with FSDP.summon_full_params(m):
                for p, w in zip(m.parameters(), want, strict=True):
                    assert p.dtype is plait.get_default_dtype()
                    assert (p.detach().numpy() == w).all()
                    with plait.no_grad():
                        p.add_(0)  # written back
            assert m(batch(rank).bfloat16()).dtype is plait.bfloat16

    on_ranks(2, run)


def test_summon_full_params():
    want = {n: p.detach().numpy() for n, p in model().named_parameters()}

    def run(rank):
        m = FSDP(model(), auto_wrap_policy={nn.Sequential})
        m(batch(rank)).square().mean().backward()
        grads = {n: p.grad.full_tensor().numpy() for n, p in m.named_parameters()}
        with FSDP.summon_full_params(m, with_grads=True, offload_to_cpu=True):
            for n, p in m.named_parameters():
                assert (p.detach().numpy() == want[n]).all()
                assert (p.grad.numpy() == grads[n]).all()
                with plait.no_grad():
                    p.mul_(2)
                    p.grad.mul_(4)
        for n, p in m.named_parameters():
            assert (p.full_tensor().detach().numpy() == 2 * want[n]).all()
            assert (p.grad.full_tensor().numpy() == 4 * grads[n]).all()
        with FSDP.summon_full_params(m, writeback=False, rank0_only=True):
            assert (m[0].weight.to_local().shape == (8, 6)) == (rank == 0)
            with plait.no_grad():
                if rank == 0:
                    m[0].weight.zero_()
        assert (m[0].weight.full_tensor().detach().numpy() != 0).any() or rank != 0
        with FSDP.summon_full_params(m, recurse=False):
            assert m[0].weight.shape == (8, 6)
            assert m[2][0].weight.to_local().shape[0] < 5
        with pytest.raises(NotImplementedError), FSDP.summon_full_params(m, rank0_only=True):
            pass

    on_ranks(3, run)


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
                    np.testing.assert_array_equal(local(v), local(again.state[p][k]))
        assert FSDP.get_state_dict_type(m).state_dict_type is fsdp.StateDictType.FULL_STATE_DICT
        with FSDP.state_dict_type(m, fsdp.StateDictType.SHARDED_STATE_DICT):
            assert FSDP.get_state_dict_type(m).state_dict_type is fsdp.StateDictType.SHARDED_STATE_DICT
            assert FSDP.optim_state_dict(m, opt)["state"]["0.weight"]["exp_avg"].to_local().shape[0] < 8
        n = fully_shard(model())
        n.set_post_optim_event(None)
        n.set_force_sum_reduction_for_comms(True)

    on_ranks(3, run)


def test_configs_of_optimiser_states():
    def run(rank):
        m = FSDP(model())
        opt = train(m, rank)
        full, sharded = fsdp.StateDictType.FULL_STATE_DICT, fsdp.StateDictType.SHARDED_STATE_DICT
        for kind, config in (
            (full, None),
            (full, fsdp.FullOptimStateDictConfig(offload_to_cpu=False)),
            (full, fsdp.FullOptimStateDictConfig(rank0_only=True)),
            (sharded, None),
            (sharded, fsdp.ShardedOptimStateDictConfig(offload_to_cpu=False)),
        ):
            with FSDP.state_dict_type(m, kind, None, config):
                state = FSDP.optim_state_dict(m, opt)
                if config is not None:
                    assert FSDP.get_state_dict_type(m).optim_state_dict_config is config
            if getattr(config, "rank0_only", False) and rank:
                assert state == {}
                continue
            average = state["state"]["0.weight"]["exp_avg"]
            assert average.shape == (8, 6) and isinstance(average, DTensor) == (kind is not full)
            again = plait.optim.AdamW(m.parameters(), lr=0.5)
            if not getattr(config, "rank0_only", False):
                again.load_state_dict(FSDP.optim_state_dict_to_load(m, again, state))
                for p in m.parameters():
                    np.testing.assert_array_equal(local(opt.state[p]["exp_avg"]), local(again.state[p]["exp_avg"]))
        with FSDP.state_dict_type(m, sharded, fsdp.ShardedStateDictConfig(offload_to_cpu=True)):
            state = m.state_dict()
            assert plait.equal(state["0.weight"].full_tensor(), m[0].weight.full_tensor())
            m.load_state_dict(state)
        for wrong in ((full, fsdp.ShardedStateDictConfig()), (sharded, None, fsdp.FullOptimStateDictConfig())):
            with pytest.raises(TypeError, match=r"STATE_DICT wants a .*Config, got "):
                FSDP.set_state_dict_type(m, *wrong)
        with pytest.raises(TypeError, match="want a StateDictType, got 'full'"):
            FSDP.set_state_dict_type(m, "full")

    on_ranks(3, run)


def test_ranks_without_gradients_scale_with_the_others():
    """A rank whose optimiser has nothing to step neither keeps the others waiting nor scales otherwise than they."""

    def run(rank):
        p = plait.nn.Parameter(plait.ones(2))
        opt = plait.optim.SGD([p], lr=1.0)
        scaler = ShardedGradScaler("cpu", init_scale=8.0, growth_interval=1)
        for gradient, want in ((16.0, -1.0), (float("inf"), -1.0), (8.0, -2.0)):
            if rank == 0:
                p.grad = plait.full((2,), gradient * scaler.get_scale() / 8.0)
            scaler.step(opt)
            scaler.update()
            assert p.tolist() == ([want] * 2 if rank == 0 else [1.0] * 2)
        opt.zero_grad()
        with pytest.raises(RuntimeError, match="no parameter of this optimiser has a gradient"):
            scaler.step(opt)
        return scaler.get_scale()

    assert on_ranks(3, run) == [16.0] * 3


@pytest.mark.parametrize("factor", [None, 2.0])
def test_all_reduce_hooks(factor):
    """A hook sees the averages, and what it makes of them is what the shards get."""

    def run(rank):
        seen = []

        def hook(part):
            assert part.dim() == 1
            assert not plait.is_grad_enabled()
            seen.append(part.numel())
            part.mul_(0.5)

        m, want = (fully_shard(model()) for _ in range(2))
        for each in (m, want):
            if factor is not None:
                each.set_gradient_divide_factor(factor)
        m.set_all_reduce_hook(hook)
        for each in (m, want):
            for _ in range(2):
                each(batch(rank)).square().mean().backward()
        for p, q in zip(m.parameters(), want.parameters(), strict=True):
            np.testing.assert_allclose(local(p.grad), local(q.grad) / 2, rtol=1e-6)
        assert len(seen) == 2
        with pytest.raises(RuntimeError, match="only one"):
            m.set_all_reduce_hook(hook)
        with pytest.raises(TypeError, match="want a function, got int"):
            want.set_all_reduce_hook(3)
        with pytest.raises(RuntimeError, match="before the first step"):
            want.set_all_reduce_hook(hook)

    on_ranks(2, run)


@pytest.mark.parametrize("way", ["FSDP", "fully_shard"])
def test_inputs_stay_with_a_model_whose_outermost_module_has_no_parameters(way):
    def run(rank):
        there = plait.device(f"cpu:{rank + 2}")
        m = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
        if way == "FSDP":
            m = FSDP(m, auto_wrap_policy={nn.Linear}, device_id=there)
        else:
            m = m.to(there)
            for layer in (m[0], m[2], m):
                fully_shard(layer)
        for x in (batch(rank).to(there), batch(rank)):
            y = m(x)
            assert y.device == there
            y.square().mean().backward()

    on_ranks(2, run)
