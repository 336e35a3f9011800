"""`plait.parallelize`: one model over the axes of one mesh, in any composition equal to one device."""

import copy
import itertools
import math
import random
import tempfile

import plait
import pytest
from laid import (
    FLAT,
    LAYERS,
    Composition,
    GPTBlock,
    LlamaBlock,
    ViTBlock,
    batch,
    compare,
    loss_of,
    made,
    on_ranks,
    optimizer_of,
    raises,
    train_alone,
    train_laid,
    whole,
)
from plait import distributed as dist
from plait import nn
from plait.distributed import checkpoint as dcp
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from plait.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from plait.distributed.parallel import ParallelModule
from plait.distributed.tensor import Replicate, Shard
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from plait.nn import functional as F


@pytest.mark.parametrize("seed", range(10))
def test_random_compositions_equal_one_device_and_hand_over_checkpoints(seed):
    check_compositions(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 100))
def test_more_random_compositions(seed):
    check_compositions(seed)


def check_compositions(seed):
    rng = random.Random(seed)
    block = rng.choice([LlamaBlock, GPTBlock, ViTBlock])
    depth, tied, name = rng.randint(3, 4), rng.random() < 0.5, rng.choice(["AdamW", "SGD", "Adafactor"])
    if block is not LlamaBlock:  # the gradient of a bias of keys is rounding, which Adafactor makes large
        name = "AdamW"
    first, second = Composition(rng), Composition(rng)
    alone = made(block, depth, tied)
    start = copy.deepcopy(alone)
    optimizer = optimizer_of(alone, name)
    folder = tempfile.mkdtemp()
    half = train_alone(alone, optimizer, range(2))
    then = copy.deepcopy(alone)
    rest = train_alone(alone, optimizer, range(2, 4))

    def before(rank):
        m = copy.deepcopy(start)
        if rank:  # the first rank's values count
            with plait.no_grad():
                for p in m.parameters():
                    p.zero_()
        m = first.lay(m)
        own = optimizer_of(m, name)
        train_laid(m, own, range(2), half)
        compare(m, then)
        state = {"model": get_model_state_dict(m), "optim": get_optimizer_state_dict(m, own, options=FLAT)}
        dcp.save(state, checkpoint_id=folder)

    def after(rank):
        m = second.lay(made(block, depth, tied, seed=1))
        own = optimizer_of(m, name)
        state = {"model": get_model_state_dict(m), "optim": get_optimizer_state_dict(m, own, options=FLAT)}
        dcp.load(state, checkpoint_id=folder)
        set_optimizer_state_dict(m, own, state["optim"], options=FLAT)
        train_laid(m, own, range(2, 4), rest)
        compare(m, alone)
        m.eval()
        with plait.no_grad():
            x, _ = batch(9)
            got = m(x)
            assert type(got) is plait.Tensor
            assert plait.allclose(got, alone(x), rtol=1e-8, atol=1e-8)
            assert plait.allclose(m(x[:1]), alone(x[:1]), rtol=1e-8, atol=1e-8)

    try:
        on_ranks(math.prod(first.shape), before)
        on_ranks(math.prod(second.shape), after)
    except Exception as error:
        error.add_note(f"{block.__name__}, {depth} blocks, tied={tied}, {name}: {first}, then {second}")
        raise


@pytest.mark.parametrize("offload", [False, True])
def test_full_states_have_all_stages(offload):
    alone = made(tied=True)
    optimizer = optimizer_of(alone)
    train_alone(alone, optimizer, range(1))
    options = StateDictOptions(full_state_dict=True, cpu_offload=offload)
    want = get_model_state_dict(alone), get_optimizer_state_dict(alone, optimizer)

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "fsdp"))
        m = plait.parallelize(made(tied=True), mesh, pp={"layers": LAYERS}, loss_fn=loss_of)
        own = optimizer_of(m)
        x, y = (t.chunk(2)[m.data_parallel_rank] for t in batch(0))
        m.step(x, target=y)
        m.clip_grad_norm_(0.5)
        own.step()
        got = get_model_state_dict(m, options=options), get_optimizer_state_dict(m, own, options=options)
        if offload and rank:
            assert got == ({}, {})
        else:
            assert got[0].keys() == want[0].keys() and got[1]["state"].keys() == want[1]["state"].keys()
            for name, t in want[0].items():
                assert plait.allclose(got[0][name], t, rtol=1e-9, atol=1e-9), name
            for name, kept in want[1]["state"].items():
                for field, t in kept.items():
                    assert plait.allclose(got[1]["state"][name][field], t, rtol=1e-7, atol=1e-9), (name, field)
            (group,) = got[1]["param_groups"]
            assert sorted(group["params"]) == sorted(want[1]["param_groups"][0]["params"])

    on_ranks(4, fn)


@pytest.mark.parametrize("names", [("pp",), ("tp",), ("fsdp",)])
def test_full_states_load(names):
    full = made(seed=4).state_dict()

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=names)
        options = {"pp": {"layers": LAYERS}} if names == ("pp",) else {}
        for load in (lambda m: m.load_state_dict(full), lambda m: set_model_state_dict(m, full)):
            m = plait.parallelize(made(seed=rank), mesh, **options)
            load(m)
            assert len(full) == len(made().state_dict())
            for name, value in m.state_dict().items():
                assert plait.equal(whole(value), full[name]), name
            with pytest.raises((RuntimeError, ValueError), match="nowhere"):
                m.load_state_dict({**full, "nowhere": plait.ones(1)})

    on_ranks(2, fn)


def test_shared_parameters_stay_one():
    def fn(rank):
        m = made(tied=True)
        mesh = dist.init_device_mesh("cpu", (2,))
        plan = {"start.kinds": RowwiseParallel(), "head": ColwiseParallel()}
        parallelize_module(m, mesh, plan)
        assert m.head.weight is m.start.kinds.weight and m.head.weight.placements == (Shard(0),)
        assert sum(p is m.head.weight for p in m.parameters()) == 1

    on_ranks(2, fn)


def test_a_loop_without_step_and_accumulation():
    alone = made()
    optimizer = optimizer_of(alone)
    for step in range(2):
        optimizer.zero_grad()
        for k in range(2):
            x, y = batch(2 * step + k)
            (loss_of(alone(x), y) / 2).backward()
        optimizer.step()

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
        m = plait.parallelize(made(), mesh)
        own = optimizer_of(m)
        for step in range(2):
            own.zero_grad()
            for k in range(2):
                x, y = (t.chunk(2)[m.data_parallel_rank] for t in batch(2 * step + k))
                m.set_requires_gradient_sync(k == 1)
                (loss_of(m(x), y) / 2).backward()
            own.step()
        compare(m, alone)
        with pytest.raises(RuntimeError, match="give loss_fn to parallelize"):
            m.step(x, target=y)

    on_ranks(4, fn)


def test_dropout_and_a_scaler_beside_divided_layers():
    """Dropout is equal where a model is replicated, and a scaler's factor is taken out again."""

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        plait.manual_seed(3)
        m = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)))
        alone = copy.deepcopy(m)
        plan = {"0.0": ColwiseParallel(use_local_output=False), "0.2": RowwiseParallel(input_layouts=Replicate())}
        laid = plait.parallelize(m, mesh, tp={"plan": plan}, loss_fn=F.mse_loss)
        x, y = plait.arange(32.0).reshape(4, 8).sin(), plait.zeros(4, 8)
        scaler = plait.amp.GradScaler("cpu", init_scale=16.0)
        plait.manual_seed(5)
        loss = laid.step(x, target=y, scaler=scaler)
        plait.manual_seed(5)
        want = F.mse_loss(alone(x), y)
        want.backward()
        assert loss.item() == pytest.approx(want.item(), rel=1e-5)
        for p, q in zip(laid.parameters(), alone.parameters(), strict=True):
            assert plait.allclose(whole(p.grad) / 16, q.grad, rtol=1e-4, atol=1e-6)

    on_ranks(2, fn)


@pytest.mark.parametrize(
    "error, match, options",
    [
        (ValueError, "the axis 'x' of .* is for nothing; each axis is for one of pp, dp, fsdp, tp", {"names": ("x",)}),
        (ValueError, "fsdp is given for the axis 'fsdp', which .* lacks; it has 'tp'", {"fsdp": {}}),
        (ValueError, "the axis 'tp' of .* is for dp and tp", {"dp": "tp"}),
        (ValueError, "in .* the axis 'dp' must come before 'fsdp'", {"names": ("fsdp", "dp"), "shape": (2, 1)}),
        (TypeError, "tp has no option plans; it has axis, plan, sequence", {"tp": {"plans": {}}}),
        (TypeError, "want tp to be the name of an axis, or options, got int", {"tp": 2}),
        (ValueError, "the plan of tp names 'nowhere'", {"tp": {"plan": {"nowhere": ColwiseParallel()}}}),
        (ValueError, "units of fsdp names 'nowhere'", {"names": ("fsdp",), "fsdp": {"units": ["nowhere"]}}),
        (TypeError, "want a plan of styles", {"tp": {"plan": {"head": 1}}}),
        (ValueError, "have no names: give mesh_dim_names", {"names": None}),
        (TypeError, "Model is no Sequential.* it has start, blocks, norm, head", {"names": ("pp",)}),
        (ValueError, "no layer is named 'tail'", {"names": ("pp",), "pp": {"layers": ["start", "tail"]}}),
        (ValueError, "named twice", {"names": ("pp",), "pp": {"layers": [*LAYERS, "blocks.1"]}}),
        (ValueError, "norm.weight, .* belong to none of the layers", {"names": ("pp",), "pp": {"layers": LAYERS[:2]}}),
        (ValueError, "there is no schedule 'best'", {"names": ("pp",), "pp": {"layers": LAYERS, "schedule": "best"}}),
        (ValueError, "stages of .1, 1. layers are not", {"names": ("pp",), "pp": {"layers": LAYERS, "sizes": [1, 1]}}),
        (TypeError, "want a loss_fn that can be called", {"loss_fn": 3}),
    ],
)
def test_mistakes_teach(error, match, options):
    raises(error, match, **options)


def test_ranks_that_disagree_all_learn_it():
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with pytest.raises(plait.DistributedError, match=r"the ranks' model differ: rank 0 has .*rank 3 has"):
            plait.parallelize(made(depth=4 if rank == 3 else 3), mesh)

    on_ranks(4, fn)


def test_ranks_with_other_options_all_learn_it():
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
        options = {"mp_policy": MixedPrecisionPolicy(param_dtype=plait.bfloat16 if rank else None)}
        with pytest.raises(plait.DistributedError, match=r"the ranks' sharding differ: .* rank 1 has .*bfloat16"):
            plait.parallelize(made(), mesh, fsdp=options)

    on_ranks(2, fn)


def test_what_a_laid_model_refuses():
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("pp",))
        m = plait.parallelize(made(), mesh, pp={"layers": LAYERS}, loss_fn=loss_of)
        assert isinstance(m, ParallelModule) and type(m).__name__ == "ParallelModel"
        with pytest.raises(RuntimeError, match=r"lies on .* already"):
            plait.parallelize(m, mesh)
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.deepcopy(m)
        x, y = batch(0)
        other = m.head if rank == 0 else m.start
        with pytest.raises(RuntimeError, match=r"is on rank . of the pipeline; call the model"):
            other(x)
        with pytest.raises(TypeError, match="positional values on, got also codes"):
            m(codes=x)
        assert m.step(x, target=y).item() > 0
        names = [n for n, _ in m.named_parameters()]
        assert names and all(n in dict(made().named_parameters()) for n in names)

    on_ranks(2, fn)
    with pytest.raises(TypeError, match="want a DeviceMesh"):
        plait.parallelize(made(), None)
    with pytest.raises(TypeError, match="want a module"):
        plait.parallelize(3, None)


def test_sizes_of_stages_and_one_rank_of_each_axis():
    alone = made(depth=4)
    want = train_alone(alone, optimizer_of(alone), range(1))

    def fn(rank):
        names = ("pp", "dp", "fsdp", "tp")
        mesh = dist.init_device_mesh("cpu", (2, 1, 1, 1), mesh_dim_names=names)
        m = plait.parallelize(
            made(depth=4), mesh, pp={"layers": LAYERS, "sizes": [5, 2], "micro_batches": 3}, loss_fn=loss_of
        )
        assert [n for n, _ in itertools.islice(m.named_parameters(), 1)] == [
            "start.kinds.weight" if rank == 0 else "norm.weight"
        ]
        train_laid(m, optimizer_of(m), range(1), want)
        compare(m, alone)

    on_ranks(2, fn)


NAMES = {"layers": ["start", "blocks.*", "norm", "head"]}


@pytest.mark.parametrize(
    "sizes", [{"tp": 2}, {"dp": 2, "tp": 2}, {"fsdp": 2, "tp": 2}, {"pp": 2, "tp": 2}, {"pp": 2}, {"dp": 2, "fsdp": 2}]
)
def test_models_on_the_meta_device(sizes):
    alone = made(GPTBlock)
    x, y = batch(0)
    want = loss_of(alone(x), y).item()

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        with plait.device("meta"):
            m, other = made(GPTBlock), made(GPTBlock, seed=rank)
        assert all(p.is_meta for p in m.parameters())
        m = plait.parallelize(m, mesh, loss_fn=loss_of, pp=NAMES if "pp" in sizes else None)
        got = dict(alone.named_parameters())
        for name, p in m.named_parameters():
            assert plait.equal(whole(p), got[name]), name
        assert m.step(x, target=y).item() == pytest.approx(want, rel=1e-12)
        with pytest.raises(plait.DistributedError, match=r"meta device, which want the same seed on all ranks"):
            plait.parallelize(other, mesh, pp=NAMES if "pp" in sizes else None)

    on_ranks(math.prod(sizes.values()), fn)


def test_copies_of_shards_of_the_meta_device():
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "fsdp"))
        plait.manual_seed(rank // 2)
        with plait.device("meta"):
            m = nn.Linear(3, 5)
        with pytest.raises(plait.DistributedError, match=r"weight is on the meta device, and rank .* manual_seed"):
            fully_shard(m, mesh=mesh)

    on_ranks(4, fn)
