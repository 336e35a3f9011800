"""FSDP of modules whose parameters are distributed tensors: two-dimensional parallelism, equal to one device."""

import plait
import plait.distributed.checkpoint as dcp
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.fsdp import FSDP, CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from plait.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from plait.distributed.tensor.placement_types import _StridedShard
from plait.nn.utils import clip_grad_norm_
from ranks import on_ranks

PLAN = {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()}


class Block(nn.Module):
    """A block of sizes that neither mesh divides evenly, with parameters that stay ordinary tensors."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(5)
        self.up = nn.Linear(5, 7)
        self.down = nn.Linear(7, 5)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).tanh())


def model():
    plait.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(5, 3)).double()


def batch(step):
    x = plait.arange(20.0).double().reshape(4, 5) * 0.7 + step
    return x.sin(), (x[:, :3] * 1.3).cos()


def divided(shape, plan=PLAN, m=None, **options):
    """Returns a model divided over a mesh of (data-parallel, tensor-parallel) ranks, and the mesh."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    m = parallelize_module(m or model(), mesh["tp"], plan)
    for block in m:
        if isinstance(block, Block):
            fully_shard(block, mesh=mesh["dp"], **options)
    return fully_shard(m, mesh=mesh["dp"], **options), mesh


def sgd(m):
    return plait.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)


def adamw(m):
    return plait.optim.AdamW(m.parameters(), lr=0.02, weight_decay=0.1)


def train(m, optimizer, steps, mesh=None, clip=None, accumulate=1):
    """Trains on this rank's rows of each batch, and returns the norms of clipping and the last gradients."""
    norms = []
    for step in steps:
        optimizer.zero_grad()
        for micro in range(accumulate):
            x, y = batch(accumulate * step + micro)
            if mesh is not None:
                at, n = mesh["dp"].get_local_rank(), mesh["dp"].size()
                x, y = x.chunk(n)[at], y.chunk(n)[at]
                m.set_requires_gradient_sync(micro == accumulate - 1)
            ((m(x) - y).square().mean() / accumulate).backward()
        if clip is not None:
            norms.append(clip_grad_norm_(m.parameters(), *clip).item())
        optimizer.step()
    return norms


def whole(t):
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach()


def close(got, want, tolerance=1e-10):
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape
        here = y.to(x.device)
        assert plait.allclose(x, here, rtol=tolerance, atol=tolerance), (x - here).abs().max()


def values(m):
    return [whole(p) for p in m.parameters()]


def gradients(m):
    return [whole(p.grad) for p in m.parameters()]


@pytest.mark.parametrize("make", [sgd, adamw])
@pytest.mark.parametrize("shape", [(2, 2), (1, 2), (2, 1), (2, 3)], ids=str)
def test_training_equals_one_device(shape, make):
    alone = model()
    want_norms = train(alone, make(alone), range(3), clip=(0.3,))

    def fn(rank):
        m, mesh = divided(shape)
        assert train(m, make(m), range(3), mesh, clip=(0.3,)) == pytest.approx(want_norms, rel=1e-10)
        close(gradients(m), gradients(alone))
        close(values(m), values(alone))

    on_ranks(shape[0] * shape[1], fn)


@pytest.mark.parametrize("norm", [1.0, float("inf")])
def test_norms_of_other_orders_and_accumulation(norm):
    alone = model()
    want_norms = train(alone, sgd(alone), range(2), clip=(0.2, norm), accumulate=2)

    def fn(rank):
        m, mesh = divided((2, 2), reshard_after_forward=norm != 1.0)
        assert train(m, sgd(m), range(2), mesh, (0.2, norm), 2) == pytest.approx(want_norms, rel=1e-10)
        close(values(m), values(alone))

    on_ranks(4, fn)


def test_three_data_parallel_ranks_of_which_one_has_no_rows():
    alone = nn.Linear(5, 4).double()
    start = {k: v.clone() for k, v in alone.state_dict().items()}
    x = plait.arange(15.0).double().reshape(3, 5).sin()
    alone(x).square().mean().backward()

    def fn(rank):
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("dp", "tp"))
        m = nn.Linear(5, 4).double()
        m.load_state_dict(start)
        parallelize_module(m, mesh["tp"], ColwiseParallel(output_layouts=Replicate()))
        fully_shard(m, mesh=mesh["dp"])
        at = mesh["dp"].get_local_rank()
        assert m.weight.to_local().shape == (int(at < 2), 5)
        m(x[at : at + 1]).square().mean().backward()
        close(gradients(m), gradients(alone))
        assert clip_grad_norm_(m.parameters(), 1e9).item() == pytest.approx(
            clip_grad_norm_(alone.parameters(), 1e9).item(), rel=1e-12
        )

    on_ranks(6, fn)


def test_parameters_are_distributed_tensors_of_both_dimensions():
    def fn(rank):
        want = model()
        m, mesh = divided((2, 2))
        p = m[0].up.weight
        assert isinstance(p, DTensor) and isinstance(p, nn.Parameter)
        assert p.shape == (7, 5) and p.placements == (_StridedShard(0, split_factor=2), Shard(0))
        assert p.device_mesh == mesh
        tp, dp = (mesh[n].get_local_rank() for n in ("tp", "dp"))
        rows = want[0].up.weight.chunk(2)[tp].chunk(2)[dp]
        assert plait.equal(p.to_local(), rows)
        assert plait.equal(p.full_tensor(), want[0].up.weight)
        assert m[0].down.weight.placements == (Shard(0), Shard(1))
        assert m[0].down.bias.placements == (Shard(0), Replicate())
        with plait.no_grad():
            assert p.norm().full_tensor().item() == pytest.approx(want[0].up.weight.norm().item(), rel=1e-12)
            p.mul_(0.5).add_(p, alpha=0.25)
            close([whole(p)], [want[0].up.weight.detach() * 0.5 * 1.25])
        (m(batch(0)[0]).sum()).backward()
        assert p.grad.placements == p.placements and p.grad.device_mesh == p.device_mesh
        m[0].unshard()
        assert p.placements == (Shard(0),) and p.device_mesh.mesh_dim_names == ("tp",)
        m[0].reshard()
        assert p.placements == (_StridedShard(0, split_factor=2), Shard(0))
        state = adamw(m)
        state.step()
        kept = state.state[p]["exp_avg"]
        assert kept.placements == p.placements and kept.to_local().shape == p.to_local().shape

    on_ranks(4, fn)


def test_mixed_precision_and_offload():
    def fn(rank):
        policy = MixedPrecisionPolicy(param_dtype=plait.float32, reduce_dtype=plait.float64)
        alone = model()
        train(alone, sgd(alone), range(2))
        m, mesh = divided((2, 2), mp_policy=policy)
        o = sgd(m)
        for step in range(2):
            o.zero_grad()
            x, y = (t.chunk(2)[mesh["dp"].get_local_rank()] for t in batch(step))
            (m(x).double() - y).square().mean().backward()
            o.step()
        assert m[0].up.weight.dtype == plait.float64
        close(values(m), values(alone), 1e-5)
        kept, mesh = divided((2, 2), offload_policy=CPUOffloadPolicy())
        train(kept, sgd(kept), range(2), mesh)
        close(values(kept), values(alone))

    on_ranks(4, fn)


def test_hybrid_sharding_of_distributed_parameters():
    alone = model()
    train(alone, adamw(alone), range(2))

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("copies", "dp", "tp"))
        m = parallelize_module(model(), mesh["tp"], PLAN)
        fully_shard(m, mesh=mesh["copies", "dp"])
        o = adamw(m)
        for step in range(2):
            o.zero_grad()
            x, y = (t.chunk(2)[mesh["copies"].get_local_rank()] for t in batch(step))
            (m(x) - y).square().mean().backward()
            o.step()
        close(values(m), values(alone))

    on_ranks(4, fn)


@pytest.mark.parametrize("make", [sgd, adamw])
def test_checkpoints_load_on_other_meshes(tmp_path, make):
    alone = model()
    o = make(alone)
    train(alone, o, range(2))
    half = [v.clone() for v in values(alone)]
    train(alone, o, range(2, 4))
    want = values(alone)
    path = str(tmp_path / "two by two")

    def save(rank):
        m, mesh = divided((2, 2))
        o = make(m)
        train(m, o, range(2), mesh)
        dcp.save({"model": m, "optimizer": o}, checkpoint_id=path)
        close([whole(v) for v in m.state_dict().values()], half)

    on_ranks(4, save)

    def load(shape):
        def fn(rank):
            plait.manual_seed(5)
            m, mesh = divided(shape, m=nn.Sequential(Block(), Block(), nn.Linear(5, 3)).double())
            o = make(m)
            dcp.load({"model": m, "optimizer": o}, checkpoint_id=path)
            close(values(m), half)
            train(m, o, range(2, 4), mesh)
            close(values(m), want)

        on_ranks(shape[0] * shape[1], fn)

    load((1, 2))
    load((2, 1))
    load((1, 3))
    single = nn.Sequential(Block(), Block(), nn.Linear(5, 3)).double()
    o = make(single)
    dcp.load({"model": single, "optimizer": o}, checkpoint_id=path)
    train(single, o, range(2, 4))
    close(values(single), want)


def test_full_state_dicts_load():
    def fn(rank):
        want = model()
        m, _ = divided((2, 2))
        with plait.no_grad():
            for p in m.parameters():
                p.zero_()
        m.load_state_dict(want.state_dict())
        close(values(m), values(want))

    on_ranks(4, fn)


def test_wrong_meshes_are_refused():
    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

        def parallel():
            return parallelize_module(model(), mesh["tp"], PLAN)

        with pytest.raises(ValueError, match=r"0\.up\.weight is .*mesh \(tp=2\) and .*\(4\), want two slices of one"):
            fully_shard(parallel())
        with pytest.raises(ValueError, match=r"0\.up\.weight .*the mesh \(tp=2\).*the mesh \(tp=2\), want two slices"):
            fully_shard(parallel(), mesh=mesh["tp"])
        with pytest.raises(ValueError, match=r"over the mesh \(dp=2, tp=2\), want two slices .* the same axis of \(dp"):
            fully_shard(parallel(), mesh=mesh)
        other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with pytest.raises(ValueError, match=r"no slices of one mesh"):
            fully_shard(parallel(), mesh=other["dp"])
        with pytest.raises(plait.DistributedError, match=r"the ranks' plans differ: rank \d has .*Colwise.* has \{\}"):
            parallelize_module(model(), mesh["tp"], PLAN if mesh["tp"].get_local_rank() == 0 else {})
        plan = PLAN if mesh["dp"].get_local_rank() == 0 else {"*.up": PLAN["*.up"]}
        with pytest.raises(plait.DistributedError, match=r"\"0\.down\.weight\", .* placed \[Shard\(1\)\] on the mesh"):
            fully_shard(parallelize_module(model(), mesh["tp"], plan), mesh=mesh["dp"])
        m, _ = divided((2, 2))
        with pytest.raises(RuntimeError, match=r"parameter up\.weight is sharded over ranks and is not gathered now"):
            m[0].up.weight @ plait.zeros(4)

    on_ranks(4, fn)


def test_distributed_parameters_without_a_dimension():
    class Scale(nn.Module):
        def __init__(self, mesh):
            super().__init__()
            self.scale = nn.Parameter(distribute_tensor(plait.tensor(2.0), mesh, [Replicate()]))

        def forward(self, x):
            return x * self.scale

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
        m = fully_shard(Scale(mesh["tp"]), mesh=mesh["dp"])
        assert m.scale.placements == (Replicate(), Replicate())
        m(distribute_tensor(plait.tensor([1.0, rank]), mesh["tp"], [Replicate()])).sum().backward()
        plait.optim.SGD(m.parameters(), lr=1.0).step()
        assert m.scale.full_tensor().item() == 0.5  # less the average of 1 and 2

    on_ranks(2, fn)


def test_optimizers_that_look_at_parameters_as_wholes():
    def start():
        plait.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh(), nn.Linear(7, 3, bias=False)).double()

    def train(m, name, rows, average):
        o = getattr(plait.optim, name)(m.parameters(), lr=0.05)
        for step in range(3):

            def closure(step=step):
                o.zero_grad()
                x, y = (rows(t) for t in batch(step))
                loss = (m(x) - y).square().mean()
                loss.backward()
                return average(loss.detach().clone())

            o.step(closure)

    def fn(rank):
        for name in ("Adafactor", "LBFGS", "Muon"):
            alone = start()
            train(alone, name, lambda t: t, lambda loss: loss)
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            m = parallelize_module(start(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(m, mesh=mesh["dp"])

            def average(loss):
                dist.all_reduce(loss, dist.ReduceOp.AVG)
                return loss

            train(m, name, lambda t, mesh=mesh: t.chunk(2)[mesh["dp"].get_local_rank()], average)
            close(values(m), values(alone), 1e-8)

    on_ranks(4, fn)


def test_hooks_and_optimizers_in_backward():
    alone = model()
    train(alone, sgd(alone), range(2))

    def fn(rank):
        m, mesh = divided((2, 2))
        each = {p: plait.optim.SGD([p], lr=0.05, momentum=0.9) for p in m.parameters()}

        def step(p):
            each[p].step()
            p.grad = None

        for p in m.parameters():
            p.register_hook(lambda g: g * 2)
            p.register_post_accumulate_grad_hook(step)
        for i in range(2):
            x, y = (t.chunk(2)[mesh["dp"].get_local_rank()] for t in batch(i))
            (m(x) - y).square().mean().backward()
        close(values(m), values(alone))

    on_ranks(4, fn)


def test_a_gradient_that_is_not_finite_on_one_rank_skips_the_step_on_all():
    def fn(rank):
        m, mesh = divided((2, 2))
        before, o = values(m), sgd(m)
        scaler = plait.amp.GradScaler(device="cpu", init_scale=8.0)
        x, _ = (t.chunk(2)[mesh["dp"].get_local_rank()] for t in batch(0))
        scaler.scale(m(x).sum() * (float("inf") if mesh["dp"].get_local_rank() == 0 else 1.0)).backward()
        scaler.step(o)
        scaler.update()
        assert scaler.get_scale() == 4.0
        close(values(m), before)

    on_ranks(4, fn)


def test_full_states_of_models_and_optimizers():
    full = StateDictOptions(full_state_dict=True)

    def fn(rank):
        m, mesh = divided((2, 2))
        o = adamw(m)
        train(m, o, range(1), mesh)
        states = get_model_state_dict(m, options=full), get_optimizer_state_dict(m, o, options=full)
        assert states[0]["0.up.weight"].shape == states[1]["state"]["0.up.weight"]["exp_avg"].shape == (7, 5)
        other, _ = divided((2, 2))
        others = adamw(other)
        set_model_state_dict(other, states[0], options=full)
        set_optimizer_state_dict(other, others, states[1], options=full)
        train(m, o, range(1, 2), mesh)
        train(other, others, range(1, 2), mesh)
        close(values(other), values(m))

    on_ranks(4, fn)


def test_the_class_shows_and_writes_full_parameters():
    alone = model()
    train(alone, sgd(alone), range(2))

    def fn(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        m = FSDP(parallelize_module(model(), mesh["tp"], PLAN), device_mesh=mesh["dp"])
        o = sgd(m)
        for i in range(2):
            o.zero_grad()
            x, y = (t.chunk(2)[mesh["dp"].get_local_rank()] for t in batch(i))
            (m(x) - y).square().mean().backward()
            o.step()
        close(list(m.state_dict().values()), list(alone.state_dict().values()))
        p = next(p for p in m.parameters() if p.shape == (7, 5))
        with FSDP.summon_full_params(m), plait.no_grad():
            assert p.placements == (Shard(0),)
            p.mul_(2.0)
        close([whole(p)], [alone[0].up.weight.detach() * 2])

    on_ranks(4, fn)
