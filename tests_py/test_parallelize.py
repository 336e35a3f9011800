"""`plait.parallelize`: one model over the axes of one mesh, in any composition equal to one device."""

import copy
import itertools
import math
import random
import tempfile

import plait
import pytest
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
from plait.distributed.parallel import ParallelModule
from plait.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, strict
from plait.distributed.tensor.experimental import implicit_replication
from plait.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module, ready_plan
from plait.nn import functional as F
from plait.nn.utils import clip_grad_norm_
from ranks import on_ranks as on_ranks_of_devices


def on_ranks(n, fn):
    """Runs fn on ranks that share a device, on which the tests make what they compare with."""
    return on_ranks_of_devices(n, fn, devices=["cpu:0"])


FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
WIDTH, HEADS, KINDS, LENGTH, ROWS = 8, 4, 11, 6, 8


def attend(q, k, v, **options):
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(2)


class LlamaBlock(nn.Module):
    """Grouped heads, rotations that are a buffer, a gate, and names of Llama."""

    def __init__(self):
        super().__init__()
        self.input_norm, self.post_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q_proj, self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj, self.v_proj = nn.Linear(WIDTH, WIDTH // 2, bias=False), nn.Linear(WIDTH, WIDTH // 2, bias=False)
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, 10, bias=False), nn.Linear(WIDTH, 10, bias=False)
        self.down_proj = nn.Linear(10, WIDTH, bias=False)
        self.register_buffer("turn", plait.arange(LENGTH * 2.0).reshape(LENGTH, 2).cos())

    def forward(self, x):
        b, t, _ = x.shape
        h = self.input_norm(x)
        q, k, v = (p(h).view(b, t, -1, WIDTH // HEADS).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        seen = attend(q * self.turn[:t], k * self.turn[:t], v, is_causal=True, enable_gqa=True)
        x = x + self.o_proj(seen)
        h = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class GPTBlock(nn.Module):
    """Queries, keys and values of one layer, a number of heads that is written down, and names of GPT-2."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.Sequential()
        self.mlp.c_fc, self.mlp.gelu = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU()
        self.mlp.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.attn["c_attn"](self.ln_1(x)).split(c, dim=2)
        q, k, v = (p.view(b, t, HEADS, c // HEADS).transpose(1, 2) for p in (q, k, v))
        mask = plait.ones(t, t, dtype=plait.bool).tril()
        x = x + self.attn["c_proj"](attend(q, k, v, attn_mask=mask))
        return x + self.mlp(self.ln_2(x))


class ViTBlock(nn.Module):
    """The layout of heads and the names of vision transformers, and a scale that is a parameter of no layer."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
        self.scale = nn.Parameter(plait.full((WIDTH,), 0.7))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.scale * self.proj(attend(q, k, v))
        return x + self.scale * self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Start(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds, self.places = nn.Embedding(KINDS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, codes):
        return self.kinds(codes) + self.places(plait.arange(codes.shape[1], device=codes.device))


class Model(nn.Module):
    def __init__(self, block, depth, tied):
        super().__init__()
        self.start = Start()
        self.blocks = nn.ModuleList(block() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, KINDS, bias=False)
        if tied:
            self.head.weight = self.start.kinds.weight

    def forward(self, codes):
        x = self.start(codes)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


LAYERS = ["start", "blocks.*", "norm", "head"]


def loss_of(scores, target):
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def made(block=LlamaBlock, depth=3, tied=False, seed=0):
    plait.manual_seed(seed)
    return Model(block, depth, tied).double()


def batch(step):
    g = plait.Generator().manual_seed(100 + step)
    codes = plait.randint(0, KINDS, (ROWS, LENGTH + 1), generator=g)
    return codes[:, :-1], codes[:, 1:]


def whole(t):
    return (t.full_tensor() if isinstance(t, DTensor) else t).detach()


def optimizer_of(m, name="AdamW"):
    return getattr(plait.optim, name)(m.parameters(), lr=0.02)


def train_alone(m, optimizer, steps):
    """Trains on one device and returns the losses and norms."""
    seen = []
    for step in steps:
        x, y = batch(step)
        optimizer.zero_grad()
        loss = loss_of(m(x), y)
        loss.backward()
        seen.append((loss.item(), clip_grad_norm_(m.parameters(), 0.5).item()))
        optimizer.step()
    return seen


def train_laid(m, optimizer, steps, want):
    """Trains this rank's part, and compares losses, where it has the whole batch, and norms."""
    n, at = m.data_parallel_size, m.data_parallel_rank
    for step, (loss, norm) in zip(steps, want, strict=True):
        x, y = (t.chunk(n)[at] for t in batch(step))
        optimizer.zero_grad()
        got = m.step(x, target=y)
        if n == 1:
            assert got.item() == pytest.approx(loss, rel=1e-9)
        assert m.clip_grad_norm_(0.5).item() == pytest.approx(norm, rel=1e-9)
        optimizer.step()


def compare(m, alone):
    want = alone.state_dict()
    for name, value in m.state_dict().items():
        got = whole(value)
        assert got.shape == want[name].shape
        assert plait.allclose(got, want[name], rtol=1e-8, atol=1e-8), (name, (got - want[name]).abs().max())


class Composition:
    """A mesh, and how a model lies on it."""

    def __init__(self, rng, most=8):
        while True:
            self.sizes = {"pp": rng.choice([1, 1, 2, 3]), "dp": rng.choice([1, 1, 2]), "fsdp": rng.choice([1, 2, 4])}
            self.sizes["tp"] = rng.choice([1, 1, 2, 3])
            # Ranks that have equally many rows of a batch.
            if 1 < math.prod(self.sizes.values()) <= most and ROWS % (self.sizes["dp"] * self.sizes["fsdp"]) == 0:
                break
        self.options = {}
        if self.sizes["pp"] > 1:
            schedule = rng.choice(["gpipe", "1f1b", "zb-h1", "zb-v"])
            if schedule == "zb-v" and self.sizes["pp"] > 2:
                schedule = "1f1b"
            rows = ROWS // (self.sizes["dp"] * self.sizes["fsdp"])
            micro = rng.randint(self.sizes["pp"], max(self.sizes["pp"], rows))
            self.options["pp"] = {"layers": LAYERS, "schedule": schedule, "micro_batches": micro}
        if self.sizes["fsdp"] > 1:
            self.options["fsdp"] = {"reshard_after_forward": rng.choice([None, True, False])}
            if rng.random() < 0.3:
                self.options["fsdp"]["units"] = ["start"]
        if self.sizes["tp"] > 1 and rng.random() < 0.5:
            self.options["tp"] = {"sequence": True}
        names = [n for n in self.sizes if self.sizes[n] > 1 or rng.random() < 0.3]
        self.names, self.shape = tuple(names), tuple(self.sizes[n] for n in names)
        self.options = {k: v for k, v in self.options.items() if k in names}

    def __repr__(self):
        return f"{dict(zip(self.names, self.shape, strict=True))} {self.options}"

    def lay(self, m):
        mesh = dist.init_device_mesh("cpu", self.shape, mesh_dim_names=self.names)
        return plait.parallelize(m, mesh, loss_fn=loss_of, **self.options)


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


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("block", [LlamaBlock, GPTBlock, ViTBlock])
def test_ready_plans_gather_nothing(block, sequence):
    alone = made(block)
    x, y = batch(0)
    loss_of(alone(x), y).backward()

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        m = plait.parallelize(made(block), mesh, tp={"sequence": sequence}, loss_fn=loss_of)
        with strict():
            m.step(x, target=y)
        divided = [n for n, p in m.named_parameters() if isinstance(p, DTensor) and p.placements != (Replicate(),)]
        assert "head.weight" in divided and "start.kinds.weight" in divided and len(divided) > 2 + 3 * 4
        want = dict(alone.named_parameters())
        for name, p in m.named_parameters():
            assert plait.allclose(whole(p.grad), want[name].grad, rtol=1e-9, atol=1e-10), name

    on_ranks(2, fn)


@pytest.mark.parametrize("block", [LlamaBlock, GPTBlock, ViTBlock])
def test_what_a_block_exchanges(block):
    """Per block of two ranks, in bytes of activations: four all-reduces, or four all-gathers and reduce-scatters.

    One layer for queries, keys and values adds exchanges, because its parts are not those of whole heads.
    """
    x, y = batch(0)
    unit = x.numel() * WIDTH * 8
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")

    def moved(sequence, depth):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        m = plait.parallelize(made(block, depth), mesh, tp={"sequence": sequence}, loss_fn=loss_of)
        m.step(x, target=y)
        dist.barrier()
        group = mesh.get_group("tp")
        before = [group.bytes_moved(k) for k in kinds]
        m.step(x, target=y)
        dist.barrier()
        return [group.bytes_moved(k) - b for k, b in zip(kinds, before, strict=True)]

    def fn(rank):
        together = 2 if block is not LlamaBlock else 0
        for sequence, want in ((False, (4, 0, 0, together)), (True, (0, 2, 2, together))):
            more = [(b - a) / unit for a, b in zip(moved(sequence, 3), moved(sequence, 4), strict=True)]
            # The gradients of norms and biases, which are on all ranks, are summed over parts of a sequence.
            assert more == pytest.approx(want, abs=0.15)

    on_ranks(2, fn)


def test_ready_plan_names_each_kind_of_layer():
    plan = ready_plan(made(GPTBlock))
    assert list(plan) == [
        "blocks.*.attn.c_attn", "blocks.*.attn.c_proj", "blocks.*.mlp.c_fc", "blocks.*.mlp.c_proj", "start.kinds",
        "head",
    ]  # fmt: skip
    assert {type(plan[n]) for n in ("start.kinds", "blocks.*.attn.c_proj")} == {RowwiseParallel}
    assert {type(plan[n]) for n in ("head", "blocks.*.mlp.c_fc")} == {ColwiseParallel}
    with pytest.raises(ValueError, match=r"no layer has a name that is known .* the linear layers are 0, 1"):
        ready_plan(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))


class Conv1D(nn.Module):
    """The linear layer of transformers' GPT-2, whose weight is the transpose of a Linear's."""

    def __init__(self, features, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(plait.randn(width, features)), nn.Parameter(plait.randn(features))

    def forward(self, x):
        return plait.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class Other(nn.Module):
    """Layers of other kinds: attention of this package, layers in a Sequential, and transposed weights."""

    def __init__(self):
        super().__init__()
        encoder = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(encoder, 2)
        self.mixers = nn.ModuleDict(
            {
                f"mixer_{i}": nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 20), nn.GELU(), nn.Linear(20, 8))
                for i in (0, 1)
            }
        )
        self.h = nn.ModuleList([nn.ModuleDict({"c_fc": Conv1D(10, 8), "c_proj": Conv1D(8, 10)})])

    def forward(self, x):
        x = self.layers(x)
        for mixer in self.mixers.values():
            x = x + mixer(x)
        return x + self.h[0]["c_proj"](self.h[0]["c_fc"](x).tanh())


@pytest.mark.parametrize("sequence", [False, True])
def test_ready_plans_of_other_kinds_of_layers(sequence):
    plait.manual_seed(0)
    alone = Other().double()
    start = copy.deepcopy(alone)
    x = plait.arange(5 * 6 * 8.0).double().reshape(5, 6, 8).sin()
    alone(x).square().mean().backward()
    plan = ready_plan(alone, sequence=sequence)
    assert {
        "layers.layers.*.self_attn", "layers.layers.*.self_attn.out_proj", "layers.layers.*.linear1",
        "mixers.mixer_*.1", "mixers.mixer_*.3", "h.*.c_fc", "h.*.c_proj",
    } <= set(plan)  # fmt: skip
    assert ("layers.layers.*.norm1" in plan) == sequence

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        m = plait.parallelize(copy.deepcopy(start), mesh, tp={"sequence": sequence})
        with strict():
            m(x).square().mean().backward()
        assert m.h[0]["c_fc"].weight.placements == (Shard(1),) and m.h[0]["c_proj"].weight.placements == (Shard(0),)
        want = dict(alone.named_parameters())
        for name, p in m.named_parameters():
            assert plait.allclose(whole(p.grad), want[name].grad, rtol=1e-8, atol=1e-10), name

    on_ranks(2, fn)


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


class Twice(nn.Module):
    """A layer of a Sequential that takes and returns a pair."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, pair):
        x, y = pair
        return self.a(x).tanh(), self.b(y) + x


class Joined(nn.Module):
    def forward(self, pair):
        return pair[0] + pair[1]


class Pair(nn.Module):
    def forward(self, x):
        return x, x.sin()


def test_layers_of_a_sequential_hand_over_pairs():
    plait.manual_seed(1)
    alone = nn.Sequential(Pair(), Twice(), Twice(), Twice(), Joined()).double()
    start = copy.deepcopy(alone)
    x = plait.arange(24.0).double().reshape(6, 4).cos()
    F.mse_loss(alone(x), x).backward()

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("pp",))
        m = plait.parallelize(copy.deepcopy(start), mesh, pp={"sizes": [2, 3], "micro_batches": 3}, loss_fn=F.mse_loss)
        m.step(x, target=x)
        want = dict(alone.named_parameters())
        for name, p in m.named_parameters():
            assert plait.allclose(p.grad, want[name].grad, rtol=1e-10, atol=1e-12), name
        assert plait.allclose(m(x), alone(x))

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


def test_dropout_and_a_scaler_in_half_the_composition():
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


def raises(error, match, shape=(2,), names=("tp",), model=None, **options):
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=names)
        with pytest.raises(error, match=match):
            plait.parallelize(made() if model is None else model(), mesh, **options)

    on_ranks(math.prod(shape), fn)


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


def layer():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh())


class Chain(nn.Module):
    """Layers in a row, which `change` may tie."""

    def __init__(self, depth, change=lambda layers: None):
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(depth))
        change(self.layers)

    def forward(self, x):
        for each in self.layers:
            x = each(x)
        return x


def tie(*pairs):
    def change(layers):
        for a, b in pairs:
            layers[b][0].weight = layers[a][0].weight

    return lambda: Chain(5, change)


def one_layer_thrice():
    def change(layers):
        layers[2] = layers[4] = layers[0]

    return Chain(5, change)


def one_activation():
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8), act)


@pytest.mark.parametrize(
    "sizes", [{"pp": 2}, {"pp": 3}, {"fsdp": 2}, {"pp": 2, "fsdp": 2}, {"pp": 2, "dp": 2}], ids=str
)
@pytest.mark.parametrize("build", [tie((0, 4), (1, 3)), tie((0, 2), (0, 4), (1, 3)), one_layer_thrice, one_activation])
def test_what_layers_share(build, sizes):
    """Weights tied in another order than that of the layers, between units and stages, and layers in several places."""
    plait.manual_seed(0)
    start = build().double()
    alone = copy.deepcopy(start)
    x = plait.arange(16 * 8.0).double().reshape(16, 8).sin()
    y = x.cos()
    for step in range(2):
        F.mse_loss(alone(x + step), y).backward()
    want = dict(alone.named_parameters(remove_duplicate=False))

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        options = {"pp": {"layers": ["layers.*"]}} if "pp" in sizes and isinstance(start, Chain) else {}
        m = plait.parallelize(copy.deepcopy(start), mesh, loss_fn=F.mse_loss, **options)
        for sync in (False, True):
            m.set_requires_gradient_sync(sync)
            n, at = m.data_parallel_size, m.data_parallel_rank
            m.step((x + sync).chunk(n)[at], target=y.chunk(n)[at])
        for name, p in m.named_parameters():
            assert plait.allclose(whole(p.grad), want[name].grad, rtol=1e-9, atol=1e-12), name

    on_ranks(math.prod(sizes.values()), fn)


def laid_chain(sizes, body, build=lambda: Chain(2), **options):
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        plait.manual_seed(0)
        return body(plait.parallelize(build(), mesh, **{"loss_fn": F.mse_loss, **options}), rank)

    return on_ranks(math.prod(sizes.values()), fn)


def test_stages_skip_a_step_together():
    """A gradient that is not finite is on one stage alone."""

    def body(m, rank):
        optimizer = plait.optim.SGD(m.parameters(), lr=1.0)
        scaler = plait.amp.GradScaler("cpu", init_scale=4.0)
        x = plait.ones(4, 8)
        for bad in (True, False):
            before = [p.detach().clone() for p in m.parameters()]
            optimizer.zero_grad()
            m.step(x, target=x, scaler=scaler)
            if bad and rank == 0:
                m.layers[0][0].bias.grad[0] = math.inf
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0
            assert bad == all(plait.equal(a, b) for a, b in zip(before, m.parameters(), strict=True))

    laid_chain({"pp": 2}, body, pp={"layers": ["layers.*"]})


def test_outputs_of_any_form_come_to_all_stages():
    class Last(nn.Module):
        def forward(self, x):
            return {"x": x, "none": None, "pair": [x * 2, (x.sum(1).long(),)]}

    def build():
        m = Chain(1)
        m.layers.append(Last())
        return m

    def body(m, rank):
        x = plait.arange(40.0).reshape(5, 8)
        out = m(x)
        assert list(out) == ["x", "none", "pair"] and out["none"] is None
        assert plait.equal(out["pair"][0], out["x"] * 2) and out["pair"][1][0].dtype == plait.int64
        return out["x"]

    first, second = laid_chain({"pp": 2}, body, build, pp={"layers": ["layers.*"]})
    assert plait.equal(first, second) and first.shape == (5, 8)


def test_what_a_pipeline_refuses():
    x = plait.ones(8, 8)

    def body(m, rank):
        with pytest.raises(ValueError, match="got 8 samples and targets of 5"):
            m.step(x, target=x[:5])
        with pytest.raises(ValueError, match="without samples"):
            m(x[:0])
        part = x[: 6 + rank]
        with pytest.raises(plait.DistributedError, match="rank 0 6 samples, rank 1 7; all want the same part"):
            m.step(part, target=part)
        m.register_forward_hook(lambda *_: None)
        with pytest.raises(RuntimeError, match="hooks of ParallelChain itself do not run in a pipeline"):
            m.step(x, target=x)

    # A loss that is a sum over features, so that micro-batches of other sizes meet without an error of their own.
    laid_chain({"pp": 2}, body, pp={"layers": ["layers.*"]}, loss_fn=lambda a, b: (a.sum() - b.sum()).square())

    class Residual(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    def residual():
        return Residual(nn.Linear(8, 8), nn.Linear(8, 8))

    raises(TypeError, "Residual is a Sequential with a forward of its own", names=("pp",), model=residual)
    for names in (("pp",), ("dp",), ("fsdp",)):
        raises(
            ValueError,
            "want a loss_fn that is a mean",
            names=names,
            model=residual,
            loss_fn=nn.MSELoss(reduction="sum"),
        )

    def one_block():
        m = Chain(1)
        m.layers.append(m.layers[0])
        return m

    options = {"pp": {"layers": ["layers.*.*"]}}
    raises(ValueError, "are one layer of a module .* in several places", names=("pp",), model=one_block, **options)


@pytest.mark.parametrize("order", [2.0, math.inf, -math.inf])
def test_norms_of_stages_without_gradients_and_of_other_dtypes(order):
    def build():
        m = Chain(2)
        m.layers[1].requires_grad_(False)
        return m

    plait.manual_seed(0)
    alone = build()
    x = plait.ones(4, 8)
    F.mse_loss(alone(x), x).backward()
    want = clip_grad_norm_(alone.parameters(), 1e-3, order).item()
    grads = {n: p.grad for n, p in alone.named_parameters()}

    def body(m, rank):
        m.step(x, target=x)
        assert m.clip_grad_norm_(1e-3, order).item() == pytest.approx(want, rel=1e-5)
        for name, p in m.named_parameters():
            assert p.grad is None if rank else plait.allclose(p.grad, grads[name], rtol=1e-4)

    laid_chain({"pp": 2}, body, build, pp={"layers": ["layers.*"]})

    class Cast(nn.Module):
        def forward(self, x):
            return x.bfloat16()

    def mixed():
        m = Chain(2)
        m.layers[1] = nn.Sequential(Cast(), layer().bfloat16())
        return m

    def norms(m, rank):
        m.step(x, target=x.bfloat16())
        return m.clip_grad_norm_(1.0, order).item()

    a, b = laid_chain({"pp": 2}, norms, mixed, pp={"layers": ["layers.*"]})
    assert a == b


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, lambda n: nn.InstanceNorm1d(n, track_running_stats=True)])
def test_running_statistics_of_divided_channels(norm):
    x = plait.arange(4 * 6 * 5.0).double().reshape(4, 6, 5).sin()
    alone = norm(6).double()
    want = alone(x)

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,))
        for dim in range(3):
            m = norm(6).double()
            with implicit_replication():
                out = m(distribute_tensor(x, mesh, [Shard(dim)]))
            assert plait.allclose(whole(out), want)
            for name, value in m.state_dict().items():
                assert plait.allclose(value, alone.state_dict()[name]), (dim, name)

    on_ranks(2, fn)


@pytest.mark.parametrize("sequence", [False, True])
def test_second_derivatives_and_hooks_of_divided_layers(sequence):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)

        def forward(self, x):
            return x + self.down(self.up(input=self.norm(x)).tanh())

    plait.manual_seed(0)
    start = nn.Sequential(Block(), Block()).double()
    x = plait.arange(4 * 6 * 8.0).double().reshape(4, 6, 8).sin()

    def run(m):
        def double(module, inputs, named):
            named["input"].register_hook(lambda g: 2 * g)

        for each in m:
            each.up.register_forward_pre_hook(double, with_kwargs=True)
        a = x.clone().requires_grad_()
        y = m(a)
        (g,) = plait.autograd.grad(y.sin().sum(), a, create_graph=True)
        (g.square().sum() + y.sum()).backward()
        return g, a.grad, {n: whole(p.grad) for n, p in m.named_parameters()}

    first, second, grads = run(copy.deepcopy(start))

    def fn(rank):
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        m = plait.parallelize(copy.deepcopy(start), mesh, tp={"sequence": sequence})
        a, b, c = run(m)
        assert plait.allclose(a, first, rtol=1e-9) and plait.allclose(b, second, rtol=1e-9)
        for name, g in c.items():
            assert plait.allclose(g, grads[name], rtol=1e-9, atol=1e-12), name

    on_ranks(2, fn)
