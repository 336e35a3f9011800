"""Random models, trained in random ways by FSDP, DDP and pipelines, against one device on the joined batch.

A seed says everything. `PYTHONPATH=tests_py python tests_py/test_parallel_random.py fsdp 0 200` looks at many.
"""

import random
import sys

import numpy as np
import plait
import pytest
from plait import nn
from plait.distributed.device_mesh import init_device_mesh
from plait.distributed.fsdp import FSDP, CPUOffloadPolicy, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from plait.nn import functional as F
from plait.nn.parallel import DistributedDataParallel
from plait.utils.checkpoint import checkpoint
from ranks import on_ranks

WIDE, LONG, WORDS = 4, 3, 7  # features, positions and different tokens of a sample


class Residual(nn.Module):
    def __init__(self, rng):
        super().__init__()
        hidden = rng.choice([1, 3, 5, 8])
        self.norm = nn.LayerNorm(WIDE) if rng.random() < 0.6 else nn.Identity()
        self.up, self.down = nn.Linear(WIDE, hidden, bias=rng.random() < 0.7), nn.Linear(hidden, WIDE)
        self.gain = nn.Parameter(plait.tensor(0.75)) if rng.random() < 0.5 else 1.0

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).tanh()) * self.gain


class Convolution(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(WIDE, WIDE, 3, padding=1), nn.GroupNorm(2, WIDE)

    def forward(self, x):
        return x + self.norm(self.conv(x.transpose(1, 2))).transpose(1, 2).sigmoid()


class Attention(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.norm, self.attention = (
            nn.LayerNorm(WIDE),
            nn.MultiheadAttention(WIDE, rng.choice([1, 2]), bias=False, batch_first=True),
        )

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDE), nn.Parameter(plait.randn(LONG, WIDE) * 0.1)

    def forward(self, tokens):
        return self.words(tokens) + self.places


class Normed(nn.Module):
    """A norm over the whole batch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDE, track_running_stats=False)

    def forward(self, x):
        return x + self.norm(x.transpose(1, 2)).transpose(1, 2)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDE), nn.Linear(WIDE, WORDS, bias=False)

    def forward(self, x):
        return self.out(self.norm(x))


class Case:
    """What a seed says."""

    def __init__(self, kind, seed):
        self.kind, self.seed = kind, seed
        rng = self.rng = random.Random(f"{kind} {seed}")
        self.world = rng.randint(1, 5)
        self.blocks = [rng.choice([Residual, Residual, Convolution, Attention]) for _ in range(rng.randint(1, 4))]
        self.tied, self.shared = rng.random() < 0.4, rng.random() < 0.25
        self.frozen = rng.random() < 0.25
        self.again = rng.choice(["", "", "", "each", "all", "reentrant"])
        self.passes = rng.choice([1, 1, 2, 3])
        self.clip = rng.choice([None, None, 0.05, 0.5])
        self.norm = rng.choice([1.0, 2.0, float("inf")])
        self.hook = rng.choice(["", "", "scale", "clamp"])
        self.optimizer = rng.choice(["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adamax", "Rprop"])
        self.rows = [rng.randint(1, 3) for _ in range(self.world)]
        self.steps = rng.randint(1, 3)
        self.ignore = rng.random() < 0.4
        self.weighted = kind == "ddp" and rng.random() < 0.3
        self.normed = kind == "ddp" and rng.random() < 0.4
        if kind == "pipeline":
            self.hook, self.clip = "", None
        self.how = rng.choice(["one", "blocks", "layers", "group", "both", "policy"])
        if kind == "fsdp" and self.how not in ("one", "policy"):
            self.tied = self.shared = False  # a parameter belongs to one unit, which has all its users
        if kind == "ddp" and self.again == "reentrant":
            self.again = "each"  # gradients would come in several passes
        if self.passes > 1 and self.hook == "clamp":
            self.hook = "scale"  # ranks that add up first clamp the sum
        if kind == "ddp" and self.hook == "clamp":
            self.hook = "scale"  # hooks see a rank's own gradients

    def model(self):
        plait.manual_seed(self.seed)
        rng = random.Random(self.seed)
        m = nn.Sequential(Tokens(), *(b(rng) for b in self.blocks), Head())
        if self.normed:
            m.insert(1, Normed())
        if self.tied:
            m[-1].out.weight = m[0].words.weight
        same = [b for b in m if isinstance(b, Attention)]
        if self.shared and len(same) > 1:
            same[1].norm.weight = same[0].norm.weight
        if self.frozen:
            m[1 if len(m) > 2 else 0].requires_grad_(False)
        return m

    def run(self, m, x):
        if self.again == "all":
            return m[-1](checkpoint(lambda t: self.body(m, t), x, use_reentrant=False))
        return m[-1](self.body(m, x))

    def body(self, m, x):
        for i, b in enumerate(list(m)[:-1]):
            if self.again in ("each", "reentrant") and i > 0:
                x = checkpoint(b, x, use_reentrant=self.again == "reentrant")
            else:
                x = b(x)
        return x

    def batch(self, step, first, last):
        rng = np.random.default_rng((self.seed, step))
        total = sum(self.rows)
        x, y = rng.integers(0, WORDS, (total, LONG)), rng.integers(0, WORDS, (total, LONG))
        if self.ignore:
            y[rng.random((total, LONG)) < 0.3] = -100
        count = max(int((y >= 0).sum()), 1)
        return plait.tensor(x[first:last]), plait.tensor(y[first:last]), count

    def loss(self, out, y, count, scale=1.0):
        return F.cross_entropy(out.flatten(0, 1), y.flatten(), reduction="sum") / count * scale

    def hooks(self, m):
        for p in m.parameters():
            if p.requires_grad and self.hook == "scale":
                p.register_hook(lambda g: g * 0.5)
            elif p.requires_grad and self.hook == "clamp":
                p.register_hook(lambda g: g.clamp(-0.02, 0.02))

    def train(self, m, rank=0, world=1, unsynchronised=None):
        """Trains on a rank's rows, or on all, so that the average over ranks is the gradient of the mean."""
        first, last = (sum(self.rows[:rank]), sum(self.rows[: rank + 1])) if world > 1 else (0, sum(self.rows))
        opt = getattr(plait.optim, self.optimizer)([p for p in m.parameters() if p.requires_grad], lr=0.01)
        norms = []
        # Averages are over ranks, or in weighted ones over samples.
        scale = world if not self.weighted or world == 1 else sum(self.rows) / self.rows[rank]
        for step in range(self.steps):
            opt.zero_grad()
            for k in range(self.passes):
                x, y, count = self.batch(step * self.passes + k, first, last)
                if unsynchronised is not None and k < self.passes - 1:
                    with unsynchronised():
                        self.loss(m(x), y, count, scale).backward()
                else:
                    self.loss(m(x), y, count, scale).backward()
            if self.clip is not None:
                norms.append(nn.utils.clip_grad_norm_(m.parameters(), self.clip, self.norm).item())
            opt.step()
        return norms


class Whole(nn.Module):
    """A case's model as one module, whose forward may compute parts again."""

    def __init__(self, case):
        super().__init__()
        self.case, self.layers = case, case.model()

    def forward(self, x):
        return self.case.run(self.layers, x)


def values(m):
    return {n: p.detach().numpy().copy() for n, p in m.named_parameters()}


def alone(case):
    plait.set_default_dtype(plait.float64)
    try:
        m = Whole(case)
        case.hooks(m)
        return case.train(m), values(m)
    finally:
        plait.set_default_dtype(plait.float32)


def close(got, want, tol, about):
    assert got.keys() == want.keys()
    for n in want:
        np.testing.assert_allclose(got[n], want[n], rtol=tol, atol=tol, err_msg=f"{about}: {n}")


def divided(case, rng):
    """Returns the case's model, divided in a random way, and how to leave out the synchronisation."""
    m = Whole(case)
    if case.hook and rng.random() < 0.5:
        case.hooks(m)
        hooked = True
    else:
        hooked = False
    lowered = MixedPrecisionPolicy(param_dtype=plait.float32) if rng.random() < 0.2 else None
    offload = CPUOffloadPolicy() if rng.random() < 0.15 else None
    reshard = rng.choice([None, True, False])
    options = {"reshard_after_forward": reshard, "mp_policy": lowered}
    if case.world == 4 and rng.random() < 0.5:
        options["mesh"] = init_device_mesh("cpu", (2, 2))
    if offload is not None:
        options["offload_policy"] = offload
    how = case.how
    if how == "policy":
        strategy = rng.choice([ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP])
        linear = nn.LayerNorm if Attention in case.blocks else nn.Linear  # attention uses the weights of its own
        policy = rng.choice([{linear}, {Residual, Attention, Convolution}, {linear, nn.LayerNorm, nn.Embedding}])
        lowered = None
        mesh = options.get("mesh")
        if mesh is not None:
            strategy = ShardingStrategy.HYBRID_SHARD
        m = FSDP(m, auto_wrap_policy=policy, sharding_strategy=strategy, device_mesh=mesh)
    else:
        blocks = list(m.layers)
        if how in ("layers", "both"):
            for layer in m.modules():
                if isinstance(layer, nn.Linear | nn.LayerNorm) and type(layer).__name__ in ("Linear", "LayerNorm"):
                    fully_shard(layer, **options)
        if how in ("blocks", "both"):
            for b in blocks:
                fully_shard(b, **options)
        if how == "group" and len(blocks) > 2:
            fully_shard([blocks[-2], blocks[-1]], **options)
        fully_shard(m, **options)
    if not hooked:
        case.hooks(m)

    class Unsynchronised:
        def __enter__(self):
            m.set_requires_gradient_sync(False)

        def __exit__(self, *_):
            m.set_requires_gradient_sync(True)

    return m, Unsynchronised if rng.random() < 0.7 else None, lowered is not None, how


def check_fsdp(seed):
    case = Case("fsdp", seed)
    norms, want = alone(case)

    def run(rank):
        plait.set_default_dtype(plait.float64)
        m, unsynchronised, lowered, how = divided(case, random.Random(seed))
        tol = 2e-3 if lowered else 1e-8
        got = case.train(m, rank, case.world, unsynchronised)
        np.testing.assert_allclose(got, norms, rtol=tol, atol=tol, err_msg=f"norms of {how}")
        close({n: p.full_tensor().numpy() for n, p in m.named_parameters()}, want, tol, how)

    on_ranks(case.world, run)


def check_ddp(seed):
    case = Case("ddp", seed)
    norms, want = alone(case)

    def run(rank):
        plait.set_default_dtype(plait.float64)
        rng = random.Random(seed)
        m = Whole(case)
        m = nn.SyncBatchNorm.convert_sync_batchnorm(m)
        case.hooks(m)
        d = DistributedDataParallel(
            m,
            bucket_cap_mb=rng.choice([None, 1e-4, 1e-5]),
            find_unused_parameters=rng.random() < 0.3,
            gradient_as_bucket_view=rng.random() < 0.3,
            static_graph=rng.random() < 0.2,
            delay_all_reduce=rng.random() < 0.2,
            weighted=case.weighted,
        )
        got = case.train(d, rank, case.world, d.no_sync if rng.random() < 0.7 else None)
        np.testing.assert_allclose(got, norms, rtol=1e-8, atol=1e-8)
        close(values(m), want, 1e-8, "ddp")

    on_ranks(case.world, run)


def check_pipeline(seed):
    case = Case("pipeline", seed)
    rng = random.Random(seed)
    plait.set_default_dtype(plait.float64)
    try:
        reference, m = case.model(), case.model()
        stages = rng.randint(1, len(m))
        schedule = rng.choice(["gpipe", "1f1b", "zb-h1"])
        weight = plait.rand(WORDS) + 0.5 if rng.random() < 0.5 else None
        loss = nn.CrossEntropyLoss(weight)
        pipe = plait.Pipeline(
            nn.Sequential(*m, Classes()),
            [f"cpu:{i}" for i in range(stages)],
            max(stages, rng.randint(1, 4)),
            schedule,
            loss,
        )
        rows = max(sum(case.rows), stages)
        opts = [
            getattr(plait.optim, case.optimizer)([p for p in x.parameters() if p.requires_grad], lr=0.01)
            for x in (reference, m)
        ]
        for step in range(case.steps):
            data = np.random.default_rng((seed, step))
            x, y = data.integers(0, WORDS, (rows, LONG)), data.integers(0, WORDS, (rows, LONG))
            if case.ignore:
                y[data.random((rows, LONG)) < 0.3] = -100
            x, y = plait.tensor(x), plait.tensor(y)
            for o in opts:
                o.zero_grad()
            want = loss.to("cpu:0")(Classes()(reference(x)), y)
            want.backward()
            loss.to(f"cpu:{stages - 1}")
            got, _ = pipe.step(x, y)
            np.testing.assert_allclose(got.item(), want.item(), rtol=1e-9)
            for o in opts:
                o.step()
        close(values(m), values(reference), 1e-8, schedule)
    finally:
        plait.set_default_dtype(plait.float32)


class Classes(nn.Module):
    """Puts classes where losses want them."""

    def forward(self, x):
        return x.transpose(1, 2)


CHECKS = {"fsdp": check_fsdp, "ddp": check_ddp, "pipeline": check_pipeline}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", CHECKS)
def test_random_training(kind, seed):
    CHECKS[kind](seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKS)
def test_much_random_training(kind):
    for seed in range(6, 200):
        CHECKS[kind](seed)


if __name__ == "__main__":
    kind, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    failed = 0
    for seed in range(first, last):
        try:
            CHECKS[kind](seed)
        except Exception as error:
            failed += 1
            print(seed, type(error).__name__, str(error).strip()[:300].replace("\n", " "), flush=True)
    print(f"{kind}: {failed} of {last - first} failed")
