"""What tests of `plait.parallelize` share: models of three kinds of blocks, their training, and random compositions."""

import math

import plait
import pytest
from plait import distributed as dist
from plait import nn
from plait.distributed.checkpoint.state_dict import (
    StateDictOptions,
)
from plait.distributed.tensor import DTensor
from plait.nn import functional as F
from plait.nn.utils import clip_grad_norm_
from ranks import on_one_device as on_ranks

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


def raises(error, match, shape=(2,), names=("tp",), model=None, **options):
    def fn(rank):
        mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=names)
        with pytest.raises(error, match=match):
            plait.parallelize(made() if model is None else model(), mesh, **options)

    on_ranks(math.prod(shape), fn)
