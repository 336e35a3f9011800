"""What a program changes of sharded parameters between passes: gathered ones, their dtype and their memory."""

import copy

import plait
import pytest
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.fsdp import FSDP, CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from plait.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from plait.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector, vector_to_parameters
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks


def model():
    plait.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2))


def divided(**options):
    m = model()
    fully_shard(m[0], **options)
    return fully_shard(m, **options)


def batch(rank=0):
    return plait.arange(12.0).reshape(3, 4).sin() + rank


def wholes(m):
    return [p.full_tensor().detach() for p in m.parameters()]


def unshard(m):
    m.unshard()
    m[0].unshard()


def reshard(m):
    m.reshard()
    m[0].reshard()


def same(got, want):
    for x, y in zip(got, want, strict=True):
        assert plait.equal(x, y)


OPTIONS = {
    "plain": {},
    "kept": {"reshard_after_forward": False},
    "offloaded": {"offload_policy": CPUOffloadPolicy()},
    "mixed": {"mp_policy": MixedPrecisionPolicy(param_dtype=plait.bfloat16)},
}


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("how", OPTIONS)
def test_changes_of_gathered_parameters_reach_the_shards(how, ranks):
    def run(rank):
        m = divided(**OPTIONS[how])
        want = wholes(m)
        unshard(m)
        with plait.no_grad():
            m[0].weight.mul_(2)
            m[2].bias[0] = 0.25
            m[0].bias.data.fill_(0.5)
        reshard(m)
        got = wholes(m)
        if how == "mixed":
            assert plait.allclose(got[0], want[0] * 2, rtol=2**-7)
        else:
            assert plait.equal(got[0], want[0] * 2)
        assert (got[1] == 0.5).all() and got[3][0] == 0.25
        assert plait.equal(got[3][1:], want[3][1:]), "what did not change keeps its bits, with mixed precision too"
        assert plait.equal(got[2], want[2])
        m.unshard()
        with plait.no_grad():
            m[2].weight.zero_()
            m[2].bias.fill_(0.75)
        out = m(batch())  # which ends the state of unshard
        assert (out == 0.75).all()
        assert (wholes(m)[2] == 0).all() and (wholes(m)[3] == 0.75).all()
        m.unshard()
        m[2].weight.requires_grad_(False)
        m.reshard()
        assert not m[2].weight.requires_grad and m[2].bias.requires_grad

    on_ranks(ranks, run)


def test_other_memory_in_place_of_a_gathered_parameter():
    def run(rank):
        m = divided()
        mine = plait.full((7, 4), 3.0)
        unshard(m)
        m[0].weight.data = mine
        reshard(m)
        assert (mine == 3).all(), "the program's memory stays its own"
        assert (m[0].weight.full_tensor() == 3).all()
        m(batch()).sum().backward()
        assert (mine == 3).all()
        unshard(m)
        m[0].weight.data = mine.half()
        with pytest.raises(RuntimeError, match=r"given other data while it was gathered, float16\[7 4\] in place of"):
            m[0].reshard()
        m.reshard()
        assert (m[0].weight.full_tensor() == 3).all()
        m(batch()).sum().backward()

    on_ranks(2, run)


@pytest.mark.parametrize("ranks", [1, 3])
def test_gradients_while_parameters_are_gathered(ranks):
    def run(rank):
        m = divided()
        alone = model()
        opt = plait.optim.SGD(m.parameters(), lr=1.0)
        m(batch(rank)).square().mean().backward()
        for r in range(ranks):
            (alone(batch(r)).square().mean() / ranks).backward()
        unshard(m)
        want = clip_grad_norm_(alone.parameters(), 0.5)
        assert clip_grad_norm_(m.parameters(), 0.5).item() == pytest.approx(want.item(), rel=1e-5)
        clip_grad_value_(m.parameters(), 0.1)
        clip_grad_value_(alone.parameters(), 0.1)
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert plait.allclose(p.grad.full_tensor(), q.grad, rtol=1e-5, atol=1e-7)
        before = wholes(m)
        opt.step()
        reshard(m)
        for p, q, old in zip(m.parameters(), alone.parameters(), before, strict=True):
            assert plait.allclose(p.full_tensor(), old - q.grad, rtol=1e-4, atol=1e-6)
        unshard(m)
        opt.zero_grad(set_to_none=False)
        reshard(m)
        assert all((p.grad.full_tensor() == 0).all() for p in m.parameters())
        unshard(m)
        m[0].weight.grad = None
        m[2].zero_grad(set_to_none=False)
        reshard(m)
        assert m[0].weight.grad is None and m[0].bias.grad is not None

    on_ranks(ranks, run)


@pytest.mark.parametrize("ranks", [1, 2])
def test_state_dicts_while_parameters_are_gathered(ranks):
    def run(rank):
        m = divided()
        plait.manual_seed(5)
        other = {k: plait.randn_like(v) for k, v in model().state_dict().items()}
        unshard(m)
        m.load_state_dict(other)
        reshard(m)
        same(wholes(m), other.values())
        unshard(m)
        state = m.state_dict()
        m[0].reshard()
        assert all(isinstance(v, DTensor) for v in state.values())
        same([v.full_tensor() for v in state.values()], other.values())
        f = FSDP(model(), auto_wrap_policy={nn.Linear})
        with FSDP.summon_full_params(f):
            f.load_state_dict(other)
            same([p.detach() for p in f.parameters()], other.values())
        same(wholes(f), other.values())

    on_ranks(ranks, run)


def test_summoned_parameters_stay_so_until_the_end():
    def run(rank):
        f = FSDP(model())
        with FSDP.summon_full_params(f):
            f[0].weight.reshard()
            handle = f[0].weight.register_hook(lambda g: g)
            with plait.no_grad():
                f[0].weight.fill_(2)
            f[2].weight.data = plait.ones(2, 7)
        handle.remove()
        assert (f[0].weight.full_tensor() == 2).all() and (f[2].weight.full_tensor() == 1).all()

    on_ranks(2, run)


CASTS = {
    "half": lambda m: m.half(),
    "to": lambda m: m.to(plait.float16),
    "data": lambda m: [setattr(p, "data", p.data.half()) for p in m.parameters()],
}


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("first", [True, False], ids=["before the first step", "after it"])
@pytest.mark.parametrize("how", CASTS)
def test_a_new_dtype_is_that_of_computation(how, first, ranks):
    def run(rank):
        seen = []
        m, alone = divided(), model()
        m[0].register_forward_hook(lambda *args: seen.append(args[2].dtype))
        for a in (m, alone):
            if not first:
                a(batch()).square().mean().backward()
            CASTS[how](a)
            if how == "data":
                a.zero_grad()
        opt, want = (plait.optim.SGD(a.parameters(), lr=0.1) for a in (m, alone))
        del seen[:]
        for _ in range(2):
            for a, o in ((m, opt), (alone, want)):
                o.zero_grad()
                out = a(batch().half())
                assert out.dtype == plait.float16
                out.square().mean().backward()
                o.step()
        assert seen == [plait.float16] * 2
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert p.dtype == p.grad.dtype == p.full_tensor().dtype == plait.float16
            assert plait.allclose(p.full_tensor(), q, rtol=2e-3, atol=1e-3)

    on_ranks(ranks, run)


def test_a_new_dtype_with_mixed_precision_is_that_of_the_shards_alone():
    def run(rank):
        m = divided(mp_policy=MixedPrecisionPolicy(param_dtype=plait.bfloat16)).double()
        assert m(batch()).dtype == plait.bfloat16
        m(batch()).sum().backward()
        assert m[0].weight.grad.dtype == plait.float64

    on_ranks(2, run)


def test_modules_move_to_another_device():
    def run(rank):
        m = divided()
        m(batch()).sum().backward()
        want = [p.grad.full_tensor() for p in m.parameters()]
        m.zero_grad()
        there = plait.device("cpu", 1 - rank)
        m.to(there)
        out = m(batch().to(there))
        assert out.device == there
        out.sum().backward()
        assert all(p.grad.device == there for p in m.parameters())
        for p, g in zip(m.parameters(), want, strict=True):
            assert plait.allclose(p.grad.full_tensor(), g.to(there))
        m[0].weight.data = m[0].weight.data.to(plait.device("cpu", rank))
        with pytest.raises(RuntimeError, match="want all parameters of the unit"):
            m(batch().to(there))

    on_ranks(2, run, devices=["cpu:0", "cpu:1"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_states_are_assigned(ranks):
    def run(rank):
        m = divided()
        opt = plait.optim.SGD(m.parameters(), lr=0.1)
        m(batch()).sum().backward()
        plait.manual_seed(5)
        full = {k: plait.randn_like(v) for k, v in model().state_dict().items()}
        mesh = m[0].weight.device_mesh
        alike = {k: distribute_tensor(v, mesh, [Shard(0)]) for k, v in full.items()}
        kept = m[0].weight
        m.load_state_dict(alike, assign=True)
        assert m[0].weight is kept
        same(wholes(m), full.values())
        with plait.no_grad():
            alike["0.weight"].fill_(2)
        assert (m[0].weight.full_tensor() == 2).all(), "the memory is shared"
        m(batch()).sum().backward()
        opt.step()
        assert not (m[0].weight.full_tensor() == 2).all()
        m.load_state_dict(full, assign=True)
        same(wholes(m), full.values())
        m.load_state_dict({k: distribute_tensor(v, mesh, [Replicate()]) for k, v in full.items()}, assign=True)
        same(wholes(m), full.values())
        m.load_state_dict({k: v.half() for k, v in full.items()}, assign=True)
        assert m(batch().half()).dtype == plait.float16
        frozen = {k: nn.Parameter(v, requires_grad=False) for k, v in full.items()}
        with pytest.raises(RuntimeError, match=r"size mismatch for 0\.weight"):
            m.load_state_dict({**frozen, "0.weight": plait.zeros(3)}, assign=True)
        with FSDP.summon_full_params(f := FSDP(copy.deepcopy(model()))):
            f.load_state_dict(full, assign=True)
        same(wholes(f), full.values())

    on_ranks(ranks, run)


@pytest.mark.parametrize("shape", [(1,), (2, 1)], ids=str)
def test_the_only_rank_of_a_shard_group_has_distributed_tensors(shape):
    def run(rank):
        mesh = init_device_mesh("cpu", shape)
        m, alone = model(), model()
        fully_shard(m[0], mesh=mesh)
        fully_shard(m, mesh=mesh)
        placed = (Replicate(),) * (len(shape) - 1) + (Shard(0),)
        seen = []
        m[0].weight.register_hook(seen.append)
        m[2].weight.register_post_accumulate_grad_hook(seen.append)
        opt, want = (plait.optim.AdamW(a.parameters(), lr=0.1) for a in (m, alone))
        momentum = plait.optim.SGD(m.parameters(), lr=0.0, momentum=0.9)
        for _ in range(2):
            for a, o in ((m, opt), (alone, want)):
                o.zero_grad()
                loss = a(batch()).square().mean() + sum(p.square().sum() for p in a.parameters())
                loss.backward()
                clip_grad_norm_(a.parameters(), 0.5)
                o.step()
        momentum.step()
        assert len(seen) == 4 and all(isinstance(x, DTensor) and x.placements == placed for x in seen)
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            for x in (p, p.grad, opt.state[p]["exp_avg"], momentum.state[p]["momentum_buffer"]):
                assert isinstance(x, DTensor) and x.placements == placed and x.device_mesh == mesh
            assert plait.allclose(p.full_tensor(), q, rtol=1e-5, atol=1e-6)
            assert plait.allclose(p.grad.full_tensor(), q.grad, rtol=1e-5, atol=1e-6)
        with pytest.raises(RuntimeError, match=r"parameter weight is sharded over ranks and is not gathered"):
            m[0].weight @ plait.zeros(4, 2)
        m[0].unshard()
        assert (m[0].weight @ plait.zeros(4, 2)).shape == (7, 2)

    on_ranks(shape[0], run)


def test_recomputed_units_of_one_rank():
    def run(rank):
        m, alone = divided(), model()
        states = []

        def step(p):
            states.append((p, p.grad))

        for p in m.parameters():
            p.register_post_accumulate_grad_hook(step)
        for a in (m, alone):
            checkpoint(a, batch(), use_reentrant=False).square().mean().backward()
        assert all(isinstance(x, DTensor) for pair in states for x in pair) and len(states) == 4
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert plait.allclose(p.grad.full_tensor(), q.grad)

    on_ranks(1, run)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("how", OPTIONS)
def test_terms_of_whole_and_local_parameters_have_gradients(how, ranks):
    """L2 terms through `full_tensor`, and of a rank's part through `to_local`, in the loss."""

    def loss(m, terms):
        x = batch()
        return m(x).float().square().mean() + sum(terms(p) for p in m.parameters())

    def run(rank):
        m, alone = divided(**OPTIONS[how]), model()
        loss(alone, lambda p: p.square().sum() * 0.1 + p.abs().sum()).backward()
        for terms in (
            lambda p: p.full_tensor().square().sum() * 0.1 + p.abs().sum().full_tensor(),
            lambda p: p.to_local().square().sum() * 0.1 + p.to_local().abs().sum(),
        ):
            for _ in range(2):
                m.zero_grad()
                loss(m, terms).backward()
                for p, q in zip(m.parameters(), alone.parameters(), strict=True):
                    assert plait.allclose(
                        p.grad.full_tensor(), q.grad, rtol=1e-5, atol=1e-6 if how != "mixed" else 2e-2
                    )
        m.zero_grad()
        m[2].weight.full_tensor().sum().backward()
        assert (m[2].weight.grad.full_tensor() == 1).all() and m[0].weight.grad is None
        with plait.no_grad():
            assert not m[2].weight.full_tensor().requires_grad
        m.unshard()
        assert m[2].weight.full_tensor().requires_grad and m[2].weight.to_local().requires_grad

    on_ranks(ranks, run)


@pytest.mark.parametrize("ranks", [1, 3])
def test_parameters_of_a_vector(ranks):
    def run(rank):
        m, alone = divided(), model()
        doubled = parameters_to_vector(alone.parameters()).detach() * 2
        for vector in (doubled, parameters_to_vector(m.parameters()) * 2):
            if vector is not doubled:
                vector_to_parameters(doubled / 2, m.parameters())
            vector_to_parameters(vector, m.parameters())
            for p, q in zip(m.parameters(), alone.parameters(), strict=True):
                assert plait.allclose(p.full_tensor(), q * 2)
            m(batch()).sum().backward()
        unshard(m)
        vector_to_parameters(doubled / 2, m.parameters())
        reshard(m)
        for p, q in zip(m.parameters(), alone.parameters(), strict=True):
            assert plait.equal(p.full_tensor(), q)
        assert plait.equal(doubled, parameters_to_vector(alone.parameters()) * 2)

    on_ranks(ranks, run)
